//! Checks that need no machine: format, lints, unit tests, models.

use std::process::Command;
use std::thread::JoinHandle;
use std::time::Duration;

use shootdown_sim::fuzz::Campaign;

use super::packages;
use super::tally::{Counts, Tally};
use crate::cargo::{self, BUILD_DEADLINE};
use crate::cli::Test;
use crate::failure::{Doing, Failure, Outcome};
use crate::figures;
use crate::machine::{Child, answer};
use crate::place;
use crate::sim;

const KERNEL: &str = "-p shootdown-kernel --target x86_64-unknown-none";
/// What is tested as `cargo test` has it.
const UNOPTIMISED: &str = "--workspace --exclude shootdown-kernel --exclude shootdown-sim --exclude lab --features shootdown/sim";
/// Without the programs of `user/`, in which there are no tests: each would be built once more. And without the engine's test program
/// `every`, which has those of the others once more.
const WITH_TESTS: &str = "--lib --test [!e]* --test e[!v]*";
/// What this process was built from: it need not be built twice. Without the examples, which clippy looks at.
const OPTIMISED: &str = "--release -p shootdown-sim -p lab --tests";
/// The test programs that go through the engine's unsafe code; the interpreter is slow.
const MIRI: &str = "+nightly miri test --quiet -p shootdown --test call --test data --test preempt --test threads --test tlb";
/// Those that others use.
const LIBRARIES: &str = " -p shootdown -p shootdown-x86 -p shootdown-riscv -p shootdown-arm64 -p shootdown-loongarch -p shootdown-torture -p shootdown-c";
const LEFT_OUT: &str = "left out by --fast";
const NO_TOOL: &str = "its tool is not installed here; `./lab doctor` says how to get it";
/// Two minutes alone, longer beside compilers.
const MIRI_DEADLINE: Duration = Duration::from_secs(2400);

/// The name of the check that runs beside the others.
const MIRI_CHECK: &str = "source: miri, beside the others";

/// A check that runs beside the others, until its end is waited for.
pub type Aside = JoinHandle<Outcome<(Counts, String)>>;

/// Starts the check that takes longest and uses one processor only, where its tool is installed. It builds in a directory of its own, so
/// it can run while the others do.
pub fn start_miri(test: &Test, tally: &mut Tally) -> Option<Aside> {
    let reason = match tally.is_wanted(MIRI_CHECK) {
        false => return None,
        true if test.fast => LEFT_OUT,
        true if answer(&mut cargo::command("+nightly miri --version")).is_none() => NO_TOOL,
        true => return Some(std::thread::spawn(|| tests(miri(), MIRI_DEADLINE))),
    };
    tally.skip(MIRI_CHECK, reason);
    None
}

/// Waits for it and counts its tests.
pub fn finish_miri(running: Option<Aside>, tally: &mut Tally) {
    if let Some(running) = running {
        let panicked = |_| Err(Failure::work("the lab panicked beside it"));
        tally.count(MIRI_CHECK, || running.join().unwrap_or_else(panicked));
    }
}

/// Runs them all but Miri: what is built without optimisation, and beside it what is built with it, for these wait for no lock of each other.
pub fn check(test: &Test, tally: &mut Tally) {
    tally.run_beside(
        "source: what is built optimised",
        |aside| check_optimised(test, aside),
        |tally| check_unoptimised(test, tally),
    );
}

