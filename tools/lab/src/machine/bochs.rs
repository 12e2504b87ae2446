//! Bochs: an emulator whose processors have PCIDs and INVPCID, which QEMU's translator lacks, and which faults
//! where the manual says so. It boots from a disc ([`super::disc`]), takes seconds for what QEMU does at once, and
//! tells nothing by its exit code.
//!
//! Its TLB has no tags (every CR3 write drops all that is not global), so a program that runs here proves that
//! the kernel keeps to the rules, not that it flushes enough: that is for the emulated processor in
//! `crates/shootdown-x86/tests/rules`.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::disc::{self, Firmware};
use crate::failure::{Doing, Failure, Outcome};

/// What installs it, with what makes its disc.
pub const INSTALL: &str = "sudo apt-get install --no-install-recommends bochs bochs-term \
                           bochsbios vgabios grub-common grub-pc-bin xorriso mtools";
const COMMAND: &str = "bochs";
/// What Bochs loads.
const FILES: [&str; 2] = [BIOS, VGA_BIOS];
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
    /// Where it is.
    pub path: PathBuf,
}

impl Bochs {
    /// The emulator with all that it needs.
    ///
    /// # Errors
    /// The first thing that is missing, and what installs it.
    pub fn find() -> Outcome<Self> {
        let missing = |what: &str| Failure::input(format!("{what} is missing"), install_words());
        let path = which::which(COMMAND).map_err(|_| missing(COMMAND))?;
        if let Some(what) = disc::missing(&[Firmware::Bios]) {
            return Err(missing(&what));
        }
        match FILES.into_iter().find(|file| !Path::new(file).exists()) {
            Some(file) => Err(missing(file)),
            None => Ok(Self { path }),
        }
    }

    /// The command that runs a machine of so many processors in `directory`, where its [disc] is. The serial line comes out of
    /// standard output; what Bochs draws there goes nowhere.
    ///
    /// # Errors
    /// A file could not be written.
    pub fn command(&self, directory: &Path, processors: (BochsModel, usize)) -> Outcome<Command> {
        let write = |name: &str, text: &str| {
            std::fs::write(directory.join(name), text).doing(format!("write {name}"))
        };
        write("machine", &description(processors))?;
        // Debian's Bochs has a debugger, which waits for a word.
        write("go", "continue\n")?;
        let mut command = Command::new("sh");
        command
            .args(["-c", r#"exec 3>&1 >/dev/null; exec "$@""#, "sh"])
            .arg(&self.path)
            .args(["-q", "-f", "machine", "-rc", "go"])
            .current_dir(directory)
            // The display is a terminal of 80 columns that nobody looks at.
            .env("TERM", "vt100");
        Ok(command)
    }
}

/// What to do where something is missing.
pub fn install_words() -> String {
    format!("install it with  {INSTALL}")
}

/// Bochs's configuration file.
fn description((model, cpus): (BochsModel, usize)) -> String {
    let (model, disc) = (model.name(), disc::NAME);
    format!(
        "\
config_interface: textconfig
display_library: term
cpu: model={model}, count={cpus}, ips={INSTRUCTIONS_PER_SECOND}
cpu: reset_on_triple_fault=0
memory: guest={MEMORY_MIB}, host={MEMORY_MIB}
romimage: file={BIOS}
vgaromimage: file={VGA_BIOS}
ata0: enabled=1, ioaddr1=0x1f0, ioaddr2=0x3f0, irq=14
ata0-master: type=cdrom, path={disc}, status=inserted
boot: cdrom
clock: sync=none
com1: enabled=1, mode=file, dev=/dev/fd/3
plugin_ctrl: speaker=0
log: log
panic: action=fatal
error: action=ignore
info: action=ignore
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_described_and_what_is_missing_comes_with_what_installs_it() {
        let text = description((BochsModel::Skylake, 2));
        assert!(
            text.contains("cpu: model=corei7_skylake_x, count=2,"),
            "{text}"
        );
        assert!(install_words().ends_with(INSTALL) && !INSTALL.contains("  "));
    }
}
