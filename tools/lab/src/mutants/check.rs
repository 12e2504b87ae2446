//! The checks that may notice a mutant.

use std::fmt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use clap::ValueEnum;
use serde::Deserialize;

use super::booted;
use super::scratch::Copy;
use crate::cargo::{self, Flavour};
use crate::failure::{Doing, Failure, Outcome};
use crate::machine::Child;
use crate::place;

/// No check takes longer on the unchanged tree, even on one slow core.
pub const LONGEST: Duration = Duration::from_secs(900);

/// Files here are modules of the simulator's test program `all`.
const SIM_MODULES: &str = "crates/shootdown-sim/tests/all";

/// What is behind `fuzz` where spaces are tracked in all schedules.
const TRACKED: &str = "tracked";

/// How much fuzzing one mutant gets.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// Schedules at most.
    pub runs: u64,
    /// Where the seeds begin.
    pub seed: u64,
}

impl Default for Effort {
    fn default() -> Self {
        Self {
            runs: 40_000,
            seed: 1,
        }
    }
}

/// One check as a mutant names it: its kind, for tests a test program, and a part of a test's name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct Check {
    kind: Kind,
    program: Option<String>,
    test: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
enum Kind {
    Fuzz,
    Sim,
    Engine,
    SimEngine,
    Loom,
    X86Loom,
    X86,
    Riscv,
    Arm64,
    #[value(name = "loongarch")]
    LoongArch,
    Kernel,
    KernelIsolated,
    Hosted,
    Torture,
    User,
    Boot,
    BootIsolated,
}

impl TryFrom<String> for Check {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let mut words = text.split_whitespace().map(str::to_owned);
        let kind = Kind::from_str(&words.next().unwrap_or_default(), false);
        let check = Self {
            kind: kind.map_err(|_| format!("no such check: {text:?}"))?,
            program: words.next(),
            test: words.next(),
        };
        let is_other_fuzz = check.kind == Kind::Fuzz
            && (check.program.as_deref().is_some_and(|word| word != TRACKED)
                || check.test.is_some());
        if words.next().is_some() || is_other_fuzz {
            return Err(format!("too many words: {text:?}"));
        }
        if check.boots() && (check.program.is_none() || check.test.is_some()) {
            return Err(format!("boot takes one program: {text:?}"));
        }
        Ok(check)
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind.to_possible_value();
        f.write_str(kind.as_ref().map_or("", |kind| kind.get_name()))?;
        for word in [&self.program, &self.test].into_iter().flatten() {
            write!(f, " {word}")?;
        }
        Ok(())
    }
}

/// The programs of a check, built and not yet run. They are started directly, not by cargo: one that hangs must
/// not outlive us.
#[derive(Debug)]
pub struct Built<'a> {
    check: &'a Check,
    programs: Vec<PathBuf>,
}

impl Check {
    fn boots(&self) -> bool {
        matches!(self.kind, Kind::Boot | Kind::BootIsolated)
    }

