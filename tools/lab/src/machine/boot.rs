//! One boot of one machine: from its description to its end.

use std::fmt::Display;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::accel::Accel;
use super::bochs::{Bochs, BochsModel};
use super::child::{Child, Stopped};
use super::disc::{self, Firmware};
use super::end::End;
use super::monitor::Monitor;
use super::symbols;
use crate::bench::{self, OnLinux};
use crate::failure::{Doing, Failure, Outcome, last_lines};
use crate::initramfs::{self, Tree};
use crate::place;

/// Guest memory that suffices: the workloads map far less, Linux needs some 200 MiB for itself.
pub const MEMORY_MIB: u32 = 512;
/// How long before its deadline a machine is asked where its processors are.
const LAST_LOOK: Duration = Duration::from_secs(3);
/// The device that a program opens to run guests.
const KVM: &[u8] = b"/dev/kvm";
/// How much of the console an error shows.
const TAIL_LINES: usize = 15;

/// Which kernel a machine boots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kernel {
    /// The reference kernel (an ELF file with a PVH entry).
    Shootdown(PathBuf),
    /// A Linux bzImage.
    Linux(PathBuf),
}

/// What emulates a machine.
#[derive(Debug, Clone, Copy)]
pub enum Emulator<'a> {
    /// QEMU, and what it runs on.
    Qemu(&'a Path, Accel),
    /// Bochs, and its processors; it boots the reference kernel only, and its console comes in one piece.
    Bochs(&'a Bochs, BochsModel),
}

/// One machine with one program.
#[derive(Debug, Clone)]
pub struct Boot<'a> {
    /// The emulator.
    pub emulator: Emulator<'a>,
    /// How many virtual CPUs.
    pub cpus: usize,
    /// Guest memory of QEMU, in mebibytes.
    pub memory_mib: u32,
    /// The kernel.
    pub kernel: &'a Kernel,
    /// Further words for the kernel's command line.
    pub options: &'a str,
    /// The files beside which the program stands; none if it comes alone.
    pub image: Option<&'a Tree>,
    /// The program's name and image.
    pub program: (&'a str, &'a [u8]),
    /// The program's arguments, with spaces between.
    pub arguments: &'a str,
    /// What it needs beside itself, by path.
    pub files: &'a [(String, Vec<u8>)],
    /// How long it may take.
    pub deadline: Duration,
}

/// A machine that has ended.
#[derive(Debug)]
pub struct Finished {
    /// How.
    pub end: End,
    /// All that its console showed.
    pub console: String,
    /// Where that is kept.
    pub console_file: PathBuf,
    /// From the emulator's start to its end.
    pub elapsed: Duration,
}

