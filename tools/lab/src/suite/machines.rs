//! Checks of the kernel as a whole: programs that behave, programs that do not, and files that are none.

use std::time::Duration;

use super::fleet::{Fleet, Start};
use super::tally::Tally;
use crate::cli::{MAX_CPUS, Test};
use crate::failure::{Failure, Outcome};
use crate::machine::{End, Finished, Kernel};

/// Linux takes five seconds to boot, and is slower at everything after that.
const LINUX_DEADLINE: Duration = Duration::from_secs(180);
/// So much memory that a part of it lies above the hole that devices have below 4 GiB.
const HOLED_MIB: u32 = 5 << 10;
/// The most CPUs that the kernel uses.
const MOST: usize = MAX_CPUS as usize;
/// What a boot on four translated CPUs should take; reported, not asserted: hosts differ.
const BOOT_GOAL_S: f64 = 1.5;

/// How a program of `user/` has to end: in one of these ways; what it says itself, and what the reference kernel says of it.
type Expected = (Vec<End>, &'static str, &'static str);

/// Runs them all on the reference kernel.
pub fn check(test: &Test, fleet: &Fleet, tally: &mut Tally) {
    let machines: &[usize] = match (test.fast, test.soak) {
        (true, _) => &[2],
        (_, true) => &[1, 2, 4],
        _ => &[1, 4],
    };
    for &cpus in machines {
        for name in fleet.programs().filter(|name| expected(name).is_some()) {
            let label = format!("kernel: {name} on {cpus} CPUs");
            tally.check(&label, || fixture(fleet, &fleet.kernel, name, cpus));
        }
    }
    // More than a flat logical destination of an xAPIC reaches, and as many as there may be.
    for cpus in [16, MOST] {
        let label = format!("kernel: hello on {cpus} CPUs");
        tally.check(&label, || fixture(fleet, &fleet.kernel, "hello", cpus));
    }
    let label = format!("kernel: hello on {} CPUs uses {MOST} and says so", MOST + 1);
    tally.check(&label, || one_too_many(fleet));
    tally.check("kernel: hello in memory with a hole", || {
        let mut start = Start::on(2);
        start.memory_mib = HOLED_MIB;
        let finished = fleet.boot(&fleet.kernel, "hello", start)?;
        finished.expect_success("hello").map(|_| String::new())
    });
    tally.check("kernel: boot time on 4 CPUs", || boot_time(fleet));
    for (name, image) in broken_images(fleet) {
        let label = format!("kernel: {name} as first program ends with a message");
        tally.check(&label, || refused(fleet, &image));
    }
}

/// Runs them on Linux: what is expected of the reference kernel is what Linux does.
pub fn control(test: &Test, fleet: &Fleet, tally: &mut Tally) {
    if !test.soak {
        tally.skip(
            "linux: programs end there as here",
            "left out without --soak",
        );
    }
    let wanted = |name: &&str| expected(name).is_some() && (test.soak || *name == "hello");
    for name in fleet.programs().filter(wanted) {
        let label = format!("linux: {name} ends there as here");
        fleet.check_on_linux(tally, &label, |linux| fixture(fleet, linux, name, 2));
    }
}

/// How each fixture ends; the measuring programs have checks of their own.
fn expected(name: &str) -> Option<Expected> {
    let dies = |signal: &str| End::Signalled(signal.to_owned());
    Some(match name {
        "hello" => (vec![End::Exited(0)], "added up to", ""),
        "badcalls" => (vec![End::Exited(0)], "badcalls: OK", ""),
        "wild" => (vec![dies("SIGSEGV")], "wild: reading", "killed by SIGSEGV"),
        "illegal" => (
            vec![dies("SIGILL")],
            "illegal: executing",
            "killed by SIGILL",
        ),
        "overflow" => {
            // Where Rust's own handler knows the guard page, it says so and aborts.
            let ends = vec![dies("SIGSEGV"), dies("SIGABRT")];
            (ends, "overflow: descending", "killed by SIG")
        }
        name if name.starts_with("t_") => (vec![End::Exited(0)], "", ""),
        _ => return None,
    })
}

