//! `lab doctor`: what is present, what is missing, and the command that installs it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, ExitCode};

use crate::bench::counted;
use crate::cli::Doctor;
use crate::failure::Outcome;
use crate::machine::disc;
use crate::machine::{self, HOW_TO_FETCH, answer};
use crate::{cargo, client, image, place, session};

/// The emulator, as it is listed.
const QEMU: &str = "qemu";
/// What it is good for.
const QEMU_PURPOSE: &str = "boots the reference kernel; without it `./lab bench` measures on the simulated machine, `./lab run` is refused, and `./lab test` fails";

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
    let mut items = Vec::from(builders());
    items.extend(machines(doctor)?);
    items.extend(discs());
    items.push(packages());
    items.extend(architectures()?);
    items.extend(checkers());
    items.extend(helpers());
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
    let has_qemu = items.iter().any(|it| it.name == QEMU && it.found.is_some());
    match (missing, has_qemu) {
        (0, true) => println!("everything that `./lab bench` and `./lab test` need is present"),
        (0, false) => {
            println!(
                "everything that `./lab bench` needs is present (without QEMU: on the simulated machine)"
            );
        }
        (n, _) => println!("{} missing", counted(n, "required items")),
    }
    Ok(ExitCode::from(u8::from(missing > 0)))
}

/// One without which something is left out: its purpose.
fn item(
    name: &'static str,
    found: Option<String>,
    purpose: &'static str,
    remedy: impl Into<String>,
) -> Item {
    Item {
        name,
        found,
        purpose,
        remedy: remedy.into(),
        is_required: false,
    }
}

impl Item {
    /// The same, without which nothing is built or checked.
    fn required(self) -> Self {
        Self {
            is_required: true,
            ..self
        }
    }
}

/// What builds everything.
fn builders() -> [Item; 4] {
    [
        item(
            "cargo",
            tool("--version"),
            "builds everything",
            "see https://rustup.rs",
        )
        .required(),
        item(
            "cc",
            answer(Command::new("cc").arg("--version")),
            "the C compiler that links what runs on this host",
            "sudo apt-get install --no-install-recommends gcc libc6-dev",
        )
        .required(),
        item(
            "x86_64-unknown-none",
            target("x86_64-unknown-none"),
            "the kernel's target",
            "rustup target add x86_64-unknown-none",
        )
        .required(),
        item(
            "x86_64-unknown-linux-musl",
            target("x86_64-unknown-linux-musl"),
            "the programs' target",
            "rustup target add x86_64-unknown-linux-musl",
        )
        .required(),
    ]
}

/// What machines run on.
fn machines(doctor: &Doctor) -> Outcome<[Item; 3]> {
    let at = |version: String, path: &Path| format!("{version} at {}", path.display());
    let qemu = machine::find_qemu(session::qemu_name(&doctor.emulator).as_deref())?;
    let qemu = qemu.map(|path| at(machine::qemu_version(&path).unwrap_or_default(), &path));
    let linux = machine::find_linux(session::linux_name(&doctor.emulator).as_deref())?;
    let release = |path: &Path| machine::linux_version(path).unwrap_or("unknown release".into());
    let linux = linux.map(|path| at(release(&path), &path));
    let bochs = machine::Bochs::find().ok();
    let bochs = bochs.map(|bochs| bochs.path.display().to_string());
    Ok([
        item(QEMU, qemu, QEMU_PURPOSE, machine::QEMU_INSTALL),
        item(
            "linux image",
            linux,
            "the comparison with Linux",
            HOW_TO_FETCH,
        ),
        item(
            "bochs",
            bochs,
            "a machine with tags (PCIDs) for `./lab test`",
            machine::BOCHS_INSTALL,
        ),
    ])
}

/// What makes and boots the image for PCs.
fn discs() -> [Item; 2] {
    let maker = disc::can_make().ok();
    let uefi = Path::new(disc::UEFI).exists();
    [
        item(
            "grub-mkrescue",
            maker.map(|()| "with all that it needs".to_owned()),
            "makes the image for PCs (`./lab iso`)",
            disc::INSTALL,
        ),
        item(
            "OVMF",
            uefi.then(|| disc::UEFI.to_owned()),
            "UEFI in which `./lab test` boots that image",
            disc::UEFI_INSTALL,
        ),
    ]
}

/// What makes images of packages.
fn packages() -> Item {
    let apt = answer(Command::new("apt-get").arg("--version"));
    let dpkg = answer(Command::new("dpkg-deb").arg("--version"));
    item(
        "apt-get, dpkg-deb",
        apt.filter(|_| dpkg.is_some()),
        "make file systems of Debian packages (`./lab image`)",
        image::INSTALL,
    )
}

/// What emulates other architectures, where this is the checkout.
fn architectures() -> Outcome<Option<Item>> {
    if !client::are_here() {
        return Ok(None);
    }
    let emulators: BTreeMap<String, String> = client::emulators()?.into_iter().collect();
    let is_there = |name: &String| which::which(name).is_ok();
    let names: Vec<&str> = emulators.keys().map(String::as_str).collect();
    let packages: BTreeSet<&str> = emulators.values().flat_map(|it| it.split(' ')).collect();
    let packages: Vec<&str> = packages.into_iter().collect();
    Ok(Some(item(
        "other architectures",
        emulators.keys().all(is_there).then(|| names.join(", ")),
        "clients and ports on other processors than x86-64, in `./lab test` and by --arch",
        format!(
            "sudo apt-get install --no-install-recommends {}",
            packages.join(" ")
        ),
    )))
}

/// What `./lab test` checks the source with.
fn checkers() -> [Item; 5] {
    [
        item(
            "rustfmt",
            tool("fmt --version"),
            "`./lab test` checks the format",
            "rustup component add rustfmt",
        )
        .required(),
        item(
            "clippy",
            tool("clippy --version"),
            "`./lab test` lints",
            "rustup component add clippy",
        )
        .required(),
        item(
            "cargo-deny",
            tool("deny --version"),
            "checks licences and advisories",
            "cargo install --locked cargo-deny",
        ),
        item(
            "miri",
            tool("+nightly miri --version"),
            "checks the engine's unsafe code",
            "rustup toolchain install nightly --component miri",
        ),
        item(
            "Rust 1.85",
            tool("+1.85.0 --version"),
            "builds what adopters build",
            "rustup toolchain install 1.85.0 --profile minimal --target x86_64-unknown-none --target aarch64-unknown-none --target riscv64gc-unknown-none-elf --target loongarch64-unknown-none",
        ),
    ]
}

/// What documents, pages and results gain from.
fn helpers() -> [Item; 3] {
    [
        item(
            "mdbook",
            answer(Command::new("mdbook").arg("--version")),
            "builds the book",
            "cargo install --locked mdbook",
        ),
        item(
            "chromium",
            answer(Command::new("chromium").arg("--version")),
            "opens the pages that the lab writes, in tests",
            "sudo apt-get install chromium",
        ),
        item(
            "git",
            answer(Command::new("git").arg("--version")),
            "names the commit in results",
            "sudo apt-get install git",
        ),
    ]
}

/// The first line that cargo answers.
fn tool(words: &str) -> Option<String> {
    answer(&mut cargo::command(words))
}

/// Whether the toolchain has the standard library for a target.
pub fn target(name: &str) -> Option<String> {
    let mut rustc = Command::new("rustc");
    rustc
        .args(["--print", "sysroot"])
        .current_dir(place::root());
    let libraries = Path::new(&answer(&mut rustc)?).join("lib/rustlib");
    let is_there = libraries.join(name).join("lib").is_dir();
    is_there.then(|| "installed".into())
}
