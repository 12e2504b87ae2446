//! Everything that the checks boot: kernels and programs, built once.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::tally::Tally;
use crate::cargo::{self, Flavour};
use crate::cli::Test;
use crate::failure::Outcome;
use crate::initramfs::Tree;
use crate::iso::{self, Effort};
use crate::machine::{
    AccelChoice, Boot, Emulator, End, Finished, ImageBoot, Kernel, MEMORY_MIB, Nested, VMM,
};
use crate::session::{self, Session};

/// How often Linux is booted when it panics. It patches its own code while other CPUs run it, by way of INT3, and multi-threaded
/// TCG lets one of them trap on the INT3 after it is gone ("Oops: int3", once in hundreds of boots on a busy host).
/// A control that fell over by itself says nothing about our programs.
const LINUX_ATTEMPTS: usize = 3;

/// What a host of a guest takes beside it: its own boot, and its end.
const BOOT_MARGIN: Duration = Duration::from_secs(30);

/// Kernels, programs and the emulator that runs them.
#[derive(Debug)]
pub struct Fleet {
    session: Session,
    accel: AccelChoice,
    /// The kernel under test.
    pub kernel: Kernel,
    /// The same kernel with switches that leave out a step.
    pub breakable: Kernel,
    programs: BTreeMap<String, Vec<u8>>,
}

/// What a program is started with.
#[derive(Debug, Clone, Copy)]
pub struct Start<'a> {
    /// Further words for the kernel's command line.
    pub options: &'a str,
    /// The program's arguments, with spaces between.
    pub arguments: &'a str,
    /// Virtual CPUs.
    pub cpus: usize,
    /// Guest memory of QEMU, in mebibytes.
    pub memory_mib: u32,
    /// For how long the program is to run, if that can be told it.
    pub seconds: u32,
    /// The files beside which the program stands; none if it comes alone.
    pub image: Option<&'a Tree>,
    /// What it needs besides, by path.
    pub files: &'a [(String, Vec<u8>)],
    /// When it is ended as stuck.
    pub deadline: Duration,
}

impl Start<'_> {
    /// With nothing but CPUs, for longer than a program needs that does not go on by itself, on a busy host.
    pub fn on(cpus: usize) -> Self {
        Self {
            options: "",
            arguments: "",
            cpus,
            memory_mib: MEMORY_MIB,
            seconds: 0,
            image: None,
            files: &[],
            deadline: Duration::from_secs(60),
        }
    }

    /// The same for a program that is to run for so many seconds.
    pub fn lasting(seconds: u32, cpus: usize) -> Self {
        let mut start = Self::on(cpus);
        start.seconds = seconds;
        start.deadline += Duration::from_secs(u64::from(seconds) * 2);
        start
    }
}

impl Fleet {
    /// Finds the emulator, builds both kernels and the programs.
    pub fn open(test: &Test) -> Outcome<Self> {
        let kernel = |flavour: Flavour| {
            let flavour = flavour.isolated(test.emulator.isolation);
            cargo::build_kernel(flavour).map(Kernel::Shootdown)
        };
        Ok(Self {
            session: Session::open(&test.emulator, &[])?,
            accel: test.emulator.accel,
            kernel: kernel(Flavour::Plain)?,
            breakable: kernel(Flavour::Breakable)?,
            programs: session::load_programs()?,
        })
    }

    /// Runs a check on the Linux kernel, where there is one.
    pub fn check_on_linux(
        &self,
        tally: &mut Tally,
        name: &str,
        check: impl FnOnce(&Kernel) -> Outcome<String>,
    ) {
        match self.session.linux.clone().map(Kernel::Linux) {
            Some(linux) => tally.check(name, || check(&linux)),
            None => tally.skip(
                name,
                "no Linux image here; `./lab doctor` says how to get one",
            ),
        }
    }

    /// The emulator.
    pub fn qemu(&self) -> &Path {
        &self.session.qemu
    }

    /// An image from which a PC surveys itself, made in `directory`.
    pub fn pc_image(&self, directory: &Path, effort: Effort) -> Outcome<PathBuf> {
        iso::make(directory, self.kernel.image(), &self.programs, effort)
    }