fn fixture(fleet: &Fleet, kernel: &Kernel, name: &str, cpus: usize) -> Outcome<String> {
    let Some((ends, words, verdict)) = expected(name) else {
        return Err(Failure::work("nothing is expected of this program"));
    };
    let is_ours = matches!(kernel, Kernel::Shootdown(_));
    let mut start = Start::on(cpus);
    if !is_ours {
        start.deadline = LINUX_DEADLINE;
    }
    let finished = fleet.boot(kernel, name, start)?;
    if !ends.contains(&finished.end) {
        return Err(finished.unexpected(&ends[0]));
    }
    // Linux prints its registers into the last words of a first process that a signal kills.
    if is_ours || matches!(finished.end, End::Exited(_)) {
        must_say(&finished, words)?;
    }
    if is_ours {
        must_say(&finished, verdict)?;
    }
    Ok(String::new())
}

fn must_say(finished: &Finished, words: &str) -> Outcome<()> {
    match finished.console.contains(words) {
        true => Ok(()),
        false => Err(Failure::work(format!(
            "the console does not say {words:?}; {}",
            finished.account()
        ))),
    }
}

/// The first line that passes, trimmed.
fn line_where(finished: &Finished, what: &str, is_it: impl Fn(&str) -> bool) -> Outcome<String> {
    let line = finished.console.lines().find(|line| is_it(line));
    let missing = || Failure::work(format!("no line {what}; {}", finished.account()));
    line.map(|line| line.trim().to_owned()).ok_or_else(missing)
}

fn hello_on(fleet: &Fleet, cpus: usize) -> Outcome<Finished> {
    let finished = fleet.boot(&fleet.kernel, "hello", Start::on(cpus))?;
    finished.expect_success("hello")
}

fn one_too_many(fleet: &Fleet) -> Outcome<String> {
    let warning = format!(
        "{} CPUs in this machine; the kernel uses the first {MOST}",
        MOST + 1
    );
    let finished = hello_on(fleet, MOST + 1)?;
    must_say(&finished, &format!("hello: {MOST} CPUs"))?;
    let what = "says that there are too many";
    line_where(&finished, what, |line| line.contains(&warning))
}

fn boot_time(fleet: &Fleet) -> Outcome<String> {
    const WORDS: &str = "first user instruction at ";
    let finished = hello_on(fleet, 4)?;
    let what = "says when the first user instruction ran";
    let line = line_where(&finished, what, |line| line.contains(WORDS))?;
    let seconds = line.split_once(WORDS);
    let seconds = seconds.and_then(|(_, rest)| rest.split_whitespace().next()?.parse::<f64>().ok());
    let seconds = seconds.ok_or_else(|| Failure::work(format!("no time in {line:?}")))?;
    let is_within = seconds < BOOT_GOAL_S;
    let verdict = if is_within { "within" } else { "beyond" };
    let whole = finished.elapsed.as_secs_f64();
    Ok(format!(
        "first user instruction after {seconds:.3} s, {verdict} the goal of {BOOT_GOAL_S} s; \
         emulator start to end {whole:.1} s"
    ))
}

/// Programs that `lab run` would refuse: here the kernel itself must.
fn broken_images(fleet: &Fleet) -> Vec<(&'static str, Vec<u8>)> {
    const MACHINE_AT: usize = 18;
    let whole = fleet.image("hello").unwrap_or_default();
    let mut foreign = whole.to_vec();
    if let Some(machine) = foreign.get_mut(MACHINE_AT) {
        *machine = 183;
    }
    vec![
        ("text", b"#!/bin/sh\necho no\n".to_vec()),
        ("an empty file", Vec::new()),
        (
            "the first page of a program",
            whole[..whole.len().min(4096)].to_vec(),
        ),
        ("a program for another processor", foreign),
    ]
}

fn refused(fleet: &Fleet, image: &[u8]) -> Outcome<String> {
    let finished = fleet.boot_image(&fleet.kernel, ("broken", image), Start::on(2))?;
    if finished.end != End::BootFailed {
        return Err(finished.unexpected(End::BootFailed));
    }
    line_where(&finished, "names the program", |line| {
        line.contains("broken") && !line.contains("init=/bin/broken")
    })
}
