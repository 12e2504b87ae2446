//! A machine of QEMU's that boots an image by its own firmware, as a PC does.

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use super::accel::Accel;
use super::boot::MEMORY_MIB;
use super::child::Child;
use super::end::End;
use super::monitor::Monitor;
use super::screen::{self, TEXT, TEXT_BYTES};
use crate::failure::{Doing, Failure, Outcome};

/// The kernel's last words.
const LAST_WORDS: &str = "init exited with status ";
/// How long the screen may be behind the serial line, and between two looks at it.
const PATIENCE: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(100);

/// One machine, and what it boots from.
#[derive(Debug, Clone, Copy)]
pub struct ImageBoot<'a> {
    /// The emulator.
    pub qemu: &'a Path,
    /// What it runs on.
    pub accel: Accel,
    /// Its UEFI; without it, it has a BIOS.
    pub uefi: Option<&'a Path>,
    /// The image.
    pub image: &'a Path,
    /// How many virtual CPUs.
    pub cpus: usize,
    /// How long it may take.
    pub deadline: Duration,
}

/// A machine that has said its last words and stays as it is.
#[derive(Debug)]
pub struct Halted {
    /// What came over the serial line.
    pub console: String,
    /// What its screen shows.
    pub screen: String,
}

impl ImageBoot<'_> {
    /// Boots the image as a disc; the machine ends with the status of its first process. Returns that, and what came over the serial
    /// line. Blocks.
    ///
    /// # Errors
    /// The emulator could not be started.
    pub fn run(&self) -> Outcome<(End, String)> {
        let mut command = self.command();
        command.arg("-cdrom").arg(self.image);
        command.args(["-device", "isa-debug-exit,iobase=0xf4,iosize=4"]);
        let child = Child::run(&mut command, self.deadline, &mut |_| ()).doing("start QEMU")?;
        Ok((End::of_shootdown(&child, self.deadline), child.output))
    }

    /// Boots the image as a stick, in a machine that nothing inside can end, until its last words. `directory` is for files in between.
    /// Blocks.
    ///
    /// # Errors
    /// The emulator could not be started, or the screen not be read; the last words did not come.
    pub fn run_to_halt(&self, directory: &Path) -> Outcome<Halted> {
        let mut drive = std::ffi::OsString::from("format=raw,snapshot=on,file=");
        drive.push(self.image);
        let mut command = self.command();
        command.arg("-drive").arg(drive);
        let monitor = Monitor::offer(&mut command, directory);
        let monitor = monitor.ok_or_else(|| {
            Failure::input(
                "no monitor can be in the directory for temporary files",
                "set TMPDIR to a short path without a comma",
            )
        })?;
        let (is_over, screen) = (Cell::new(false), RefCell::new(None));
        let child = Child::run_until(
            &mut command,
            self.deadline,
            &mut |line| is_over.set(is_over.get() || line.contains(LAST_WORDS)),
            &mut || {
                if is_over.get() {
                    screen.replace(Some(self.read_screen(&monitor, directory)));
                }
                is_over.get()
            },
        );
        let child = child.doing("start QEMU")?;
        match screen.into_inner() {
            Some(screen) => Ok(Halted {
                screen: screen?,
                console: child.output,
            }),
            None => Err(Failure::work(format!(
                "no last words in {} s; the console ends with {:?}",
                self.deadline.as_secs(),
                child.output.lines().next_back()
            ))),
        }
    }

    /// A machine with a screen that nobody looks at, and a serial line.
    fn command(&self) -> Command {
        let mut command = Command::new(self.qemu);
        command
            .args(self.accel.arguments().split(' '))
            .args(["-smp", &self.cpus.to_string()])
            .args(["-m", &format!("{MEMORY_MIB}M")])
            .args("-nodefaults -no-user-config -display none -vga std".split(' '))
            .args("-no-reboot -serial stdio".split(' '));
        if let Some(uefi) = self.uefi {
            command.arg("-bios").arg(uefi);
        }
        command
    }

    /// The screen as soon as it shows the last words.
    fn read_screen(&self, monitor: &Monitor, directory: &Path) -> Outcome<String> {
        let file = directory.join("screen");
        let shown = file.display();
        let save = match self.uefi {
            None => format!("pmemsave {TEXT} {TEXT_BYTES} \"{shown}\""),
            Some(_) => format!("screendump \"{shown}\""),
        };
        let started = Instant::now();
        loop {
            // A busy host answers late; what counts is what is written.
            let asked = monitor.ask(&save);
            std::thread::sleep(LOOK);
            let bytes = std::fs::read(&file).unwrap_or_default();
            let text = match self.uefi {
                None => screen::of_cells(&bytes),
                Some(_) => screen::of_pixels(&bytes),
            };
            if text.contains(LAST_WORDS) {
                return Ok(text);
            }
            if started.elapsed() > PATIENCE {
                return Err(Failure::work(format!(
                    "the screen lacks the last words (QEMU's monitor: {asked:?}):\n{text}"
                )));
            }
        }
    }
}
