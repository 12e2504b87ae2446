//! What adopters take: the packages as they would be published, used by a new crate, and the library for C; for bare targets, with the oldest compiler that they name.

use std::path::Path;
use std::process::Command;

use super::source::quiet;
use super::tally::Tally;
use crate::cargo;
use crate::failure::{Doing, Failure, Outcome};
use crate::machine::answer;
use crate::place;

/// The `rust-version` of the packages.
const OLDEST: &str = "+1.85.0";
/// Of the workspace, theirs too.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Each with its own README and licences.
const PACKAGES: [&str; 6] = [
    "shootdown",
    "shootdown-torture",
    "shootdown-x86",
    "shootdown-arm64",
    "shootdown-riscv",
    "shootdown-loongarch",
];
/// Of these, those with an example of a whole platform, for a target's processor.
const PLATFORMS: [(&str, &str); 3] = [
    ("aarch64", "shootdown-arm64"),
    ("riscv64", "shootdown-riscv"),
    ("loongarch64", "shootdown-loongarch"),
];
/// How the library for C is built.
const LIBRARY: &str = "rustc -p shootdown-c --features panic-handler --crate-type staticlib";
const TARGETS: [&str; 4] = [
    "x86_64-unknown-none",
    "aarch64-unknown-none",
    "riscv64gc-unknown-none-elf",
    "loongarch64-unknown-none",
];
const NAME: &str = "source: packages in a new crate and the library for C, for four bare targets, by the oldest compiler";

/// Checks them, where the compiler and its targets are installed.
pub fn check(is_wanted: bool, tally: &mut Tally) {
    if !is_wanted {
        return tally.skip(NAME, "left out by --fast");
    }
    let libraries = answer(Command::new("rustc").args([OLDEST, "--print", "sysroot"]));
    let is_there = |target: &&str| {
        let has_target = |root: &String| Path::new(root).join("lib/rustlib").join(target).exists();
        libraries.as_ref().is_some_and(has_target)
    };
    match TARGETS.iter().all(is_there) {
        true => tally.check(NAME, build),
        false => tally.skip(
            NAME,
            "its compiler or a target is not installed here; `./lab doctor` says how to get it",
        ),
    }
}

fn build() -> Outcome<String> {
    let scratch = place::target().join("packages");
    if scratch.exists() {
        std::fs::remove_dir_all(&scratch).doing("clear target/packages")?;
    }
    std::fs::create_dir_all(scratch.join("src")).doing("make target/packages")?;
    unpack(&scratch)?;
    write_adopter(&scratch)?;
    for target in TARGETS {
        for (words, folder) in [("build", &scratch), (LIBRARY, &place::root())] {
            let words = format!("{OLDEST} {words} --quiet --target {target}");
            let mut command = cargo::command(&words);
            command
                .current_dir(folder)
                .env("CARGO_TARGET_DIR", place::target().join("oldest"));
            quiet(command)?;
        }
    }
    Ok(TARGETS.join(", "))
}

/// Packs the packages, and unpacks them in `scratch`.
fn unpack(scratch: &Path) -> Outcome<()> {
    let mut words = "package --quiet --no-verify --allow-dirty".to_owned();
    PACKAGES
        .iter()
        .for_each(|name| words += &format!(" -p {name}"));
    quiet(cargo::command(&words))?;
    for name in PACKAGES {
        let folder = format!("{name}-{VERSION}");
        let packed = place::target().join(format!("package/{folder}.crate"));
        let mut tar = Command::new("tar");
        tar.arg("-xzf").arg(packed).arg("-C").arg(scratch);
        quiet(tar)?;
        for file in ["README.md", "LICENSE-APACHE", "LICENSE-MIT"] {
            if !scratch.join(&folder).join(file).exists() {
                return Err(Failure::work(format!("{folder} has no {file}")));
            }
        }
    }
    Ok(())
}

/// A crate that takes the packages as from a registry; its code is the engine's example, and that of the target's processor.
fn write_adopter(scratch: &Path) -> Outcome<()> {
    let example = scratch.join(format!("shootdown-{VERSION}/examples/kernel.rs"));
    let mut code = std::fs::read_to_string(example).doing("take the engine's example")?;
    let mut manifest = format!(
        "[package]\nname = \"adopter\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n[dependencies]\nshootdown = \"{VERSION}\"\n\
         shootdown-torture = \"{VERSION}\"\n\n[target.'cfg(target_arch = \"x86_64\")'.dependencies]\nshootdown-x86 = \"{VERSION}\"\n"
    );
    for (arch, name) in PLATFORMS {
        code += &format!(
            "\n#[cfg(target_arch = \"{arch}\")]\n#[allow(unused_attributes)]\n#[path = \"../{name}-{VERSION}/examples/platform.rs\"]\npub mod platform;\n"
        );
        manifest += &format!(
            "\n[target.'cfg(target_arch = \"{arch}\")'.dependencies]\n{name} = \"{VERSION}\"\n"
        );
    }
    std::fs::write(scratch.join("src/lib.rs"), code).doing("write its code")?;
    manifest += "\n[patch.crates-io]\n";
    for name in PACKAGES {
        manifest += &format!("{name} = {{ path = \"{name}-{VERSION}\" }}\n");
    }
    std::fs::write(scratch.join("Cargo.toml"), manifest).doing("write its manifest")
}
