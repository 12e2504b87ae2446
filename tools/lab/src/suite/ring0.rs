//! Checks of the kernel's lowest layer on the running machine: its own self-tests, and that what must not
//! happen ends in a panic that says where.

use std::time::Duration;

use super::fleet::{Fleet, Start};
use super::tally::Tally;
use crate::cli::{MAX_CPUS, Test};
use crate::failure::Outcome;
use crate::machine::{End, Finished};

/// A program to go on with; its own checks are elsewhere.
const PROGRAM: &str = "hello";

/// The CPU that is not the first of two does it.
const ELSEWHERE: &str = "overflow-elsewhere";
/// Each of several CPUs does it.
const EVERYWHERE: &str = "everywhere";
/// The other CPU hears no NMI.
const DEAF: &str = "deaf";
/// What the kernel is told to do, what it has to say first, and a function of its backtrace.
const FATAL: [(&str, &str, &str); 13] = [
    ("panic", "asked for (", "selftest::run"),
    ("write-text", "#PF", "selftest::write_text"),
    ("write-rodata", "#PF", "selftest::write_rodata"),
    ("run-data", "#PF", "selftest::run"),
    ("null", "#PF", "selftest::read_null"),
    ("overflow", "#DF", "selftest::overflow"),
    (ELSEWHERE, "#DF", "selftest::overflow"),
    ("breakpoint", "#BP", "selftest::breakpoint"),
    ("other-cpu", "asked for on cpu", "traps::dispatch::trap"),
    (EVERYWHERE, "asked for on cpu", "panic_fmt"),
    ("nmi", "asked for in an NMI on cpu1", "trap_paranoid"),
    (DEAF, "asked for (", "stop::panic_beside_the_deaf"),
    ("guest", "asked for on cpu1", "traps::dispatch::trap"),
];

/// Programs beside which CPUs in user mode and guests are quiet, their arguments, and the CPUs: what runs long, every way into the kernel, and guests.
const BESIDE: [(&str, &str, usize); 4] = [
    ("tlbtorture", "--seconds=6 --threads=4 --policies=best", 2),
    ("tlbtorture", "--seconds=6 --threads=4 --policies=best", 4),
    ("t_entry", "", 2),
    ("t_kvm_run", "", 2),
];

/// Runs them all.
pub fn check(test: &Test, fleet: &Fleet, tally: &mut Tally) {
    let machines: &[usize] = match (test.fast, test.soak) {
        (true, _) => &[2],
        (_, true) => &[1, 2, 4, 16, MAX_CPUS as usize],
        _ => &[1, 2, 4, 16],
    };
    for &cpus in machines {
        tally.check(&format!("kernel: self-tests on {cpus} CPUs"), || {
            let finished = boot(fleet, "selftest=all", cpus)?.expect_success(PROGRAM)?;
            expect_stall(&finished, cpus)?;
            expect_backtraces(&finished, cpus)
        });
    }
    for (program, arguments, cpus) in BESIDE {
        tally.check(&format!("kernel: quiet CPUs, {program} on {cpus}"), || {
            let finished = boot_beside(fleet, "quiet", (program, arguments), cpus)?;
            let finished = finished.expect_success(program)?;
            let said = left_alone(&finished.console);
            match said.is_none_or(|said| said.contains(" alone 0 times")) && !arguments.is_empty() {
                true => Err(finished.unexpected("CPUs that were left alone")),
                false => Ok(said.unwrap_or_default().to_owned()),
            }
        });
    }
    tally.check("kernel: quiet CPUs, looked at too early", || {
        let (program, arguments, cpus) = BESIDE[0];
        let finished = boot_beside(fleet, "quiet-early", (program, arguments), cpus)?;
        match &finished.end {
            End::Panicked(line) if line.contains("is shown") => Ok(String::new()),
            _ => Err(finished.unexpected("a panic: an old page")),
        }
    });
    for (name, headline, function) in FATAL {
        tally.check(&format!("kernel: panic by {name} says where"), || {
            panics(fleet, name, headline, function)
        });
    }
}

/// The watchdog's line about the function that is stuck on purpose. A busy host makes it say others before.
fn names_the_stuck(line: &str) -> bool {
    let running = line.rsplit_once("which is running ");
    line.starts_with("stall: cpu0 has waited ")
        && running.is_some_and(|(_, it)| it.contains("a_stuck_function_is_reported"))
}

/// Where there are two CPUs, one of them was stuck on purpose, and the watchdog has said in what.
fn expect_stall(finished: &Finished, cpus: usize) -> Outcome<String> {
    match finished.console.lines().any(names_the_stuck) == (cpus > 1) {
        true => Ok(String::new()),
        false => Err(finished.unexpected("a report of the watchdog with two CPUs or more")),
    }
}

