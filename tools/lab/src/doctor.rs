//! `lab doctor`: what is present, what is missing, and the command that installs it.

use std::path::Path;
use std::process::{Command, ExitCode};

use crate::cli::Doctor;
use crate::failure::Outcome;
use crate::machine::disc;
use crate::machine::{self, HOW_TO_FETCH, answer};
use crate::{cargo, place, session};

/// One thing that the lab uses.
struct Item {
    name: &'static str,
    /// What was found; none if it is missing.
    found: Option<String>,
    /// What it is good for, said when it is missing.
    purpose: &'static str,
    /// How to get it.
    remedy: &'static str,
    is_required: bool,
}

/// Prints every item; exit code 1 if a required one is missing.
pub fn command(doctor: &Doctor) -> Outcome<ExitCode> {
    if doctor.get_linux {
        machine::fetch_linux()?;
    }
    let items = items(doctor)?;
    for item in &items {
        let (name, purpose, remedy) = (item.name, item.purpose, &item.remedy);
        match (&item.found, item.is_required) {
            (Some(what), _) => println!("present   {name:<26} {what}"),
            (None, true) => println!("MISSING   {name:<26} {purpose}; install: {remedy}"),
            (None, false) => println!("optional  {name:<26} {purpose}; install: {remedy}"),
        }
    }
    let accel = doctor.emulator.accel.settle(machine::host_cores())?;
    println!(
        "host      {} cores, machines run on {accel}, commit {}",
        machine::host_cores(),
        place::commit()
    );
    let is_missing = |item: &&Item| item.is_required && item.found.is_none();
    let missing = items.iter().filter(is_missing).count();
    match missing {
        0 => println!("everything that `./lab bench` and `./lab test` need is present"),
        n => println!("{n} required item(s) missing"),
    }
    Ok(ExitCode::from(u8::from(missing > 0)))
}

fn items(doctor: &Doctor) -> Outcome<Vec<Item>> {
    let item = |is_required| {
        move |name, found, purpose, remedy| Item {
            name,
            found,
            purpose,
            remedy,
            is_required,
        }
    };
    let (required, optional) = (item(true), item(false));
    let tool = |words: &str| answer(&mut cargo::command(words));
    let at = |version: String, path: &Path| format!("{version} at {}", path.display());
    let qemu = machine::find_qemu(session::qemu_name(&doctor.emulator).as_deref())?;
    let qemu = qemu.map(|path| at(machine::qemu_version(&path).unwrap_or_default(), &path));
    let linux = machine::find_linux(session::linux_name(&doctor.emulator).as_deref())?;
    let release = |path: &Path| machine::linux_version(path).unwrap_or("unknown release".into());
    let linux = linux.map(|path| at(release(&path), &path));
    let bochs = machine::Bochs::find().ok();
    let bochs = bochs.map(|bochs| bochs.path.display().to_string());
    Ok(vec![
        required(
            "cargo",
            tool("--version"),
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
        required("qemu", qemu, "runs the machines", machine::QEMU_INSTALL),
        optional(
            "linux image",
            linux,
            "the comparison with Linux",
            HOW_TO_FETCH,
        ),
        optional(
            "bochs",
            bochs,
            "a machine with tags (PCIDs) for `./lab test`",
            machine::BOCHS_INSTALL,
        ),
        optional(
            "grub-mkrescue",
            disc::can_make()
                .ok()
                .map(|()| "with all that it needs".to_owned()),
            "makes the image for PCs (`./lab iso`)",
            disc::INSTALL,
        ),
        optional(
            "OVMF",
            Path::new(disc::UEFI)
                .exists()
                .then(|| disc::UEFI.to_owned()),
            "UEFI in which `./lab test` boots that image",
            disc::UEFI_INSTALL,
        ),
        required(
            "rustfmt",
            tool("fmt --version"),
            "`./lab test` checks the format",
            "rustup component add rustfmt",
        ),
        required(
            "clippy",
            tool("clippy --version"),
            "`./lab test` lints",
            "rustup component add clippy",
        ),
        optional(
            "cargo-deny",
            tool("deny --version"),
            "checks licences and advisories",
            "cargo install --locked cargo-deny",
        ),
        optional(
            "miri",
            tool("+nightly miri --version"),
            "checks the engine's unsafe code",
            "rustup toolchain install nightly --component miri",
        ),
        optional(
            "Rust 1.85",
            tool("+1.85.0 --version"),
            "builds what adopters build",
            "rustup toolchain install 1.85.0 --profile minimal --target x86_64-unknown-none --target aarch64-unknown-none --target riscv64gc-unknown-none-elf --target loongarch64-unknown-none",
        ),
        optional(
            "mdbook",
            answer(Command::new("mdbook").arg("--version")),
            "builds the book",
            "cargo install --locked mdbook",
        ),
        optional(
            "chromium",
            answer(Command::new("chromium").arg("--version")),
            "opens the pages that the lab writes, in tests",
            "sudo apt-get install chromium",
        ),
        optional(
            "git",
            answer(Command::new("git").arg("--version")),
            "names the commit in results",
            "sudo apt-get install git",
        ),
    ])
}

/// Whether the toolchain has the standard library for a target.
fn target(name: &str) -> Option<String> {
    let mut rustc = Command::new("rustc");
    rustc
        .args(["--print", "sysroot"])
        .current_dir(place::root());
    let libraries = Path::new(&answer(&mut rustc)?).join("lib/rustlib");
    let is_there = libraries.join(name).join("lib").is_dir();
    is_there.then(|| "installed".into())
}
