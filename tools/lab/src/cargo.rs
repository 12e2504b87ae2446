//! Builds the kernel and the user programs with cargo, and says where they are.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use clap::ValueEnum;
use serde::Deserialize;

use crate::failure::{Doing, Failure, Outcome, last_lines};
use crate::machine::{Child, answer};
use crate::place;

/// Longer than any build here takes, even on one slow core with nothing cached.
pub const BUILD_DEADLINE: Duration = Duration::from_secs(900);
const KERNEL_TARGET: &str = "x86_64-unknown-none";
const USER_TARGET: &str = "x86_64-unknown-linux-musl";
/// How many lines of the compiler's output an error shows.
const TAIL_LINES: usize = 40;

/// Which kernel is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    /// The one that is measured.
    Plain,
    /// The one that can be told to leave out a step, to prove that the tests notice, and to test or
    /// break itself before the first program.
    Breakable,
    /// The plain one with page-table isolation.
    Isolated,
    /// The breakable one with it.
    IsolatedBreakable,
}

impl Flavour {
    /// The same with page-table isolation, if that is wanted.
    pub fn isolated(self, wanted: bool) -> Self {
        match self {
            Self::Plain if wanted => Self::Isolated,
            Self::Breakable if wanted => Self::IsolatedBreakable,
            same => same,
        }
    }
}

/// The line of cargo's report that names a built program.
#[derive(Debug, Deserialize)]
struct Artifact {
    executable: Option<PathBuf>,
}

/// Builds the reference kernel and returns a copy that later builds leave alone.
pub fn build_kernel(flavour: Flavour) -> Outcome<PathBuf> {
    let name = match flavour {
        Flavour::Plain => "kernel",
        Flavour::Breakable => "kernel-breakable",
        Flavour::Isolated => "kernel-isolated",
        Flavour::IsolatedBreakable => "kernel-isolated-breakable",
    };
    let built = build(&kernel(flavour), "the kernel")?;
    let missing = || Failure::work("cargo built no kernel");
    let image = built.values().next().ok_or_else(missing)?;
    let kept = tempfile::env::temp_dir().join(format!("{name}.elf"));
    std::fs::copy(image, &kept).doing("keep a copy of the kernel")?;
    Ok(kept)
}

/// The arguments of cargo that build the reference kernel.
pub fn kernel(flavour: Flavour) -> String {
    let features = match flavour {
        Flavour::Plain => "",
        Flavour::Breakable => "--features breaks,selftest",
        Flavour::Isolated => "--features isolation",
        Flavour::IsolatedBreakable => "--features breaks,selftest,isolation",
    };
    format!("build --release -p shootdown-kernel --target {KERNEL_TARGET} {features}")
}

/// Builds every user program for the ABI that the kernel runs, by name.
pub fn build_user() -> Outcome<BTreeMap<String, PathBuf>> {
    build(&format!("{} --bins", user()), "the user programs")
}

/// Builds one of them.
pub fn build_user_program(name: &str) -> Outcome<BTreeMap<String, PathBuf>> {
    build(&format!("{} --bin {name}", user()), name)
}

/// The arguments of cargo that build user programs, but for which.
pub fn user() -> String {
    format!("build --release -p shootdown-user --target {USER_TARGET}")
}

/// Builds a static library for a bare target, and says where it is.
pub fn build_library(package: &str, target: &str, features: &[String]) -> Outcome<PathBuf> {
    let features = match features {
        [] => String::new(),
        some => format!("--features {}", some.join(",")),
    };
    let words = format!("build --release -p {package} --target {target} {features}");
    build(&words, package)?;
    let file = format!("lib{}.a", package.replace('-', "_"));
    Ok(place::target().join(target).join("release").join(file))
}

/// Builds a program that runs the engine on threads of this host.
pub fn build_hosted(name: &str) -> Outcome<PathBuf> {
    build_hosted_by(command(&hosted(name)), name)
}

/// What watches the hosted machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Sanitizer {
    /// ThreadSanitizer: reports unordered accesses (takes a nightly compiler, and minutes to build)
    Thread,
}

/// Builds the program that tortures the engine on threads of this host.
///
/// # Errors
/// A sanitizer needs a nightly compiler with the standard library's source.
pub fn build_torture(sanitizer: Option<Sanitizer>) -> Outcome<PathBuf> {
    const NAME: &str = "torture";
    let Some(Sanitizer::Thread) = sanitizer else {
        return build_hosted(NAME);
    };
    if answer(&mut command("+nightly --version")).is_none() {
        return Err(Failure::input(
            "a sanitizer needs a nightly compiler, and there is none",
            "rustup toolchain install nightly --component rust-src",
        ));
    }
    eprintln!("lab: building the hosted torture and its standard library for the sanitizer");
    // Naming the target keeps the flags off what runs at build time.
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let words = hosted(NAME);
    let mut command = command(&format!("+nightly {words} -Zbuild-std --target {target}"));
    command
        .env("RUSTFLAGS", "-Zsanitizer=thread --cfg tsan")
        .env("CARGO_TARGET_DIR", place::target().join("tsan"));
    build_hosted_by(command, NAME)
}

/// Builds the program that measures on real cores.
pub fn build_cores() -> Outcome<PathBuf> {
    const NAME: &str = "shootdown-cores";
    let built = build(
        &format!("build --release -p {NAME}"),
        "what measures on cores",
    )?
    .remove(NAME);
    built.ok_or_else(|| Failure::work(format!("cargo built no {NAME}")))
}

fn hosted(name: &str) -> String {
    format!("build --release -p shootdown-hosted --example {name}")
}

fn build_hosted_by(command: Command, name: &str) -> Outcome<PathBuf> {
    let built = build_by(command, &format!("the hosted {name}"))?.remove(name);
    built.ok_or_else(|| Failure::work(format!("cargo built no hosted {name}")))
}

fn build(words: &str, what: &str) -> Outcome<BTreeMap<String, PathBuf>> {
    build_by(command(words), what)
}

fn build_by(mut command: Command, what: &str) -> Outcome<BTreeMap<String, PathBuf>> {
    let built = executables(&mut command)?
        .map_err(|errors| Failure::work(format!("cannot build {what}:\n{errors}")))?;
    let named = |path: PathBuf| Some((path.file_stem()?.to_str()?.to_owned(), path));
    Ok(built.into_iter().filter_map(named).collect())
}

/// What a build has made, or the end of what the compiler says.
///
/// # Errors
/// There is no cargo.
pub fn executables(command: &mut Command) -> Outcome<Result<Vec<PathBuf>, String>> {
    command.args(["--quiet", "--message-format=json-render-diagnostics"]);
    let child = Child::run(command, BUILD_DEADLINE, &mut |_| ()).doing("start cargo")?;
    let executable = |line| serde_json::from_str::<Artifact>(line).ok()?.executable;
    Ok(match child.has_succeeded() {
        true => Ok(child.output.lines().filter_map(executable).collect()),
        false => Err(tail(&child.errors)),
    })
}

/// A cargo command that runs in the checkout, from its arguments with spaces between.
pub fn command(words: &str) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(program);
    command.args(words.split_whitespace());
    command.current_dir(place::root());
    command.env("CARGO_TERM_COLOR", "never");
    command
}

/// The last lines of a long output.
pub fn tail(text: &str) -> String {
    last_lines(text.lines(), TAIL_LINES).join("\n")
}
