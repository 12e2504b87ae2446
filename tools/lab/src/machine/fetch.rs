//! Brings a Linux image from the distribution's packages, without installing anything.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::child::Child;
use crate::failure::{Doing, Failure, Outcome};
use crate::place;

/// Packages that depend on the newest kernel made for virtual machines, best first.
const PACKAGES: [&str; 2] = ["linux-image-6.12-cloud-amd64", "linux-image-cloud-amd64"];
const DEADLINE: Duration = Duration::from_secs(300);

/// What a person would type to get an image.
pub const HOW_TO_FETCH: &str = "./lab doctor --get-linux   (unpacks the Debian package linux-image-6.12-cloud-amd64 into .lab/linux; \
     by hand: p=$(apt-cache depends linux-image-6.12-cloud-amd64 | sed -n 's/.*Depends: //p') && \
     apt-get download \"$p\" && dpkg -x \"$p\"_*.deb .lab/linux)";

/// Where fetched images are unpacked.
pub fn directory() -> PathBuf {
    place::root().join(".lab/linux")
}

/// Fetches the newest image of the first package that the configured sources know.
///
/// # Errors
/// No package manager, no such package, or no way to reach it; the message says what to do.
pub fn fetch() -> Outcome<()> {
    let missing = |why: String| {
        Failure::input(
            format!("no Linux kernel image found, and {why}"),
            "name one with --kernel or SHOOTDOWN_LINUX",
        )
    };
    if which::which("apt-get").is_err() || which::which("dpkg").is_err() {
        return Err(missing("there is no apt-get to fetch one".into()));
    }
    let package = match newest() {
        Some(package) => package,
        None => {
            // On a bare system the package lists are not there yet; only root may load them.
            Child::succeed(Command::new("apt-get").args(["-q", "update"]), DEADLINE)?;
            newest().ok_or_else(|| missing("the package sources know none".into()))?
        }
    };
    eprintln!("lab: fetching the Linux kernel in {package}");
    let scratch = tempfile::tempdir().doing("make a temporary directory")?;
    let mut download = Command::new("apt-get");
    download.args(["-q", "download", &package]);
    Child::succeed(download.current_dir(scratch.path()), DEADLINE)
        .map_err(|failure| missing(format!("fetching one failed: {failure}")))?;
    let (archive, root) = (only_file(scratch.path())?, place::keep("linux")?);
    let mut unpack = Command::new("dpkg");
    Child::succeed(unpack.arg("-x").arg(archive).arg(root), DEADLINE).map(drop)
}

/// The package with the newest image, by the package lists at hand.
fn newest() -> Option<String> {
    PACKAGES.iter().find_map(|package| {
        let mut command = Command::new("apt-cache");
        let output = command.args(["depends", package]).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let (_, name) = text.lines().find_map(|line| line.split_once("Depends: "))?;
        let is_image = name.starts_with("linux-image-");
        is_image.then(|| name.trim().to_owned())
    })
}

fn only_file(directory: &Path) -> Outcome<PathBuf> {
    let entries = std::fs::read_dir(directory).doing("look for the fetched package")?;
    let first = entries.flatten().next().map(|entry| entry.path());
    first.ok_or_else(|| Failure::work("apt-get fetched nothing"))
}
