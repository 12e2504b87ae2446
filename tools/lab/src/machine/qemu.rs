//! The emulator: where it is, and how it comes onto a machine that has none.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::child::{Child, answer};
use crate::failure::{Failure, Outcome};

/// The emulator's name.
pub const QEMU_COMMAND: &str = "qemu-system-x86_64";
/// The Debian package that has it.
const QEMU_PACKAGE: &str = "qemu-system-x86";
/// What installs it.
pub const INSTALL: &str = "sudo apt-get install --no-install-recommends qemu-system-x86";
const INSTALL_DEADLINE: Duration = Duration::from_secs(600);

/// The emulator that the caller named, else the one on the path; none if there is none.
///
/// # Errors
/// The caller named one that cannot be run.
pub fn find(named: Option<&Path>) -> Outcome<Option<PathBuf>> {
    match named {
        None => Ok(which::which(QEMU_COMMAND).ok()),
        Some(name) => match which::which(name) {
            Ok(path) => Ok(Some(path)),
            Err(_) => Err(Failure::input(
                format!("no QEMU at {}", name.display()),
                format!(
                    "name an executable with --qemu or SHOOTDOWN_QEMU, or install one: {INSTALL}"
                ),
            )),
        },
    }
}

/// As [`find`], but installs the emulator where that can be done unattended.
pub fn find_or_install(named: Option<&Path>) -> Outcome<PathBuf> {
    if let Some(path) = find(named)? {
        return Ok(path);
    }
    let missing = || {
        Failure::input(
            format!("{QEMU_COMMAND} is missing"),
            format!("install it with  {INSTALL}"),
        )
    };
    if !rustix::process::geteuid().is_root() || which::which("apt-get").is_err() {
        return Err(missing());
    }
    eprintln!("lab: {QEMU_COMMAND} is missing; installing the package {QEMU_PACKAGE}");
    let install = || apt_get(&["install", "-y", "--no-install-recommends", QEMU_PACKAGE]);
    let installed = install() || (apt_get(&["update"]) && install());
    match find(None)? {
        Some(path) if installed => Ok(path),
        _ => Err(missing()),
    }
}

fn apt_get(arguments: &[&str]) -> bool {
    let mut command = Command::new("apt-get");
    command.arg("-q").args(arguments);
    command.env("DEBIAN_FRONTEND", "noninteractive");
    match Child::run(&mut command, INSTALL_DEADLINE, &mut |_| ()) {
        Ok(child) if child.has_succeeded() => return true,
        Ok(Child { errors, .. }) => {
            eprintln!("lab: apt-get {} failed: {}", arguments[0], errors.trim());
        }
        Err(error) => eprintln!("lab: apt-get cannot be started: {error}"),
    }
    false
}

/// The emulator's own version.
pub fn version(path: &Path) -> Option<String> {
    let line = answer(Command::new(path).arg("--version"))?;
    let words = line.strip_prefix("QEMU emulator version ").unwrap_or(&line);
    Some(words.split_whitespace().next()?.to_owned())
}