    /// Builds what the check runs, or returns what the compiler says.
    pub fn build(&self, copy: &Copy) -> Outcome<Result<Built<'_>, String>> {
        let mut programs = Vec::new();
        for words in self.builds() {
            match cargo::executables(&mut self.cargo(copy, &words))? {
                Err(errors) => return Ok(Err(errors)),
                Ok(built) if built.is_empty() => {
                    return Err(Failure::work(format!("cargo built nothing for {self}")));
                }
                Ok(built) => programs.extend(built),
            }
        }
        Ok(Ok(Built {
            check: self,
            programs,
        }))
    }

    /// The module of `all` that is named like a program.
    fn module(&self) -> Option<&str> {
        let program = self.program.as_deref()?;
        let file = place::root()
            .join(SIM_MODULES)
            .join(format!("{program}.rs"));
        (self.kind == Kind::Sim && file.exists()).then_some(program)
    }

    fn program(&self) -> Option<&str> {
        self.module()
            .map_or(self.program.as_deref(), |_| Some("all"))
    }

    /// What is in the names of the tests that are run; without it all are.
    fn filter(&self) -> Option<String> {
        match self.module() {
            None => self.test.clone(),
            Some(module) => Some(format!("{module}::{}", self.test.as_deref().unwrap_or(""))),
        }
    }

    fn cargo(&self, copy: &Copy, words: &str) -> Command {
        let is_loom = matches!(self.kind, Kind::Loom | Kind::X86Loom);
        let target = if is_loom { "target-loom" } else { "target" };
        let mut command = cargo::command(words);
        command
            .current_dir(copy.tree())
            .env("CARGO_TARGET_DIR", copy.path.join(target))
            // One file differs from the last build, and most of the time goes into compiling it.
            .env("CARGO_INCREMENTAL", "1")
            .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1")
            .env("CARGO_PROFILE_RELEASE_DEBUG", "false")
            .env("CARGO_PROFILE_DEV_DEBUG", "false");
        if is_loom {
            command.env("RUSTFLAGS", "--cfg loom");
        }
        command
    }

    /// The arguments of cargo, once for each time that it is called.
    fn builds(&self) -> Vec<String> {
        let (package, all) = match self.kind {
            Kind::Fuzz => {
                return vec!["build --release -p shootdown-sim --example fuzz".to_owned()];
            }
            Kind::Boot | Kind::BootIsolated => {
                let program = self.program.as_deref().unwrap_or_default();
                let user = format!("{} --bin {program}", cargo::user());
                let flavour = match self.kind {
                    Kind::Boot => Flavour::Plain,
                    _ => Flavour::IsolatedBreakable,
                };
                return vec![cargo::kernel(flavour), user];
            }
            // Not the profile of tests: the library is the one that the fuzzer uses.
            Kind::Sim => ("--release -p shootdown-sim", "--tests"),
            Kind::Engine => (
                "-p shootdown",
                "--lib --test call --test reports --test sets --test tlb --test threads",
            ),
            Kind::SimEngine => ("-p shootdown --features sim", "--test stopped"),
            Kind::Loom => ("--release -p shootdown", "--lib --test loom_*"),
            Kind::X86Loom => ("--release -p shootdown-x86", "--lib"),
            Kind::X86 => ("-p shootdown-x86", "--tests"),
            Kind::Riscv => ("-p shootdown-riscv", "--tests"),
            Kind::Arm64 => ("-p shootdown-arm64", "--tests"),
            Kind::LoongArch => ("-p shootdown-loongarch", "--tests"),
            Kind::Kernel => ("-p shootdown-kernel-tests", "--tests"),
            Kind::KernelIsolated => ("-p shootdown-kernel-tests --features isolation", "--tests"),
            Kind::Hosted => ("-p shootdown-hosted", "--tests"),
            Kind::Torture => ("-p shootdown-torture", "--tests"),
            Kind::User => ("-p shootdown-user", "--lib"),
        };
        let which = match self.program() {
            None => all.to_owned(),
            Some("lib") => "--lib".to_owned(),
            Some(program) => format!("--test {program}"),
        };
        vec![format!("test --no-run {package} {which}")]
    }
}

