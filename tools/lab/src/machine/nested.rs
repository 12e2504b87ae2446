//! A guest inside a machine: the reference kernel boots itself, by the program `vmm`.

use std::time::Duration;

use super::boot::Kernel;
use crate::failure::{Doing, Outcome};
use crate::initramfs;
use crate::iso::stripped;

/// The program that boots it.
pub const VMM: &str = "vmm";
/// Where `vmm` looks for kernel and initial file system.
const KERNEL_PATH: &str = "boot/guest";
const INITRD_PATH: &str = "boot/guest.cpio";

/// One guest with one program.
#[derive(Debug, Clone, Copy)]
pub struct Nested<'a> {
    /// Its virtual CPUs.
    pub vcpus: usize,
    /// Further words for the guest kernel's command line.
    pub options: &'a str,
    /// Options of `vmm`.
    pub vmm: &'a str,
    /// The program's name and image.
    pub program: (&'a str, &'a [u8]),
    /// The program's arguments, with spaces between.
    pub arguments: &'a str,
    /// How long it may take.
    pub deadline: Duration,
}

impl Nested<'_> {
    /// What the machine needs beside `vmm` for a guest with that kernel.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn files(&self, kernel: &Kernel) -> Outcome<Vec<(String, Vec<u8>)>> {
        let path = kernel.image();
        let image = std::fs::read(path).doing(format!("read {}", path.display()))?;
        let (name, program) = self.program;
        let program = stripped(program);
        let archive = initramfs::pack(None, &[(name, &program)], None, &[])
            .doing("pack the guest's initial file system")?;
        Ok(vec![
            (KERNEL_PATH.to_owned(), stripped(&image)),
            (INITRD_PATH.to_owned(), archive),
        ])
    }

    /// The arguments of `vmm`. The guest's words come one by one: Linux ends the line at a second `--`.
    pub fn arguments(&self) -> String {
        let own = format!(
            "--vcpus={} --deadline={} {}",
            self.vcpus,
            self.deadline.as_secs().max(1),
            self.vmm
        );
        let guests = format!(
            "init=/bin/{} {} -- {}",
            self.program.0, self.options, self.arguments
        );
        let guests = guests.split_whitespace();
        let guests = guests.map(|word| format!("--append={word}"));
        let own = own.split_whitespace().map(str::to_owned);
        own.chain(guests).collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guests_words_are_marked() {
        let nested = Nested {
            vcpus: 4,
            options: "hz=100",
            vmm: "--pv-flush=off",
            program: ("p", b""),
            arguments: "--x 1",
            deadline: Duration::from_secs(9),
        };
        assert_eq!(
            nested.arguments(),
            "--vcpus=4 --deadline=9 --pv-flush=off --append=init=/bin/p --append=hz=100 --append=-- --append=--x --append=1"
        );
    }
}
