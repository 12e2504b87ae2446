//! Bochs: an emulator whose processors have PCIDs and INVPCID, which QEMU's translator lacks, and which faults
//! where the manual says so. It boots from a disc ([`super::bochs_disc`]), takes seconds for what QEMU does at once, and
//! tells nothing by its exit code.
//!
//! Its TLB has no tags (every CR3 write drops all that is not global), so a program that runs here proves that
//! the kernel keeps to the rules, not that it flushes enough: that is for the emulated processor in
//! `crates/shootdown-x86/tests/rules`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::boot::{Finished, keep_console};
use super::child::Child;
use super::end::End;
use super::{bochs_disc, symbols};
use crate::failure::{Doing, Failure, Outcome};
use crate::initramfs;

/// What installs it, with what makes its disc.
pub const INSTALL: &str = "sudo apt-get install --no-install-recommends bochs bochs-term \
                           bochsbios vgabios grub-common grub-pc-bin xorriso mtools";
/// What is run, and what the disc maker runs.
const COMMANDS: [&str; 4] = ["bochs", "grub-mkrescue", "xorriso", "mformat"];
/// What Bochs and the disc maker load.
const FILES: [&str; 3] = [BIOS, VGA_BIOS, "/usr/lib/grub/i386-pc/multiboot2.mod"];
const BIOS: &str = "/usr/share/bochs/BIOS-bochs-latest";
const VGA_BIOS: &str = "/usr/share/vgabios/vgabios.bin";
/// How many instructions the emulated clock takes for a second: about what a host does, so that
/// seconds there are seconds here.
const INSTRUCTIONS_PER_SECOND: u32 = 50_000_000;
const MEMORY_MIB: u32 = 256;

/// Which processor it emulates (`bochs --help cpu` lists them). Both have PCIDs and x2APIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BochsModel {
    /// With INVPCID.
    Skylake,
    /// Without.
    SandyBridge,
}

impl BochsModel {
    fn name(self) -> &'static str {
        match self {
            Self::Skylake => "corei7_skylake_x",
            Self::SandyBridge => "corei7_sandy_bridge_2600k",
        }
    }
}

/// An emulator that is whole.
#[derive(Debug, Clone)]
pub struct Bochs {
    path: PathBuf,
}

/// One machine with one program.
#[derive(Debug, Clone)]
pub struct BochsBoot<'a> {
    /// The emulator.
    pub bochs: &'a Bochs,
    /// Its processors.
    pub model: BochsModel,
    /// How many virtual CPUs.
    pub cpus: usize,
    /// The reference kernel.
    pub kernel: &'a Path,
    /// Further words for its command line.
    pub options: &'a str,
    /// The program's name and image.
    pub program: (&'a str, &'a [u8]),
    /// The program's arguments.
    pub arguments: &'a [&'a str],
    /// How long it may take.
    pub deadline: Duration,
}

