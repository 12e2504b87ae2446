//! A disc from which a PC boots, by BIOS or UEFI, and a stick with the same bytes: GRUB, the kernel by Multiboot2, and the initial file system.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::child::Child;
use crate::failure::{Doing, Failure, Outcome};

/// What installs all that makes it.
pub const INSTALL: &str = "sudo apt-get install --no-install-recommends grub-common grub-pc-bin grub-efi-amd64-bin xorriso mtools";
/// What is run, and what that runs.
const COMMANDS: [&str; 3] = ["grub-mkrescue", "xorriso", "mformat"];
/// GRUB for each kind of firmware.
const GRUB: &str = "/usr/lib/grub";
/// What it needs to load this kernel.
const MODULE: &str = "multiboot2.mod";

/// UEFI for QEMU (of Debian), and what installs it.
pub const UEFI: &str = "/usr/share/ovmf/OVMF.fd";
pub const UEFI_INSTALL: &str = "sudo apt-get install ovmf";

/// From which firmware a PC boots the disc.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Firmware {
    /// A PC's first one.
    Bios,
    /// What nearly all PCs of today have.
    Uefi,
}

impl Firmware {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Bios, Self::Uefi];

    /// What GRUB calls it.
    fn platform(self) -> &'static str {
        match self {
            Self::Bios => "i386-pc",
            Self::Uefi => "x86_64-efi",
        }
    }
}

/// The disc's file name.
pub const NAME: &str = "disc.iso";
/// Making it takes a second or two.
const DEADLINE: Duration = Duration::from_secs(120);

/// The first thing that is missing to make a disc for these kinds of firmware.
pub fn missing(firmware: &[Firmware]) -> Option<String> {
    let mut commands = COMMANDS.into_iter();
    if let Some(command) = commands.find(|command| which::which(command).is_err()) {
        return Some(command.to_owned());
    }
    let module = |firmware: &Firmware| Path::new(GRUB).join(firmware.platform()).join(MODULE);
    let mut modules = firmware.iter().map(module);
    modules
        .find(|module| !module.exists())
        .map(|module| module.display().to_string())
}

/// Passes if a disc for both kinds of firmware can be made.
///
/// # Errors
/// The first thing that is missing, and what installs it.
pub fn can_make() -> Outcome<()> {
    match missing(&Firmware::ALL) {
        None => Ok(()),
        Some(what) => Err(Failure::input(
            format!("{what} is missing"),
            format!("install it with  {INSTALL}"),
        )),
    }
}

/// Makes the disc in `directory`; returns where it is.
///
/// # Errors
/// A file could not be written, or the disc maker failed; says what it said.
pub fn make(
    directory: &Path,
    kernel: &Path,
    archive: &[u8],
    command_line: &str,
    firmware: &[Firmware],
) -> Outcome<PathBuf> {
    let boot = directory.join("disc/boot");
    std::fs::create_dir_all(boot.join("grub")).doing("make the disc's directories")?;
    std::fs::copy(kernel, boot.join("kernel")).doing("copy the kernel")?;
    std::fs::write(boot.join("initramfs"), archive).doing("write the initial file system")?;
    std::fs::write(boot.join("grub/grub.cfg"), menu(command_line)).doing("write GRUB's menu")?;
    let mut command = Command::new("grub-mkrescue");
    command.current_dir(directory).args(["-o", NAME, "disc"]);
    // Without this, GRUB puts all platforms on the disc that it has.
    if let [firmware] = firmware {
        command.arg(format!("--directory={GRUB}/{}", firmware.platform()));
    }
    Child::succeed(&mut command, DEADLINE)?;
    Ok(directory.join(NAME))
}

/// GRUB's menu: nothing to choose. By UEFI GRUB loads no video driver by itself; `efi_gop` keeps the mode that the firmware chose, others may
/// choose one of 24 bits a pixel. Words are quoted, because some characters mean something to GRUB.
fn menu(command_line: &str) -> String {
    let words: Vec<String> = command_line
        .split_whitespace()
        .map(|word| format!("'{word}'"))
        .collect();
    format!(
        "if [ $grub_platform = efi ]; then insmod efi_gop; fi\nmultiboot2 /boot/kernel {}\nmodule2 /boot/initramfs\nboot\n",
        words.join(" ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_for_the_kernel_mean_nothing_to_grub() {
        let menu = menu("init=/bin/x -- --pages=1,$2 ;");
        assert!(
            menu.contains(
                "\nmultiboot2 /boot/kernel 'init=/bin/x' '--' '--pages=1,$2' ';'\nmodule2 "
            )
        );
    }
}
