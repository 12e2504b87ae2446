//! A disc from which a PC boots, and a stick with the same bytes: GRUB, the kernel by Multiboot2, and the initial file system.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::child::Child;
use crate::failure::{Doing, Failure, Outcome};

/// What installs all that makes it.
const INSTALL: &str =
    "sudo apt-get install --no-install-recommends grub-common grub-pc-bin xorriso mtools";
/// What is run, and what that runs.
const COMMANDS: [&str; 3] = ["grub-mkrescue", "xorriso", "mformat"];
/// GRUB for a PC's firmware.
const GRUB: &str = "/usr/lib/grub/i386-pc";
/// What it needs to load this kernel.
const MODULE: &str = "multiboot2.mod";
/// The disc's file name.
pub const NAME: &str = "disc.iso";
/// Making it takes a second or two.
const DEADLINE: Duration = Duration::from_secs(120);

/// The first thing that is missing to make a disc.
pub fn missing() -> Option<String> {
    let mut commands = COMMANDS.into_iter();
    if let Some(command) = commands.find(|command| which::which(command).is_err()) {
        return Some(command.to_owned());
    }
    let module = Path::new(GRUB).join(MODULE);
    (!module.exists()).then(|| module.display().to_string())
}

/// Passes if a disc can be made.
///
/// # Errors
/// The first thing that is missing, and what installs it.
pub fn can_make() -> Outcome<()> {
    match missing() {
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
) -> Outcome<PathBuf> {
    let boot = directory.join("disc/boot");
    std::fs::create_dir_all(boot.join("grub")).doing("make the disc's directories")?;
    std::fs::copy(kernel, boot.join("kernel")).doing("copy the kernel")?;
    std::fs::write(boot.join("initramfs"), archive).doing("write the initial file system")?;
    std::fs::write(boot.join("grub/grub.cfg"), menu(command_line)).doing("write GRUB's menu")?;
    let mut command = Command::new("grub-mkrescue");
    command
        .current_dir(directory)
        .arg(format!("--directory={GRUB}"))
        .args(["-o", NAME, "disc"]);
    Child::succeed(&mut command, DEADLINE)?;
    Ok(directory.join(NAME))
}

/// GRUB's menu: nothing to choose. Words are quoted, because some characters mean something to GRUB.
fn menu(command_line: &str) -> String {
    let words: Vec<String> = command_line
        .split_whitespace()
        .map(|word| format!("'{word}'"))
        .collect();
    format!(
        "multiboot2 /boot/kernel {}\nmodule2 /boot/initramfs\nboot\n",
        words.join(" ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_for_the_kernel_mean_nothing_to_grub() {
        let menu = menu("init=/bin/x -- --pages=1,$2 ;");
        assert!(menu.starts_with(
            "multiboot2 /boot/kernel 'init=/bin/x' '--' '--pages=1,$2' ';'\nmodule2 "
        ));
    }
}
