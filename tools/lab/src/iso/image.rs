//! What is on the image: the kernel, the first process, which surveys the machine, and the programs that it runs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::stripped::stripped;
use crate::failure::{Doing, Outcome};
use crate::machine::disc::{self, Firmware};
use crate::machine::symbols;
use crate::{initramfs, place, session};

/// The first process, and what it runs.
const PROGRAMS: [&str; 4] = ["survey", "madvise", "pingpong", "preemptoff"];

/// How long a survey takes: the words of the program `survey`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// Some minutes: figures to keep.
    Full,
    /// Some seconds: for a look.
    Quick,
    /// As little as makes a row: for a check on a slow emulator.
    Least,
}

impl Effort {
    /// As the program takes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Quick => "quick",
            Self::Least => "least",
        }
    }
}

/// Makes the image in `directory` of a kernel and the user programs; returns where it is. It takes whatever CPUs it finds, and stays on when it
/// is done, unless an emulator can be ended.
///
/// # Errors
/// A file could not be written, a program is missing, or the disc maker failed.
pub fn make(
    directory: &Path,
    kernel: &Path,
    programs: &BTreeMap<String, Vec<u8>>,
    effort: Effort,
) -> Outcome<PathBuf> {
    let mut images: Vec<(&str, Vec<u8>)> = Vec::new();
    for name in PROGRAMS {
        images.push((name, stripped(session::image(programs, name)?)));
    }
    let images: Vec<(&str, &[u8])> = images
        .iter()
        .map(|(name, image)| (*name, &image[..]))
        .collect();
    let archive = initramfs::pack(None, &images, symbols::table(kernel).as_deref(), &[])
        .doing("pack the initial file system")?;
    let bare = directory.join("kernel");
    let image = std::fs::read(kernel).doing("read the kernel")?;
    std::fs::write(&bare, stripped(&image)).doing("write the kernel")?;
    let line = command_line(effort);
    disc::make(directory, &bare, &archive, &line, &Firmware::ALL)
}

fn command_line(effort: Effort) -> String {
    let (effort, commit) = (effort.name(), place::commit());
    format!("init=/bin/survey end=halt -- --effort={effort} --commit={commit}")
}
