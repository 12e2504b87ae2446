//! Which packages an image takes, and where they come from: the host's sources, as if nothing were installed.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::failure::{Doing, Failure, Outcome};
use crate::machine::Child;

/// What has the tools.
pub const INSTALL: &str = "sudo apt-get install apt dpkg   (on Debian and what is made from it)";
const DEADLINE: Duration = Duration::from_secs(900);

/// One package.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// The packages that were asked for and all that they depend on, by name. Fetches nothing but, as root, missing lists.
///
/// # Errors
/// There are no such packages, or no tools to find them with.
pub fn resolve(asked: &[String]) -> Outcome<Vec<Package>> {
    super::check_packages(asked)?;
    for tool in ["apt-get", "dpkg-deb"] {
        if which::which(tool).is_err() {
            let cause = format!("there is no {tool} to get packages with");
            return Err(Failure::input(cause, format!("install it with  {INSTALL}")));
        }
    }
    if !has_lists() && rustix::process::geteuid().is_root() {
        // On a bare system the package lists are not there yet; only root may load them.
        Child::succeed(Command::new("apt-get").args(["-q", "update"]), DEADLINE)?;
    }
    let scratch = tempfile::tempdir().doing("make a temporary directory")?;
    let mut simulate = apt_get(scratch.path())?;
    simulate.args(["--simulate", "install", "--"]).args(asked);
    let child = Child::succeed(&mut simulate, DEADLINE).map_err(|failure| {
        Failure::input(
            format!("the package sources do not have this: {failure}"),
            "find packages with  apt-cache search WORD, and bring the lists up to date with  sudo apt-get update",
        )
    })?;
    Ok(chosen(&child.output))
}

/// Fetches these packages into a directory; their files, in the order of their names.
///
/// # Errors
/// One could not be fetched.
pub fn download(asked: &[String], directory: &Path) -> Outcome<Vec<PathBuf>> {
    let mut fetch = apt_get(directory)?;
    fetch.args(["--download-only", "install", "--"]).args(asked);
    Child::succeed(&mut fetch, DEADLINE).map_err(|failure| {
        let remedy = "if they are newer now, sudo apt-get update brings the lists up to date";
        Failure::input(format!("cannot fetch the packages: {failure}"), remedy)
    })?;
    let entries = std::fs::read_dir(directory).doing("look for the fetched packages")?;
    let paths = entries.flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> = paths
        .filter(|path| path.extension().is_some_and(|end| end == "deb"))
        .collect();
    files.sort();
    Ok(files)
}

/// `apt-get` for a system on which nothing is installed, which keeps what it fetches in `directory`.
fn apt_get(directory: &Path) -> Outcome<Command> {
    let status = directory.join("status");
    std::fs::write(&status, "").doing("write an empty list of installed packages")?;
    std::fs::create_dir_all(directory.join("partial")).doing("make a directory for packages")?;
    let mut command = Command::new("apt-get");
    command.args(["-q", "--yes", "--no-install-recommends"]);
    let (status, archives) = (status.display(), directory.display());
    for setting in [
        format!("Dir::State::status={status}"),
        format!("Dir::Cache::archives={archives}"),
        // Nothing of the host's is written, so nobody but its root needs to be.
        "Dir::Cache::pkgcache=".into(),
        "Dir::Cache::srcpkgcache=".into(),
        "Debug::NoLocking=true".into(),
        "APT::Sandbox::User=root".into(),
        "APT::Architecture=amd64".into(),
        "APT::Architectures=amd64".into(),
    ] {
        command.args(["-o", &setting]);
    }
    command.env("LC_ALL", "C");
    Ok(command)
}

fn has_lists() -> bool {
    let mut command = Command::new("apt-cache");
    let output = command.args(["show", "libc6"]).output();
    output.is_ok_and(|output| output.status.success())
}

/// What `apt-get --simulate` would unpack: `Inst libc6 (2.36-9 Debian:12/stable [amd64])`.
fn chosen(text: &str) -> Vec<Package> {
    let package = |line: &str| {
        let (name, rest) = line.strip_prefix("Inst ")?.split_once(" (")?;
        Some(Package {
            name: name.to_owned(),
            version: rest.split_whitespace().next()?.to_owned(),
        })
    };
    let mut packages: Vec<Package> = text.lines().filter_map(package).collect();
    packages.sort();
    packages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_apt_would_unpack_is_read_by_name() {
        let text = "The following NEW packages will be installed:\n  libc6 zlib1g\n\
                    Inst zlib1g (1:1.2.13 Debian:12.1/stable [amd64])\n\
                    Inst libc6 (2.36-9 Debian:12.1/stable, Security:12/stable [amd64]) []\n\
                    Conf libc6 (2.36-9 Debian:12.1/stable [amd64])\n";
        let package = |name: &str, version: &str| Package {
            name: name.into(),
            version: version.into(),
        };
        let expected = [package("libc6", "2.36-9"), package("zlib1g", "1:1.2.13")];
        assert_eq!(chosen(text), expected);
    }
}
