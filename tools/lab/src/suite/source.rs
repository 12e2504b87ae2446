//! Checks that need no machine: format, lints, unit tests, models.

use std::process::Command;
use std::time::Duration;

use super::tally::{Counts, Tally};
use crate::cargo::{self, BUILD_DEADLINE};
use crate::cli::Test;
use crate::doctor::answer;
use crate::failure::{Doing, Failure, Outcome};
use crate::machine::Child;
use crate::place;

const KERNEL: [&str; 4] = ["-p", "shootdown-kernel", "--target", "x86_64-unknown-none"];
const LEFT_OUT: &str = "left out by --fast";
/// The engine's unsafe code under the interpreter is slow; on two cores it takes minutes.
const MIRI_DEADLINE: Duration = Duration::from_secs(600);

/// Runs them all.
pub fn check(test: &Test, tally: &mut Tally) {
    tally.check("source: formatted", || {
        quiet(cargo::command(&[
            "fmt", "--all", "--check", "--", "--color", "never",
        ]))
    });
    tally.check("source: clippy, host crates", || clippy(&[]));
    tally.check("source: clippy, kernel", || clippy(&KERNEL));
    tally.count("source: cargo test", || {
        tests(
            cargo::command(&["test", "--quiet", "--no-fail-fast"]),
            BUILD_DEADLINE,
        )
    });
    if test.fast {
        for name in [
            "source: clippy, breakable kernel",
            "source: documentation",
            "source: loom models",
            "source: licences",
            "source: miri",
        ] {
            tally.skip(name, LEFT_OUT);
        }
        return;
    }
    tally.check("source: clippy, breakable kernel", || {
        clippy(&[&KERNEL[..], &["--features", "breaks"]].concat())
    });
    tally.check("source: documentation", documentation);
    tally.count("source: loom models", || tests(loom(), BUILD_DEADLINE));
    optional(
        tally,
        "source: licences",
        cargo::command(&["deny", "--version"]),
        |tally, name| {
            tally.check(name, || {
                quiet(cargo::command(&[
                    "deny",
                    "--offline",
                    "check",
                    "licenses",
                    "bans",
                    "sources",
                ]))
            });
        },
    );
    optional(
        tally,
        "source: miri",
        cargo::command(&["+nightly", "miri", "--version"]),
        |tally, name| {
            let command = cargo::command(&[
                "+nightly",
                "miri",
                "test",
                "--quiet",
                "-p",
                "shootdown",
                "--lib",
            ]);
            tally.count(name, || tests(command, MIRI_DEADLINE));
        },
    );
}

/// Runs a check only where its tool is present.
fn optional(tally: &mut Tally, name: &str, probe: Command, run: impl FnOnce(&mut Tally, &str)) {
    match answer(probe) {
        Some(_) => run(tally, name),
        None => tally.skip(
            name,
            "its tool is not installed here; `./lab doctor` says how to get it",
        ),
    }
}

fn clippy(which: &[&str]) -> Outcome<String> {
    let mut arguments = vec!["clippy", "--quiet"];
    if which.is_empty() {
        arguments.push("--all-targets");
    }
    arguments.extend(which);
    arguments.extend(["--", "-D", "warnings"]);
    quiet(cargo::command(&arguments))
}

fn documentation() -> Outcome<String> {
    let mut command = cargo::command(&["doc", "--quiet", "--no-deps", "--document-private-items"]);
    command.env("RUSTDOCFLAGS", "-D warnings");
    quiet(command)
}

/// The models build in their own directory: their flag would rebuild everything else.
fn loom() -> Command {
    let mut command = cargo::command(&[
        "test",
        "--quiet",
        "--release",
        "-p",
        "shootdown",
        "--lib",
        "--test",
        "loom_*",
    ]);
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| place::root().join("target"), Into::into);
    command
        .env("RUSTFLAGS", "--cfg loom")
        .env("CARGO_TARGET_DIR", target.join("loom"));
    command
}

/// A command that passes by exiting with 0.
fn quiet(mut command: Command) -> Outcome<String> {
    let child = Child::run(&mut command, BUILD_DEADLINE, &mut |_| ()).doing("start cargo")?;
    if child.status.is_some_and(|status| status.success()) {
        return Ok(String::new());
    }
    Err(Failure::work(format!(
        "{}\n{}",
        reason(&child),
        cargo::tail(&format!("{}{}", child.output, child.errors))
    )))
}

/// A test runner: counts what it counted.
fn tests(mut command: Command, deadline: Duration) -> Outcome<(Counts, String)> {
    let child = Child::run(&mut command, deadline, &mut |_| ()).doing("start cargo")?;
    let evidence = cargo::tail(&format!("{}\n{}", child.errors, child.output));
    let counts = sum_results(&child.output);
    let has_passed = child.status.is_some_and(|status| status.success());
    if (!has_passed && counts.failed == 0) || counts.passed + counts.failed == 0 {
        return Err(Failure::work(format!(
            "{}, {} tests counted\n{evidence}",
            reason(&child),
            counts.passed
        )));
    }
    Ok((counts, evidence))
}

fn reason(child: &Child) -> String {
    match (child.stopped, child.status) {
        (Some(_), _) => "ended at its deadline".into(),
        (None, Some(status)) => status.to_string(),
        (None, None) => "ended".into(),
    }
}

/// Adds up the result lines of all test programs.
fn sum_results(output: &str) -> Counts {
    let mut counts = Counts::default();
    for line in output
        .lines()
        .filter(|line| line.starts_with("test result: "))
    {
        let number = |word: &str| -> u64 {
            let (before, _) = line.split_once(word).unwrap_or_default();
            before
                .rsplit([' ', '.'])
                .find_map(|text| text.parse().ok())
                .unwrap_or(0)
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
