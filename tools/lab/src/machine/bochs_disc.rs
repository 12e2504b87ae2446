//! The disc that Bochs boots from: GRUB, the kernel by Multiboot2, and the initial file system.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::child::Child;
use crate::failure::{Doing, Outcome};

/// The disc's file name.
pub const NAME: &str = "disc.iso";
/// Making it takes a second or two.
const DEADLINE: Duration = Duration::from_secs(120);

/// Makes the disc in `directory`.
///
/// # Errors
/// A file could not be written, or the disc maker failed; says what it said.
pub fn make(directory: &Path, kernel: &Path, archive: &[u8], command_line: &str) -> Outcome<()> {
    let boot = directory.join("disc/boot");
    std::fs::create_dir_all(boot.join("grub")).doing("make the disc's directories")?;
    std::fs::copy(kernel, boot.join("kernel")).doing("copy the kernel")?;
    std::fs::write(boot.join("initramfs"), archive).doing("write the initial file system")?;
    std::fs::write(boot.join("grub/grub.cfg"), menu(command_line)).doing("write GRUB's menu")?;
    let mut command = Command::new("grub-mkrescue");
    command
        .current_dir(directory)
        .args(["--directory=/usr/lib/grub/i386-pc", "-o", NAME, "disc"]);
    Child::succeed(&mut command, DEADLINE).map(drop)
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