/// The stuck CPU's backtrace follows the watchdog's line and names the function; later all CPUs tell theirs, in order.
fn expect_backtraces(finished: &Finished, cpus: usize) -> Outcome<String> {
    let mut lines = finished.console.lines();
    if cpus > 1 {
        let is_head = |line: &str| line.starts_with("backtrace of cpu");
        let follows = lines.any(names_the_stuck) && lines.next().is_some_and(is_head);
        let mut frames = lines.by_ref().skip_while(|line| !line.starts_with("  #0"));
        let mut frames = frames.by_ref().take_while(|line| line.starts_with("  #"));
        if !follows || !frames.any(|line| line.contains("selftest::get_stuck")) {
            let what = "the backtrace of the stuck CPU behind the report";
            return Err(finished.unexpected(what));
        }
    }
    let told = lines.skip_while(|line| !line.contains("all CPUs tell their backtraces"));
    let told: Vec<&str> = told
        .filter(|line| line.starts_with("backtrace of "))
        .collect();
    let is_in_handler = |line: &&&str| line.ends_with(": in the kernel, interrupts off");
    let in_handler = told.iter().filter(is_in_handler);
    let is_of = |(cpu, line): (usize, &&str)| line.starts_with(&format!("backtrace of cpu{cpu}: "));
    let in_order = told.iter().enumerate().all(is_of);
    match told.len() == cpus && in_order && in_handler.count() + 1 >= cpus {
        true => Ok(String::new()),
        false => Err(finished.unexpected("a backtrace of every CPU, in order")),
    }
}

fn boot_beside(
    fleet: &Fleet,
    selftest: &str,
    (program, arguments): (&str, &str),
    cpus: usize,
) -> Outcome<Finished> {
    let mut start = Start::lasting(6, cpus);
    let options = format!("selftest={selftest}");
    (start.options, start.arguments) = (&options, arguments);
    fleet.boot(&fleet.breakable, program, start)
}

/// What the kernel says when it has flushed often enough. A short program ends before.
fn left_alone(console: &str) -> Option<&str> {
    let (_, behind) = console.split_once("selftest: quiet passed: ")?;
    behind.lines().next()
}

fn boot(fleet: &Fleet, options: &str, cpus: usize) -> Outcome<Finished> {
    let mut start = Start::on(cpus);
    start.options = options;
    // All others spin on the host's few cores while one after the other tells its backtrace.
    start.deadline += Duration::from_secs(5) * cpus as u32;
    fleet.boot(&fleet.breakable, PROGRAM, start)
}

fn panics(fleet: &Fleet, name: &str, headline: &str, function: &str) -> Outcome<String> {
    let cpus = if name == EVERYWHERE { 4 } else { 2 };
    let finished = boot(fleet, &format!("selftest={name}"), cpus)?;
    let said = match &finished.end {
        End::Panicked(line) => line.clone(),
        _ => return Err(finished.unexpected("a panic")),
    };
    if !said.contains(headline) {
        return Err(finished.unexpected(format!("a panic with {headline:?}")));
    }
    let is_frame = |line: &str| line.trim_start().starts_with('#') && line.contains(function);
    let stack = "a kernel stack of cpu1 overflowed";
    if name == ELSEWHERE && !finished.console.contains(stack) {
        return Err(finished.unexpected(stack));
    }
    if !finished.console.lines().any(is_frame) {
        let what = format!("a backtrace through {function}");
        return Err(finished.unexpected(what));
    }
    expect_stopped(&finished, cpus, name == DEAF)
}

/// One CPU has panicked, and has said of each of the others that it has stopped, or, where those are `deaf`, that it has not.
fn expect_stopped(finished: &Finished, cpus: usize, deaf: bool) -> Outcome<String> {
    let lines = || finished.console.lines().map(str::trim);
    let panics = lines().filter_map(|line| line.strip_prefix("KERNEL PANIC "));
    let panics: Vec<&str> = panics.collect();
    let [first] = panics[..] else {
        return Err(finished.unexpected("a panic of one CPU"));
    };
    let others = (0..cpus).map(|cpu| format!("cpu{cpu}"));
    let others: Vec<String> = others.filter(|cpu| !first.starts_with(cpu)).collect();
    let others = others.join(" ");
    let wanted = match deaf {
        true => format!("not stopped in 10 s: {others}"),
        false => format!("stopped: {others}"),
    };
    let told: Vec<&str> = lines().filter(|line| line.contains("stopped")).collect();
    match told == [wanted.as_str()] {
        true => Ok(String::new()),
        false => Err(finished.unexpected(format!("the line {wanted:?}"))),
    }
}
