//! What the programs that test a kernel have in common: named checks, error numbers, and memory that must come back.

use std::io;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use crate::machine;

/// How long threads may take to end.
const WAY_OUT: Duration = Duration::from_millis(20);

/// A function that checks something, and its name. A failed assertion prints its message and ends the program.
pub type Check = (&'static str, fn());

/// Functions with their names, as [`run`] takes them.
#[macro_export]
macro_rules! named {
    ($($check:ident),+ $(,)?) => {
        [$((stringify!($check), $check as _)),+]
    };
}

pub use crate::named;

/// All that a program called `program` does: prepares the machine, runs the checks, and says so.
pub fn run(program: &str, checks: &[Check]) -> ExitCode {
    fail_on_panic(program);
    machine::prepare();
    run_all(program, checks);
    println!("{program}: OK");
    ExitCode::SUCCESS
}

/// Runs the checks; `label` goes before the name of each.
pub fn run_all(label: &str, checks: &[Check]) {
    for (name, check) in checks {
        let start = Instant::now();
        check();
        println!("{label}: {name} ok, {} ms", start.elapsed().as_millis());
    }
}

/// From now on a panic in any thread ends `program`: others may wait for what the thread would have done.
pub fn fail_on_panic(program: &str) {
    let program = program.to_owned();
    std::panic::set_hook(Box::new(move |info| {
        fail(&program, &info.to_string().replace('\n', " "))
    }));
}

/// Ends `program`, whatever its threads do.
pub fn fail(program: &str, what: &str) -> ! {
    println!("{program}: FAILED: {what}");
    std::process::exit(1)
}

/// The number of the error in `result`, if it is one of the kernel's.
pub fn error_of<T>(result: io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

/// The number of the last error.
pub fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// `result` must be the error `errno`.
#[track_caller]
pub fn expect(errno: i32, result: io::Result<impl std::fmt::Debug>) {
    let error = result.expect_err("must be refused");
    assert_eq!(error.raw_os_error(), Some(errno), "{error}");
}

/// `work` must leave as much memory free as before, but for less than `spare_kib`. Only on the reference kernel: on Linux
/// others use memory, too.
#[track_caller]
pub fn must_not_lose(spare_kib: u64, work: impl FnOnce()) {
    let before = free_kib();
    work();
    assert_kept(spare_kib, before.saturating_sub(free_kib()));
}

/// The same of the best of so many `turns` since before the first: threads may still be on their way out after each.
#[track_caller]
pub fn must_not_lose_again(turns: usize, spare_kib: u64, work: impl Fn()) {
    let before = free_kib();
    let lost = (0..turns).map(|_| {
        work();
        thread::sleep(WAY_OUT);
        before.saturating_sub(free_kib())
    });
    assert_kept(spare_kib, lost.min().unwrap_or(0));
}

#[track_caller]
fn assert_kept(spare_kib: u64, lost_kib: u64) {
    let is_fine = lost_kib < spare_kib || !machine::is_reference_kernel();
    assert!(is_fine, "{lost_kib} KiB are gone");
}

fn free_kib() -> u64 {
    machine::free_kib().expect("a number of free pages")
}
