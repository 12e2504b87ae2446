//! `lab doctor`: what is present, what is missing, and the command that installs it.

use std::process::{Command, ExitCode, Stdio};

use crate::cli::Doctor;
use crate::failure::Outcome;
use crate::machine::{self, HOW_TO_FETCH, QEMU_PACKAGE};
use crate::{cargo, place, session};

/// One thing that the lab uses.
struct Item {
    name: &'static str,
    /// What was found; none if it is missing.
    found: Option<String>,
    /// What it is good for, said when it is missing.
    purpose: &'static str,
    /// How to get it.
    remedy: String,
    is_required: bool,
}

/// Prints every item; exit code 1 if a required one is missing.
pub fn command(doctor: &Doctor) -> Outcome<ExitCode> {
    if doctor.get_linux {
        machine::fetch_linux()?;
    }
    let items = items(doctor)?;
    for item in &items {
        match (&item.found, item.is_required) {
            (Some(what), _) => println!("present   {:<26} {what}", item.name),
            (None, true) => println!(
                "MISSING   {:<26} {}; install: {}",
                item.name, item.purpose, item.remedy
            ),
            (None, false) => println!(
                "optional  {:<26} {}; install: {}",
                item.name, item.purpose, item.remedy
            ),
        }
    }
    let accel = doctor.emulator.accel.settle(machine::host_cores())?;
    println!(
        "host      {} cores, machines run on {accel}, commit {}",
        machine::host_cores(),
        place::commit()
    );
    let missing = items
        .iter()
        .filter(|item| item.is_required && item.found.is_none())
        .count();
    match missing {
        0 => println!("everything that `./lab bench` and `./lab test` need is present"),
        n => println!("{n} required item(s) missing"),
    }
    Ok(ExitCode::from(u8::from(missing > 0)))
}

fn items(doctor: &Doctor) -> Outcome<Vec<Item>> {
    let required = |name, found, purpose, remedy: &str| Item {
        name,
        found,
        purpose,
        remedy: remedy.into(),
        is_required: true,
    };
    let optional = |name, found, purpose, remedy: &str| Item {
        name,
        found,
        purpose,
        remedy: remedy.into(),
        is_required: false,
    };
    let qemu = machine::find_qemu(session::qemu_name(&doctor.emulator).as_deref())?;
    let linux = machine::find_linux(session::linux_name(&doctor.emulator).as_deref())?;
    let qemu_text = qemu.map(|path| {
        format!(
            "{} at {}",
            machine::qemu_version(&path).unwrap_or_default(),
            path.display()
        )
    });
    let linux_text = linux.map(|path| {
        format!(
            "{} at {}",
            machine::linux_version(&path).unwrap_or_else(|| "unknown release".into()),
            path.display()
        )
    });
    Ok(vec![
        required(
            "cargo",
            answer(cargo::command("--version")),
            "builds everything",
            "see https://rustup.rs",
        ),
        required(
            "x86_64-unknown-none",
            target("x86_64-unknown-none"),
            "the kernel's target",
            "rustup target add x86_64-unknown-none",
        ),
        required(
            "x86_64-unknown-linux-musl",
            target("x86_64-unknown-linux-musl"),
            "the programs' target",
            "rustup target add x86_64-unknown-linux-musl",
        ),
        required(
            "qemu",
            qemu_text,
            "runs the machines",
            &format!("sudo apt-get install --no-install-recommends {QEMU_PACKAGE}"),
        ),
        optional(
            "linux image",
            linux_text,
            "the comparison with Linux",
            HOW_TO_FETCH,
        ),
        optional(
            "bochs",
            machine::Bochs::find()
                .ok()
                .map(|bochs| bochs.path().display().to_string()),
            "a machine with tags (PCIDs) for `./lab test`",
            machine::BOCHS_INSTALL,
        ),
        required(
            "rustfmt",
            answer(cargo::command("fmt --version")),
            "`./lab test` checks the format",
            "rustup component add rustfmt",
        ),
        required(
            "clippy",
            answer(cargo::command("clippy --version")),
            "`./lab test` lints",
            "rustup component add clippy",
        ),
        optional(
            "cargo-deny",
            answer(cargo::command("deny --version")),
            "checks licences and advisories",
            "cargo install --locked cargo-deny",
        ),
        optional(
            "miri",
            answer(cargo::command("+nightly miri --version")),
            "checks the engine's unsafe code",
            "rustup toolchain install nightly --component miri",
        ),
        optional(
            "git",
            answer(command_named("git", "--version")),
            "names the commit in results",
            "sudo apt-get install git",
        ),
    ])
}

fn command_named(name: &str, argument: &str) -> Command {
    let mut command = Command::new(name);
    command.arg(argument);
    command
}

/// The first line that a command answers with; none if it cannot be run or fails.
pub fn answer(mut command: Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout)
        .lines()
        .next()?
        .to_owned();
    output.status.success().then_some(text)
}

/// Whether the toolchain has the standard library for a target.
fn target(name: &str) -> Option<String> {
    let mut rustc = Command::new("rustc");
    rustc
        .args(["--print", "sysroot"])
        .current_dir(place::root());
    let sysroot = answer(rustc)?;
    std::path::Path::new(&sysroot)
        .join("lib/rustlib")
        .join(name)
        .join("lib")
        .is_dir()
        .then(|| "installed".into())
}
