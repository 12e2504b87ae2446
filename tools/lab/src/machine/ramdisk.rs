//! A disk in memory for Linux, where its distribution has the driver and this host can make a file system.
//!
//! Linux keeps track of dirty pages only for files that have a disk behind them. The driver (`brd`) is a module beside the
//! kernel image, unpacked by the kernel itself; the empty file system is made here, and taken along as the few blocks of
//! it that are not zeroes.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::child::Child;
use crate::failure::{Doing, Failure, Outcome};

/// Where programs look for the driver and the file system.
pub const DRIVER: &str = "boot/brd.ko.xz";
/// Blocks, each behind its offset in eight bytes.
pub const BLOCKS: &str = "boot/ext4.blocks";

const BLOCK_BYTES: usize = 4096;
/// Room for the largest file that `lab bench` makes, and for what the file system needs itself.
const DISK_MIB: usize = 48;
const DEADLINE: Duration = Duration::from_secs(30);
const MAKER: &str = "mke2fs";

/// What makes a disk.
#[derive(Debug, Clone)]
pub struct Ramdisk {
    driver: PathBuf,
    maker: PathBuf,
}

impl Ramdisk {
    /// For that kernel image.
    ///
    /// # Errors
    /// Names what is missing.
    pub fn find(image: &Path) -> Outcome<Self> {
        let missing = |what: &str, remedy: &str| {
            let cause = format!("Linux would have no disk to sync a file to: {what}");
            Failure::input(cause, remedy)
        };
        let driver = driver_of(image).ok_or_else(|| {
            missing(
                "there is no module brd.ko.xz beside its image",
                "use --machine qemu, or fetch the image with ./lab doctor --get-linux",
            )
        })?;
        // The second is where only root's path leads.
        let maker =
            which::which(MAKER).or_else(|_| which::which(Path::new("/usr/sbin").join(MAKER)));
        let maker = maker.map_err(|_| {
            let remedy = "use --machine qemu, or install e2fsprogs";
            missing("this host has no mke2fs", remedy)
        })?;
        Ok(Self { driver, maker })
    }

    /// The files that a machine needs, with their names.
    ///
    /// # Errors
    /// The file system could not be made.
    pub fn files(&self) -> Outcome<[(&'static str, Vec<u8>); 2]> {
        let driver = std::fs::read(&self.driver).doing("read Linux's module brd")?;
        let disk = tempfile::NamedTempFile::new().doing("make a temporary file")?;
        let mut command = Command::new(&self.maker);
        // No journal: the figures are to be of the file's own pages.
        command
            .args("-q -F -t ext4 -b 4096 -N 16 -m 0 -O ^has_journal,^resize_inode".split(' '))
            .args(["-E", "lazy_itable_init=0,nodiscard"])
            .arg(disk.path())
            .arg(format!("{DISK_MIB}M"));
        Child::succeed(&mut command, DEADLINE)?;
        let image = std::fs::read(disk.path()).doing("read the file system")?;
        Ok([(DRIVER, driver), (BLOCKS, blocks(&image))])
    }
}

/// The driver among the modules of the package that the image is from.
fn driver_of(image: &Path) -> Option<PathBuf> {
    let release = image.file_name()?.to_str()?.strip_prefix("vmlinuz-")?;
    let root = image.parent()?.parent()?;
    let driver = root.join(format!(
        "lib/modules/{release}/kernel/drivers/block/brd.ko.xz"
    ));
    driver.exists().then_some(driver)
}

/// The blocks that are not zeroes.
fn blocks(image: &[u8]) -> Vec<u8> {
    let mut kept = Vec::new();
    for (index, block) in image.chunks(BLOCK_BYTES).enumerate() {
        if block.iter().any(|&byte| byte != 0) {
            kept.extend_from_slice(&((index * BLOCK_BYTES) as u64).to_le_bytes());
            kept.extend_from_slice(block);
            kept.resize(kept.len() + BLOCK_BYTES - block.len(), 0);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_blocks_with_something_in_them_are_kept() {
        let mut image = vec![0; 3 * BLOCK_BYTES];
        image[2 * BLOCK_BYTES + 5] = 7;
        let kept = blocks(&image);
        assert_eq!(kept.len(), 8 + BLOCK_BYTES);
        assert_eq!(kept[..8], (2 * BLOCK_BYTES as u64).to_le_bytes());
        assert_eq!(kept[8 + 5], 7);
    }

    #[test]
    fn an_image_without_modules_is_refused_with_the_remedy() {
        let text = Ramdisk::find(Path::new("/nowhere/boot/vmlinuz-6"))
            .unwrap_err()
            .to_string();
        assert!(
            text.contains("brd") && text.contains("--machine qemu"),
            "{text}"
        );
    }
}