impl Boot<'_> {
    /// Boots the machine and waits for its end, handing each console line to `on_line`. Blocks.
    ///
    /// # Errors
    /// The emulator could not be started, or a file could not be written.
    pub fn run(&self, on_line: &mut dyn FnMut(&str)) -> Outcome<Finished> {
        self.run_until(on_line, &mut || false)
    }

    /// As [`run`](Self::run), but ends the machine also when `gives_up`, which is asked all the time, says so.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_until(
        &self,
        on_line: &mut dyn FnMut(&str),
        gives_up: &mut dyn FnMut() -> bool,
    ) -> Outcome<Finished> {
        let started = Instant::now();
        let symbols = match self.kernel {
            Kernel::Shootdown(image) => symbols::table(image),
            Kernel::Linux(_) => None,
        };
        let (programs, files) = ([self.program], self.files()?);
        let archive = initramfs::pack(self.image, &programs, symbols.as_deref(), &files)
            .doing("pack the initial file system")?;
        let directory = tempfile::Builder::new().prefix("lab-").tempdir();
        let directory = directory.doing("make a temporary directory")?;
        let (image, line) = (self.kernel.image(), self.command_line());
        let (mut command, monitor) = match self.emulator {
            Emulator::Qemu(..) => self.qemu(directory.path(), &archive)?,
            Emulator::Bochs(bochs, model) => {
                let firmware = [Firmware::Bios];
                disc::make(directory.path(), image, &archive, &line, &firmware)?;
                (bochs.command(directory.path(), (model, self.cpus))?, None)
            }
        };
        let (mut registers, spawned) = (None, Instant::now());
        let child = Child::run_until(&mut command, self.deadline, on_line, &mut || {
            let is_over = gives_up();
            let is_last_look = is_over || spawned.elapsed() + LAST_LOOK > self.deadline;
            if let (true, None, Some(monitor)) = (is_last_look, &registers, &monitor) {
                registers = monitor.registers(symbols.as_deref()).ok();
            }
            is_over
        });
        let mut child = child.map_err(|error| self.emulator.unusable(&error))?;
        if matches!(child.stopped, Some(Stopped::Overrun | Stopped::GivenUp)) {
            child.errors.extend(registers);
        }
        let end = match (self.emulator, self.kernel) {
            (Emulator::Bochs(..), _) => End::of_bochs(&child, self.deadline),
            (_, Kernel::Shootdown(_)) => End::of_shootdown(&child, self.deadline),
            (_, Kernel::Linux(_)) => End::of_linux(&child, self.deadline),
        };
        Ok(Finished {
            end,
            console_file: keep_console(self.program.0, &child)?,
            console: child.output,
            elapsed: started.elapsed(),
        })
    }

    /// What the program needs beside itself.
    fn files(&self) -> Outcome<Vec<(String, Vec<u8>)>> {
        let mut files = match (self.kernel, bench::on_linux(self.program.0)) {
            (Kernel::Linux(image), OnLinux::Always) if self.runs_guests() => {
                OnLinux::WithKvm.files(image)?
            }
            (Kernel::Linux(image), needs) => needs.files(image)?,
            (Kernel::Shootdown(_), _) => Vec::new(),
        };
        files.extend_from_slice(self.files);
        Ok(files)
    }

    /// The command that runs the machine in `directory`, and its monitor.
    fn qemu(&self, directory: &Path, archive: &[u8]) -> Outcome<(Command, Option<Monitor>)> {
        let Emulator::Qemu(path, accel) = self.emulator else {
            unreachable!("Bochs has a command of its own")
        };
        let initrd = directory.join("initrd.cpio");
        std::fs::write(&initrd, archive).doing("write the initial file system")?;
        let mut command = Command::new(path);
        command
            .args(accel.arguments().split(' '))
            .args(["-smp", &(self.cpus + self.idle_cpus()).to_string()])
            .args(["-m", &format!("{}M", self.memory_mib)])
            .arg("-kernel")
            .arg(self.kernel.image())
            .arg("-initrd")
            .arg(initrd)
            .args(["-append", &self.command_line()])
            // Our own output comes over the serial line; the debug port carries the exit status.
            .args("-nodefaults -no-user-config -display none -no-reboot -serial stdio".split(' '))
            .args(["-device", "isa-debug-exit,iobase=0xf4,iosize=4"]);
        let monitor = Monitor::offer(&mut command, directory);
        Ok((command, monitor))
    }

    /// CPUs beyond those that were asked for. Where Linux runs guests, it has one more and leaves the first idle: there QEMU would lose
    /// guests whenever Linux loads x87 registers (docs/guests.md).
    fn idle_cpus(&self) -> usize {
        usize::from(matches!(self.kernel, Kernel::Linux(_)) && self.runs_guests())
    }

    /// Whether the program opens the device: it has its name.
    fn runs_guests(&self) -> bool {
        let (_, image) = self.program;
        image.windows(KVM.len()).any(|bytes| bytes == KVM)
    }

    /// What the kernel is told.
    fn command_line(&self) -> String {
        let program = initramfs::program_path(self.image, self.program.0);
        let mut line = match (self.emulator, self.kernel) {
            // It tells nothing by its exit code.
            (Emulator::Bochs(..), _) => format!("init={program} machine=bochs"),
            (_, Kernel::Shootdown(_)) => format!("init={program}"),
            // The settings favour Linux: no mitigations, no clock watchdog (see docs/measuring.md). Where the host is busy it reports stalls, in the middle of
            // what a program prints: not these.
            (_, Kernel::Linux(_)) => format!(
                "rdinit={program} console=ttyS0 loglevel=1 panic=-1 mitigations=off tsc=reliable no_timer_check"
            ),
        };
        if self.idle_cpus() > 0 {
            line.push_str(" isolcpus=0");
        }
        for (mark, words) in [(" ", self.options), (" -- ", self.arguments)] {
            if !words.is_empty() {
                line = line + mark + words;
            }
        }
        line
    }
}

impl Kernel {
    /// Its file.
    pub fn image(&self) -> &Path {
        match self {
            Self::Shootdown(image) | Self::Linux(image) => image,
        }
    }
}

