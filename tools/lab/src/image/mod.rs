//! `lab image`: Debian packages as the file system with which `lab run --image` boots a machine.
//!
//! Nothing is installed on this host, and no script of a package runs: `apt-get` chooses and fetches, `dpkg-deb` opens.

mod apt;
mod base;
mod kept;
mod unpack;

use std::process::ExitCode;

use crate::bench::counted;
use crate::cli;
use crate::failure::{Doing, Failure, Outcome};
use crate::initramfs;

pub use apt::INSTALL;
pub use kept::{Image, Place};

/// Raised with whatever changes what the same packages become: images of another number are made anew.
const LAYOUT: u32 = 1;
const MIB: usize = 1 << 20;

/// Makes an image, unless there is the same already.
///
/// # Errors
/// The packages cannot be had (exit code 2), or not be unpacked.
pub fn command(image: &cli::Image) -> Outcome<ExitCode> {
    let place = Place::of(image.name.as_deref().unwrap_or(first_name(&image.packages)))?;
    let packages = apt::resolve(&image.packages)?;
    let list = list(&image.packages, &packages);
    if place.holds(&list) {
        println!("{place} has these packages already");
        return Ok(ExitCode::SUCCESS);
    }
    let count = counted(packages.len(), "packages");
    eprintln!("lab: fetching {count}");
    let scratch = tempfile::tempdir().doing("make a temporary directory")?;
    let mut tree = base::before().doing("lay out the image")?;
    for package in apt::download(&image.packages, scratch.path())? {
        unpack::unpack(&package, &mut tree)?;
    }
    base::after(&mut tree).doing("complete the image")?;
    let archive = initramfs::write(&tree).doing("pack the image")?;
    place.keep(&archive, &list)?;
    let mib = archive.len().div_ceil(MIB);
    println!("{place} has {count}, {mib} MiB");
    println!(
        "run a program of it with  ./lab run --image {} PROGRAM",
        place.name()
    );
    Ok(ExitCode::SUCCESS)
}

/// An image is called by the first package in it: `gcc=4:12.2` by `gcc`.
fn first_name(packages: &[String]) -> &str {
    let first = packages.first().map_or("", String::as_str);
    first.split(['=', '/', ':']).next().unwrap_or(first)
}

/// What stands beside an image, and says whether it is the one that is asked for.
fn list(asked: &[String], packages: &[apt::Package]) -> String {
    let mut list = format!("# lab image {}; layout {LAYOUT}\n", asked.join(" "));
    for package in packages {
        list += &format!("{} {}\n", package.name, package.version);
    }
    list
}

/// Names of packages as `apt-get` takes them: with a version or a release, too.
fn check_packages(packages: &[String]) -> Outcome<()> {
    let is_fit = |c: char| c.is_ascii_alphanumeric() || "+-.:=/~_".contains(c);
    let is_name = |word: &&String| {
        word.starts_with(|c: char| c.is_ascii_alphanumeric()) && word.chars().all(is_fit)
    };
    match packages.iter().find(|word| !is_name(word)) {
        None => Ok(()),
        Some(odd) => Err(Failure::input(
            format!("{odd:?} is no name of a package"),
            "find one with  apt-cache search WORD",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_called_by_its_first_package() {
        let first = |word: &str| first_name(&[word.to_owned(), "other".into()]).to_owned();
        assert_eq!(first("python3"), "python3");
        assert_eq!(first("gcc=4:12.2"), "gcc");
        assert_eq!(first("libc6:amd64"), "libc6");
    }

    #[test]
    fn the_list_has_what_was_asked_for_and_what_came() {
        let package = |name: &str, version: &str| apt::Package {
            name: name.into(),
            version: version.into(),
        };
        let packages = [package("libc6", "2.36-9"), package("sysbench", "1.0")];
        let list = list(&["sysbench".into()], &packages);
        let expected =
            format!("# lab image sysbench; layout {LAYOUT}\nlibc6 2.36-9\nsysbench 1.0\n");
        assert_eq!(list, expected);
    }

    #[test]
    fn words_that_are_no_packages_are_refused() {
        let check = |word: &str| check_packages(&[word.to_owned()]);
        assert!(check("g++").is_ok() && check("libc6=2.36-9+deb12u1").is_ok());
        for word in ["-o", "", "a b", "+x", "a;b"] {
            assert!(check(word).is_err(), "{word:?}");
        }
    }
}