fn check_unoptimised(test: &Test, tally: &mut Tally) {
    tally.check("source: formatted", || {
        quiet(cargo::command("fmt --all --check -- --color never"))
    });
    tally.check("source: tables of the documents as recorded", || {
        figures::check_tables().map(|tables| format!("{tables} tables"))
    });
    tally.check("source: clippy, host crates", || clippy("--all-targets"));
    tally.check("source: clippy, kernel", || clippy(KERNEL));
    for (name, which) in [
        ("source: cargo test", WITH_TESTS),
        ("source: cargo test, examples in documents", "--doc"),
    ] {
        tally.count(name, || cargo_test(&format!("{UNOPTIMISED} {which}")));
    }
    slow(test, tally, "source: clippy, breakable kernel", || {
        clippy(&format!("{KERNEL} --features breaks,selftest"))
    });
    slow(test, tally, "source: clippy, isolated kernel", || {
        clippy(&format!("{KERNEL} --features isolation"))?;
        clippy(&format!("{KERNEL} --features breaks,selftest,isolation"))
    });
    if !test.fast {
        tally.count("source: cargo test, memory with isolation", || {
            cargo_test("-p shootdown-kernel-tests --features isolation --tests")
        });
    }
    slow(test, tally, "source: documentation", || {
        documentation(test.soak)
    });
    let book = "source: the book";
    match answer(Command::new("mdbook").arg("--version")) {
        None => tally.skip(book, NO_TOOL),
        Some(_) => slow(test, tally, book, build_book),
    }
    let licences = "source: licences";
    match answer(&mut cargo::command("deny --version")) {
        None => tally.skip(licences, NO_TOOL),
        Some(_) => slow(test, tally, licences, || {
            let words = "deny --offline check licenses bans sources";
            quiet(cargo::command(words))
        }),
    }
}

fn check_optimised(test: &Test, tally: &mut Tally) {
    tally.count("source: cargo test, simulator and lab", || {
        cargo_test(OPTIMISED)
    });
    let runs = if test.fast { 2_000 } else { 10_000 };
    let name = format!("simulator: {runs} schedules at fixed seeds");
    tally.check(&name, || schedules(runs));
    packages::check(!test.fast, tally);
    slow(
        test,
        tally,
        "source: bytes, instructions and stack of a call",
        || {
            let run = "run --quiet --release -p shootdown-hosted --example footprint -- --check";
            quiet(cargo::command(run))
        },
    );
    let models = "source: loom models";
    match test.fast {
        true => tally.skip(models, LEFT_OUT),
        false => tally.count(models, || tests(loom(test.soak), BUILD_DEADLINE)),
    }
}

/// A check that `--fast` leaves out.
fn slow(test: &Test, tally: &mut Tally, name: &str, check: impl FnOnce() -> Outcome<String>) {
    match test.fast {
        true => tally.skip(name, LEFT_OUT),
        false => tally.check(name, check),
    }
}

fn cargo_test(which: &str) -> Outcome<(Counts, String)> {
    let command = cargo::command(&format!("test --quiet --no-fail-fast {which}"));
    tests(command, BUILD_DEADLINE)
}

/// The engine against the adversary, with the same schedules every time.
fn schedules(runs: u64) -> Outcome<String> {
    let report = sim::campaign(Campaign {
        runs,
        ..Campaign::default()
    });
    let totals = &report.progress.totals;
    let missing = totals.sightings.missing();
    match report.failure {
        None if missing.is_empty() => Ok(format!("{} events", totals.events)),
        None => Err(Failure::work(format!(
            "no schedule came upon {missing:?}: the fuzzer's themes must bring it about again"
        ))),
        Some((case, failed)) => {
            let failure = failed.failure.map(|failure| failure.to_string());
            Err(Failure::work(format!(
                "{}; replay with ./lab sim replay {case}",
                failure.unwrap_or_default()
            )))
        }
    }
}

fn clippy(which: &str) -> Outcome<String> {
    quiet(cargo::command(&format!(
        "clippy --quiet {which} -- -D warnings"
    )))
}

/// Of the libraries that others use; of everything where there is time.
fn documentation(of_everything: bool) -> Outcome<String> {
    let which = if of_everything { "" } else { LIBRARIES };
    let words = format!("doc --quiet --no-deps --document-private-items{which}");
    let mut command = cargo::command(&words);
    command.env("RUSTDOCFLAGS", "-D warnings");
    quiet(command)
}

/// The models build in their own directory: their flag would rebuild everything else.
fn loom(with_slow: bool) -> Command {
    let mut command =
        cargo::command("test --quiet --release -p shootdown -p shootdown-x86 --lib --test loom_*");
    if with_slow {
        command.args(["--", "--include-ignored"]);
    }
    command
        .env("RUSTFLAGS", "--cfg loom")
        .env("CARGO_TARGET_DIR", place::target().join("loom"));
    command
}

