//! Everything that the checks boot: kernels and programs, built once.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use crate::cargo::{self, Flavour};
use crate::cli::Test;
use crate::failure::Outcome;
use crate::machine::{AccelChoice, Bochs, BochsBoot, BochsModel, Boot, End, Finished, Kernel};
use crate::session::{self, Session};

/// How often Linux is booted when it panics. It patches its own code while other CPUs run it, by way of INT3, and multi-threaded
/// TCG lets one of them trap on the INT3 after it is gone ("Oops: int3", once in hundreds of boots on a busy host).
/// A control that fell over by itself says nothing about our programs.
const LINUX_ATTEMPTS: usize = 3;

/// Kernels, programs and the emulator that runs them.
#[derive(Debug)]
pub struct Fleet {
    session: Session,
    accel: AccelChoice,
    kernel: Kernel,
    breakable: Kernel,
    programs: BTreeMap<String, Vec<u8>>,
}

/// What a program is started with.
#[derive(Debug, Clone, Copy)]
pub struct Start<'a> {
    /// Further words for the kernel's command line.
    pub options: &'a str,
    /// The program's arguments.
    pub arguments: &'a [&'a str],
    /// Virtual CPUs.
    pub cpus: usize,
    /// When it is ended as stuck.
    pub deadline: Duration,
}

impl Fleet {
    /// Finds the emulator, builds both kernels and the programs.
    pub fn open(test: &Test) -> Outcome<Self> {
        Ok(Self {
            session: Session::open(&test.emulator, &[])?,
            accel: test.emulator.accel,
            kernel: Kernel::Shootdown(cargo::build_kernel(Flavour::Plain)?),
            breakable: Kernel::Shootdown(cargo::build_kernel(Flavour::Breakable)?),
            programs: session::load_programs()?,
        })
    }

    /// The kernel under test.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// The same kernel with switches that leave out a step.
    pub fn breakable(&self) -> &Kernel {
        &self.breakable
    }

    /// The Linux kernel, where there is one.
    pub fn linux(&self) -> Option<Kernel> {
        self.session.linux.clone().map(Kernel::Linux)
    }

    /// The emulator.
    pub fn qemu(&self) -> &Path {
        &self.session.qemu
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

    /// Boots one of them on Bochs.
    pub fn boot_bochs(
        &self,
        (bochs, model): (&Bochs, BochsModel),
        kernel: &Kernel,
        program: &str,
        start: Start<'_>,
    ) -> Outcome<Finished> {
        let (Kernel::Shootdown(kernel) | Kernel::Linux(kernel)) = kernel;
        let boot = BochsBoot {
            bochs,
            model,
            cpus: start.cpus,
            kernel,
            options: start.options,
            program: (program, self.image(program)?),
            arguments: start.arguments,
            deadline: start.deadline,
        };
        boot.run()
    }

    /// Boots any program.
    pub fn boot_image(
        &self,
        kernel: &Kernel,
        program: (&str, &[u8]),
        start: Start<'_>,
    ) -> Outcome<Finished> {
        let arguments: Vec<String> = start
            .arguments
            .iter()
            .map(|&argument| argument.to_owned())
            .collect();
        let boot = Boot {
            qemu: &self.session.qemu,
            // One host thread a virtual CPU, beyond the host's cores too: CPUs that take turns race less.
            accel: self.accel.settle(1)?,
            cpus: start.cpus,
            kernel,
            options: start.options,
            program,
            arguments: &arguments,
            deadline: start.deadline,
        };
        let mut finished = boot.run(&mut |_| ())?;
        if matches!(kernel, Kernel::Linux(_)) {
            for _ in 1..LINUX_ATTEMPTS {
                if !matches!(finished.end, End::Panicked(_)) {
                    break;
                }
                finished = boot.run(&mut |_| ())?;
            }
        }
        Ok(finished)
    }
}