impl Built<'_> {
    /// Runs the programs one after the other until one fails, and returns the evidence of that. One that does not end by `deadline` fails.
    pub fn run(&self, effort: Effort, deadline: Duration) -> Outcome<Option<String>> {
        if self.check.boots() {
            let [kernel, program] = &self.programs[..] else {
                return Err(Failure::work(format!("not one program for {}", self.check)));
            };
            let options = match self.check.kind {
                Kind::BootIsolated => "selftest=isolation",
                _ => "",
            };
            return booted::run(kernel, program, options, deadline);
        }
        for program in &self.programs {
            let mut command = Command::new(program);
            command.env("RUST_BACKTRACE", "0");
            if self.check.kind == Kind::Fuzz {
                let (runs, seed) = (effort.runs.to_string(), effort.seed.to_string());
                command.args(["--runs", &runs, "--seed", &seed]);
                if self.check.program.is_some() {
                    command.args(["--tracked", "true"]);
                }
            } else {
                // One at a time: the name of a test that hangs is the last one printed.
                command.arg("--test-threads=1").args(self.check.filter());
                if self.check.test.is_some() {
                    command.arg("--include-ignored");
                }
            }
            let child = Child::run(&mut command, deadline, &mut |_| ())
                .doing(format!("start {}", program.display()))?;
            if !child.has_succeeded() {
                return Ok(Some(self.evidence(&child)));
            }
            if !has_checked_something(&child.output) {
                return Err(Failure::work(format!("{} checked nothing", self.check)));
            }
        }
        Ok(None)
    }

    fn evidence(&self, child: &Child) -> String {
        let how = match (child.stopped, child.status) {
            (None, Some(status)) => status.to_string(),
            _ => "did not end".to_owned(),
        };
        let silent = format!("{how}: {}", last_line(&child.errors));
        if self.check.kind == Kind::Fuzz {
            let last = last_line(&child.output);
            let is_told = child.stopped.is_none() && last.starts_with("failed after");
            return if is_told { last.to_owned() } else { silent };
        }
        match failed_tests(&child.output) {
            tests if tests.is_empty() => silent,
            tests if child.stopped.is_some() => format!("{how}: {}", some_of(&tests)),
            tests => some_of(&tests),
        }
    }
}

/// A test program whose filter matches nothing passes, and so would a campaign without a run.
fn has_checked_something(output: &str) -> bool {
    let is_proof = |line: &str| {
        (line.starts_with("test result: ok. ") && !line.contains(" 0 passed"))
            || (line.starts_with("ok: ") && !line.starts_with("ok: 0 "))
    };
    output.lines().any(is_proof)
}

/// The tests that failed, and the one that was running when the program ended.
fn failed_tests(output: &str) -> Vec<String> {
    let failed = |line: &str| {
        let (name, result) = line.strip_prefix("test ")?.split_once(" ... ")?;
        (!["ok", "ignored"].contains(&result.trim_end())).then(|| name.to_owned())
    };
    output.lines().filter_map(failed).collect()
}

fn some_of(tests: &[String]) -> String {
    match tests {
        [first, _, ..] => format!("{first} and {} more", tests.len() - 1),
        _ => tests.join(""),
    }
}

fn last_line(text: &str) -> &str {
    text.trim_end().lines().last().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_named_by_words() {
        for text in [
            "fuzz",
            "fuzz tracked",
            "engine",
            "loom loom_tlb",
            "engine tlb a_gap",
            "sim-engine stopped",
            "boot t_kvm",
        ] {
            assert_eq!(Check::try_from(text.to_owned()).unwrap().to_string(), text);
        }
        for text in [
            "",
            "miracle",
            "fuzz hard",
            "fuzz tracked a",
            "engine a b c",
            "boot",
            "boot a b",
        ] {
            assert!(Check::try_from(text.to_owned()).is_err(), "{text}");
        }
    }

    #[test]
    fn modules_of_the_simulator_s_tests_are_named_like_programs() {
        for (text, program, filter) in [
            ("sim", None, None),
            ("sim peers", Some("all"), Some("peers::")),
            ("sim peers calls", Some("all"), Some("peers::calls")),
            ("sim stories a_cpu", Some("stories"), Some("a_cpu")),
            ("sim all a_cpu", Some("all"), Some("a_cpu")),
            ("engine tlb a_gap", Some("tlb"), Some("a_gap")),
        ] {
            let check = Check::try_from(text.to_owned()).unwrap();
            assert_eq!(check.program(), program, "{text}");
            assert_eq!(check.filter().as_deref(), filter, "{text}");
        }
    }

    #[test]
    fn failed_and_hanging_tests_are_found_in_the_output() {
        let output =
            "running 4 tests\ntest a ... ok\ntest b ... FAILED\ntest c ... ignored\ntest d ... ";
        assert_eq!(failed_tests(output), ["b", "d"]);
    }

    #[test]
    fn a_run_without_a_test_proves_nothing() {
        let none = "test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 7 filtered out";
        assert!(!has_checked_something(none));
        assert!(has_checked_something(&none.replace("ok. 0", "ok. 3")));
        assert!(
            has_checked_something("ok: 10 schedules") && !has_checked_something("ok: 0 schedules")
        );
    }
}