/// The test machines live to the end of the process, and find their engine through its address.
fn miri() -> Command {
    let mut command = cargo::command(MIRI);
    let flags = "-Zmiri-ignore-leaks -Zmiri-permissive-provenance";
    command.env("MIRIFLAGS", flags);
    command
}

/// A command that passes by exiting with 0.
pub(super) fn quiet(mut command: Command) -> Outcome<String> {
    let what = format!("start {}", command.get_program().to_string_lossy());
    let child = Child::run(&mut command, BUILD_DEADLINE, &mut |_| ()).doing(what)?;
    if child.has_succeeded() {
        return Ok(String::new());
    }
    Err(Failure::work(format!(
        "{}\n{}",
        reason(&child),
        cargo::tail(&format!("{}{}", child.output, child.errors))
    )))
}

/// The documents as a book, in `target/book`; what it warns of is wrong.
fn build_book() -> Outcome<String> {
    let mut mdbook = Command::new("mdbook");
    let child = Child::succeed(
        mdbook.arg("build").arg(place::root().join("docs")),
        BUILD_DEADLINE,
    )?;
    match child.errors.contains("WARN") {
        true => Err(Failure::work(child.errors)),
        false => Ok(String::new()),
    }
}

/// A test runner: counts what it counted.
fn tests(mut command: Command, deadline: Duration) -> Outcome<(Counts, String)> {
    let child = Child::run(&mut command, deadline, &mut |_| ()).doing("start cargo")?;
    let counts = sum_results(&child.output);
    let Counts { passed, failed, .. } = counts;
    if child.has_succeeded() && failed == 0 && passed > 0 {
        return Ok((counts, format!("{passed} tests")));
    }
    let Child { errors, output, .. } = &child;
    let evidence = cargo::tail(&format!("{errors}\n{output}\n{}", failed_tests(output)));
    match failed {
        0 => Err(Failure::work(format!(
            "{}, {passed} tests counted\n{evidence}",
            reason(&child)
        ))),
        _ => Ok((counts, evidence)),
    }
}

fn reason(child: &Child) -> String {
    match (child.stopped, child.status) {
        (Some(_), _) => "ended at its deadline".into(),
        (None, Some(status)) => status.to_string(),
        (None, None) => "ended".into(),
    }
}

/// The names of those that failed, a line each: the end of the output may be that of other programs.
fn failed_tests(output: &str) -> String {
    let name = |line: &str| {
        line.strip_prefix("---- ")?
            .strip_suffix(" stdout ----")
            .map(str::to_owned)
    };
    let names = output.lines().filter_map(name);
    names.map(|name| format!("failed: {name}\n")).collect()
}

/// Adds up the result lines of all test programs.
fn sum_results(output: &str) -> Counts {
    let mut counts = Counts::default();
    let is_result = |line: &&str| line.starts_with("test result: ");
    for line in output.lines().filter(is_result) {
        let number = |word: &str| -> u64 {
            let (before, _) = line.split_once(word).unwrap_or_default();
            let mut words = before.rsplit([' ', '.']);
            words.find_map(|text| text.parse().ok()).unwrap_or(0)
        };
        counts.passed += number(" passed");
        counts.failed += number(" failed");
        counts.skipped += number(" ignored");
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_that_failed_are_named() {
        let output = "test result: FAILED. 1 passed\n\n---- a::b stdout ----\n\nrunning 2 tests\n";
        assert_eq!(failed_tests(output), "failed: a::b\n");
        assert_eq!(failed_tests("running 2 tests\n.."), "");
    }

    #[test]
    fn result_lines_of_all_test_programs_add_up() {
        let output = "running 3 tests\n...\ntest result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out\n\
                      test result: FAILED. 10 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out\n";
        assert_eq!(
            sum_results(output),
            Counts {
                passed: 13,
                failed: 2,
                skipped: 1
            }
        );
        assert_eq!(sum_results("no such line"), Counts::default());
    }

    #[test]
    fn a_runner_without_tests_does_not_pass() {
        let mut command = Command::new("true");
        command.arg("x");
        assert!(tests(command, Duration::from_secs(9)).is_err());
    }
}