    /// A machine that boots such an image.
    pub fn image_boot<'a>(
        &'a self,
        image: &'a Path,
        uefi: Option<&'a Path>,
        cpus: usize,
        deadline: Duration,
    ) -> Outcome<ImageBoot<'a>> {
        Ok(ImageBoot {
            uefi,
            qemu: &self.session.qemu,
            accel: self.accel.settle(1)?,
            image,
            cpus,
            deadline,
        })
    }

    /// The names of the programs of `user/`.
    pub fn programs(&self) -> impl Iterator<Item = &str> {
        self.programs.keys().map(String::as_str)
    }

    /// The bytes of one of them.
    pub fn image(&self, name: &str) -> Outcome<&[u8]> {
        session::image(&self.programs, name)
    }

    /// Boots one of them. Blocks until the machine has ended.
    pub fn boot(&self, kernel: &Kernel, program: &str, start: Start<'_>) -> Outcome<Finished> {
        self.boot_image(kernel, (program, self.image(program)?), start)
    }

    /// Boots any program.
    pub fn boot_image(
        &self,
        kernel: &Kernel,
        program: (&str, &[u8]),
        start: Start<'_>,
    ) -> Outcome<Finished> {
        // One host thread a virtual CPU, beyond the host's cores too: CPUs that take turns race less.
        let emulator = Emulator::Qemu(&self.session.qemu, self.accel.settle(1)?);
        unless_linux_fell(kernel, || self.boot_on(emulator, kernel, program, start))
    }

    /// Boots a kernel with so many CPUs that runs the kernel under test as its guest. Blocks until the machine has ended.
    pub fn boot_nested(
        &self,
        (host, host_options): (&Kernel, &str),
        nested: &Nested<'_>,
        cpus: usize,
    ) -> Outcome<Finished> {
        let boot = Boot {
            emulator: Emulator::Qemu(&self.session.qemu, self.accel.settle(1)?),
            cpus,
            memory_mib: MEMORY_MIB,
            kernel: host,
            options: host_options,
            image: None,
            program: (VMM, self.image(VMM)?),
            arguments: &nested.arguments(),
            files: &nested.files(&self.kernel)?,
            deadline: nested.deadline + BOOT_MARGIN,
        };
        unless_linux_fell(host, || boot.run(&mut |_| ()))
    }

    /// Boots any program on any emulator.
    pub fn boot_on(
        &self,
        emulator: Emulator<'_>,
        kernel: &Kernel,
        program: (&str, &[u8]),
        start: Start<'_>,
    ) -> Outcome<Finished> {
        let boot = Boot {
            emulator,
            cpus: start.cpus,
            memory_mib: start.memory_mib,
            kernel,
            options: start.options,
            image: start.image,
            program,
            arguments: start.arguments,
            files: start.files,
            deadline: start.deadline,
        };
        boot.run(&mut |_| ())
    }
}

/// Boots, and again where Linux has panicked.
fn unless_linux_fell(
    kernel: &Kernel,
    mut boot: impl FnMut() -> Outcome<Finished>,
) -> Outcome<Finished> {
    let mut finished = boot()?;
    for _ in 1..LINUX_ATTEMPTS {
        if !matches!(
            (kernel, &finished.end),
            (Kernel::Linux(_), End::Panicked(_))
        ) {
            break;
        }
        finished = boot()?;
    }
    Ok(finished)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often a boot is tried whose first attempt ends like this.
    fn attempts(kernel: &Kernel, end: End) -> usize {
        let mut attempts = 0;
        let mut end = Some(end);
        let finished = unless_linux_fell(kernel, || {
            attempts += 1;
            Ok(Finished {
                end: end.take().unwrap_or(End::Exited(124)),
                console: String::new(),
                console_file: "console".into(),
                elapsed: Duration::ZERO,
            })
        });
        assert!(finished.is_ok());
        attempts
    }

    #[test]
    fn linux_is_booted_again_where_it_panicked_and_nobody_else() {
        let (linux, ours) = (Kernel::Linux("k".into()), Kernel::Shootdown("k".into()));
        assert_eq!(attempts(&linux, End::Panicked("int3".into())), 2);
        assert_eq!(attempts(&linux, End::Exited(1)), 1);
        assert_eq!(attempts(&ours, End::Exited(124)), 1);
        assert_eq!(attempts(&ours, End::Panicked("x".into())), 1);
    }
}
