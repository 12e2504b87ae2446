//! A disk in memory for Linux, where its distribution has the driver and this host can make a file system.
//!
//! Linux keeps track of dirty pages only for files that have a disk behind them. The driver (`brd`) is a module beside the
//! kernel image, unpacked by the kernel itself; the empty file system is made here, and taken along as the few blocks of
//! it that are not zeroes.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::child::Child;
use super::modules::Modules;
use crate::failure::{Doing, Failure, Outcome};

const DRIVER: &str = "drivers/block/brd";
/// Where programs look for the file system: blocks, each behind its offset in eight bytes.
const BLOCKS: &str = "boot/ext4.blocks";

const BLOCK_BYTES: usize = 4096;
/// Room for the largest file that `lab bench` makes, and for what the file system needs itself.
const DISK_MIB: usize = 48;
const DEADLINE: Duration = Duration::from_secs(30);
const PURPOSE: &str = "Linux would have no disk to sync a file to";
const MAKER: &str = "mke2fs";

/// What makes a disk.
#[derive(Debug, Clone)]
pub struct Ramdisk {
    driver: Modules,
    maker: PathBuf,
}

impl Ramdisk {
    /// For that kernel image.
    ///
    /// # Errors
    /// Names what is missing.
    pub fn find(image: &Path) -> Outcome<Self> {
        let driver = Modules::find(image, &[DRIVER], PURPOSE)?;
        // The second is where only root's path leads.
        let maker =
            which::which(MAKER).or_else(|_| which::which(Path::new("/usr/sbin").join(MAKER)));
        let maker = maker.map_err(|_| {
            let remedy = "use --machine qemu, or install e2fsprogs";
            Failure::input(format!("{PURPOSE}: this host has no mke2fs"), remedy)
        })?;
        Ok(Self { driver, maker })
    }

    /// The files that a machine needs, with their names.
    ///
    /// # Errors
    /// The file system could not be made.
    pub fn files(&self) -> Outcome<Vec<(String, Vec<u8>)>> {
        let mut files = self.driver.files()?;
        let disk = tempfile::NamedTempFile::new().doing("make a temporary file")?;
        let mut command = Command::new(&self.maker);
        // No journal: the figures are to be of the file's own pages.
        command
            .args("-q -F -t ext4 -b 4096 -N 160 -m 0 -O ^has_journal,^resize_inode".split(' '))
            .args(["-E", "lazy_itable_init=0,nodiscard"])
            .arg(disk.path())
            .arg(format!("{DISK_MIB}M"));
        Child::succeed(&mut command, DEADLINE)?;
        let image = std::fs::read(disk.path()).doing("read the file system")?;
        files.push((BLOCKS.to_owned(), blocks(&image)));
        Ok(files)
    }
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