impl Bochs {
    /// The emulator with all that it needs.
    ///
    /// # Errors
    /// The first thing that is missing, and what installs it.
    pub fn find() -> Outcome<Self> {
        let missing = |what: &str| Failure::input(format!("{what} is missing"), install_words());
        for command in COMMANDS {
            which::which(command).map_err(|_| missing(command))?;
        }
        for file in FILES {
            if !Path::new(file).exists() {
                return Err(missing(file));
            }
        }
        let path = which::which(COMMANDS[0]).map_err(|_| missing(COMMANDS[0]))?;
        Ok(Self { path })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The command that runs the machine in `directory`. The serial line comes out of standard
    /// output; what Bochs draws there goes nowhere.
    fn command(&self, directory: &Path) -> Command {
        let mut command = Command::new("sh");
        command
            .args(["-c", r#"exec 3>&1 >/dev/null; exec "$@""#, "sh"])
            .arg(&self.path)
            .args(["-q", "-f", "machine", "-rc", "go"])
            .current_dir(directory)
            // The display is a terminal of 80 columns that nobody looks at.
            .env("TERM", "vt100");
        command
    }
}

fn install_words() -> String {
    format!("install it with  {INSTALL}")
}

impl BochsBoot<'_> {
    /// Boots the machine and waits for its end. Blocks.
    ///
    /// # Errors
    /// The disc could not be made, the emulator could not be started, or a file could not be written.
    pub fn run(&self) -> Outcome<Finished> {
        let started = Instant::now();
        let directory = tempfile::Builder::new()
            .prefix("lab-bochs-")
            .tempdir()
            .doing("make a temporary directory")?;
        let names = symbols::table(self.kernel);
        let archive = initramfs::pack(&[self.program], names.as_deref(), &[])
            .doing("pack the initial file system")?;
        bochs_disc::make(
            directory.path(),
            self.kernel,
            &archive,
            &self.command_line(),
        )?;
        let write = |name: &str, text: &str| {
            std::fs::write(directory.path().join(name), text).doing(format!("write {name}"))
        };
        write("machine", &self.description())?;
        // Debian's Bochs has a debugger, which waits for a word.
        write("go", "continue\n")?;
        let mut command = self.bochs.command(directory.path());
        let child = Child::run(&mut command, self.deadline, &mut |_| ()).map_err(|error| {
            Failure::input(format!("cannot start Bochs: {error}"), install_words())
        })?;
        let end = End::of_bochs(&child, self.deadline);
        let console_file = keep_console(self.program.0, &child)?;
        Ok(Finished {
            end,
            console: child.output,
            console_file,
            elapsed: started.elapsed(),
        })
    }

    fn command_line(&self) -> String {
        let mut words = vec![
            format!("init=/bin/{}", self.program.0),
            "machine=bochs".to_owned(),
        ];
        words.extend(self.options.split_whitespace().map(str::to_owned));
        if !self.arguments.is_empty() {
            words.push("--".to_owned());
            words.extend(self.arguments.iter().map(|&word| word.to_owned()));
        }
        words.join(" ")
    }

    /// Bochs's configuration file.
    fn description(&self) -> String {
        let (model, cpus, disc) = (self.model.name(), self.cpus, bochs_disc::NAME);
        [
            "config_interface: textconfig".to_owned(),
            "display_library: term".to_owned(),
            format!("cpu: model={model}, count={cpus}, ips={INSTRUCTIONS_PER_SECOND}"),
            "cpu: reset_on_triple_fault=0".to_owned(),
            format!("memory: guest={MEMORY_MIB}, host={MEMORY_MIB}"),
            format!("romimage: file={BIOS}"),
            format!("vgaromimage: file={VGA_BIOS}"),
            "ata0: enabled=1, ioaddr1=0x1f0, ioaddr2=0x3f0, irq=14".to_owned(),
            format!("ata0-master: type=cdrom, path={disc}, status=inserted"),
            "boot: cdrom".to_owned(),
            "clock: sync=none".to_owned(),
            "com1: enabled=1, mode=file, dev=/dev/fd/3".to_owned(),
            "plugin_ctrl: speaker=0".to_owned(),
            "log: log".to_owned(),
            "panic: action=fatal".to_owned(),
            "error: action=ignore".to_owned(),
            "info: action=ignore".to_owned(),
            String::new(),
        ]
        .join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_told_how_to_end_bochs() {
        let bochs = Bochs {
            path: "/usr/bin/bochs".into(),
        };
        let boot = BochsBoot {
            bochs: &bochs,
            model: BochsModel::Skylake,
            cpus: 2,
            kernel: Path::new("kernel"),
            options: "pcid=off  hz=100",
            program: ("hello", b""),
            arguments: &["--x", "1"],
            deadline: Duration::from_secs(1),
        };
        let line = boot.command_line();
        assert_eq!(
            line,
            "init=/bin/hello machine=bochs pcid=off hz=100 -- --x 1"
        );
        assert!(boot.description().contains("count=2,"));
        let command = bochs.command(Path::new("/"));
        assert!(command.get_args().any(|word| word == "/usr/bin/bochs"));
    }

    #[test]
    fn what_is_missing_comes_with_what_installs_it() {
        assert!(install_words().ends_with(INSTALL) && !INSTALL.contains("  "));
    }
}