impl Emulator<'_> {
    fn unusable(self, error: &std::io::Error) -> Failure {
        let (name, remedy) = match self {
            Self::Qemu(path, _) => (path.display(), "name a working QEMU with --qemu".into()),
            Self::Bochs(bochs, _) => (bochs.path.display(), super::bochs::install_words()),
        };
        Failure::input(format!("cannot start {name}: {error}"), remedy)
    }
}

impl Finished {
    /// What an error message shows: how the machine ended, its last lines, and where the rest is.
    pub fn account(&self) -> String {
        let tail = last_lines(self.console.lines(), TAIL_LINES);
        let mut text = format!(
            "{}; console kept in {}",
            self.end,
            self.console_file.display()
        );
        if tail.is_empty() {
            text.push_str("\n    (the console showed nothing)");
        }
        for line in tail {
            let shown: String = line
                .trim_end()
                .chars()
                .filter(|c| !c.is_control())
                .take(200)
                .collect();
            text.push_str("\n    | ");
            text.push_str(&shown);
        }
        text
    }

    /// It did not do what was expected of it.
    pub fn unexpected(&self, what: impl Display) -> Failure {
        Failure::work(format!("expected: {what}; but {}", self.account()))
    }

    /// Passes only if the first process exited with status 0.
    pub fn expect_success(self, what: &str) -> Outcome<Self> {
        match self.end {
            End::Exited(0) => Ok(self),
            _ => Err(Failure::work(format!("{what}: {}", self.account()))),
        }
    }
}

fn keep_console(program: &str, child: &Child) -> Outcome<PathBuf> {
    place::prune_consoles()?;
    let directory = place::keep("consoles")?;
    let (mut file, path) = tempfile::Builder::new()
        .prefix(&format!("{}-{program}-", place::timestamp()))
        .suffix(".log")
        .tempfile_in(directory)
        .and_then(|file| Ok(file.keep()?))
        .doing("make a file for the console")?;
    let mut write = || {
        file.write_all(child.output.as_bytes())?;
        if !child.errors.is_empty() {
            write!(
                file,
                "\n--- the emulator's own messages ---\n{}",
                child.errors
            )?;
        }
        Ok::<(), std::io::Error>(())
    };
    write().doing(format!("keep the console in {}", path.display()))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boot<'a>(
        kernel: &'a Kernel,
        program: (&'a str, &'a [u8]),
        options: &'a str,
        arguments: &'a str,
    ) -> Boot<'a> {
        Boot {
            emulator: Emulator::Qemu(Path::new("qemu"), Accel::Multi),
            cpus: 2,
            memory_mib: MEMORY_MIB,
            kernel,
            options,
            image: None,
            program,
            arguments,
            files: &[],
            deadline: Duration::from_secs(1),
        }
    }

    const P: (&str, &[u8]) = ("p", b"");

    #[test]
    fn arguments_follow_two_dashes_on_both_kernels() {
        let kernel = Kernel::Shootdown("k".into());
        let ours = |options, words| boot(&kernel, P, options, words).command_line();
        assert_eq!(
            ours("break=no-wait", "--x 1"),
            "init=/bin/p break=no-wait -- --x 1"
        );
        assert_eq!(ours("", ""), "init=/bin/p");
        let image = Tree::default();
        let beside = Boot {
            image: Some(&image),
            ..boot(&kernel, P, "", "")
        };
        assert_eq!(beside.command_line(), "init=/boot/p");
        let kernel = Kernel::Linux("k".into());
        let linux = boot(&kernel, P, "", "--x").command_line();
        assert!(
            linux.starts_with("rdinit=/bin/p ") && linux.ends_with(" -- --x"),
            "{linux}"
        );
    }

    #[test]
    fn linux_runs_guests_on_other_cpus_than_the_first() {
        let (linux, ours) = (Kernel::Linux("k".into()), Kernel::Shootdown("k".into()));
        let host = ("vmm", &b"open /dev/kvm, and run"[..]);
        let hosting = boot(&linux, host, "", "--x");
        let line = hosting.command_line();
        assert!(line.ends_with(" isolcpus=0 -- --x"), "{line}");
        assert_eq!(hosting.idle_cpus(), 1);
        for other in [boot(&linux, P, "", ""), boot(&ours, host, "", "")] {
            assert_eq!(other.idle_cpus(), 0);
            assert!(!other.command_line().contains("isolcpus"));
        }
    }
}
