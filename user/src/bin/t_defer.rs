//! CPUs in the kernel: flushes leave them alone under a policy that defers, and neither they nor the calls that they make use
//! what has passed them by.

use std::io::{Read, Write};
use std::process::ExitCode;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::thread;

use shootdown_user::counters::{CounterSource, Counters};
use shootdown_user::machine;
use shootdown_user::policy::PolicySwitch;
use shootdown_user::region::Region;

/// Discards while another thread makes calls.
const DISCARDS: u64 = 2000;
/// Values that are published while another thread looks.
const VALUES: u64 = 1500;
/// What follows the name of a policy that defers.
const DEFERS: &str = "+defer";

fn grown(name: &str, before: &Counters, after: &Counters) -> u64 {
    let value = |counters: &Counters| counters.get(name).copied().unwrap_or(0);
    value(after).saturating_sub(value(before))
}

/// Runs `changes` on the first CPU while another thread does `work` again and again on the last. False where there is but one.
fn beside(cpus: &[usize], work: impl Fn() + Sync, changes: impl FnOnce()) -> bool {
    let (first, last) = (cpus[0], cpus[cpus.len() - 1]);
    if first == last {
        return false;
    }
    machine::pin_to(first).unwrap();
    let (turns, is_over) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            machine::pin_to(last).unwrap();
            while is_over.load(Relaxed) == 0 {
                work();
                turns.fetch_add(1, Relaxed);
            }
        });
        while turns.load(Relaxed) == 0 {
            thread::yield_now();
        }
        changes();
        is_over.store(1, Relaxed);
    });
    true
}

fn calls_in_progress_are_left_alone(cpus: &[usize], defers: bool) {
    let is_ours = std::fs::exists("/proc/shootdown").unwrap();
    let mut source = CounterSource::of_this_kernel();
    let region = Region::new(1).unwrap();
    let before = source.read();
    let ran = beside(
        cpus,
        || {
            // SAFETY: takes no argument and touches nothing.
            unsafe { libc::getppid() };
        },
        || {
            for value in 0..DISCARDS {
                region.word(0, 1).store(value, Relaxed);
                region.discard(1).unwrap();
            }
        },
    );
    if !ran || !is_ours {
        return;
    }
    let after = source.read();
    let skipped = grown("deferring_skipped", &before, &after);
    let sent = grown("ipis_sent", &before, &after);
    println!("t_defer: {DISCARDS} discards passed {skipped} CPUs by and interrupted {sent}");
    assert_eq!(
        skipped > 0,
        defers,
        "who is in the kernel is passed by, if the policy says so"
    );
    assert!(
        skipped + sent >= DISCARDS * 9 / 10,
        "everybody else is interrupted"
    );
}

/// A thread looks at pages right after calls, and has calls look at them.
fn nobody_uses_what_has_passed_by(cpus: &[usize], _: bool) {
    const PAGES: usize = 4;
    let region = Region::new(PAGES).unwrap();
    let published = AtomicU64::new(0);
    let (reader, writer) = std::io::pipe().unwrap();
    let look = || {
        for page in 0..PAGES {
            let least = published.load(Acquire);
            // SAFETY: takes no argument and touches nothing.
            unsafe { libc::getppid() };
            let seen = region.word(page, 3).load(Acquire);
            assert!(
                seen >= least || seen == 0,
                "page {page}: {seen} after {least}"
            );
        }
        let least = published.load(Acquire);
        let word = region.word(0, 3).as_ptr().cast::<u8>();
        // SAFETY: a word of the region, which others change; the kernel reads it as it is.
        let written =
            unsafe { libc::write(std::os::fd::AsRawFd::as_raw_fd(&writer), word.cast(), 8) };
        assert_eq!(written, 8);
        let mut bytes = [0; 8];
        (&reader).read_exact(&mut bytes).unwrap();
        let seen = u64::from_ne_bytes(bytes);
        assert!(
            seen >= least || seen == 0,
            "a call saw {seen} after {least}"
        );
    };
    beside(cpus, look, || {
        for value in 1..=VALUES {
            region.discard(PAGES).unwrap();
            (0..PAGES).for_each(|page| region.word(page, 3).store(value, Release));
            published.store(value, Release);
        }
    });
    (&writer).flush().unwrap();
}

fn main() -> ExitCode {
    machine::prepare();
    let cpus = machine::allowed_cpus().unwrap();
    let switch = PolicySwitch::of_this_kernel();
    type Test = fn(&[usize], bool);
    let tests: &[(&str, Test)] = &[
        (
            "calls_in_progress_are_left_alone",
            calls_in_progress_are_left_alone,
        ),
        (
            "nobody_uses_what_has_passed_by",
            nobody_uses_what_has_passed_by,
        ),
    ];
    let policies = ["best", "best+defer"].map(str::to_owned);
    for policy in switch.resolve(&policies).unwrap() {
        switch.select(&policy).unwrap();
        for (name, test) in tests {
            test(&cpus, policy.ends_with(DEFERS));
            println!("t_defer: {policy}: {name} ok");
        }
    }
    println!("t_defer: OK");
    ExitCode::SUCCESS
}
