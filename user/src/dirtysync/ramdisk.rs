//! A disk in memory on Linux, from what the lab has packed beside the program.

use std::ffi::CStr;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::machine::done;
use crate::modules;

const DRIVER: &str = "brd";
const BLOCKS: &str = "/boot/ext4.blocks";
const DEVICE: &CStr = c"/dev/ram0";
const DIRECTORY: &CStr = c"/tmp";
/// One disk of 48 MiB, the size of the file system.
const PARAMETERS: &CStr = c"rd_nr=1 rd_size=49152";
/// The first one.
const NUMBER: libc::dev_t = libc::makedev(1, 0);
const BLOCK_BYTES: usize = 4096;

/// Makes the disk and mounts its file system, if the lab has packed one; where that is then.
pub fn mount() -> io::Result<Option<&'static Path>> {
    if !Path::new(BLOCKS).exists() {
        return Ok(None);
    }
    let driver = modules::packed(DRIVER)
        .ok_or_else(|| io::Error::other(format!("the lab has packed no module {DRIVER}")))?;
    modules::load(&driver, PARAMETERS)?;
    // SAFETY: the path is a constant that ends with NUL.
    done(unsafe { libc::mknod(DEVICE.as_ptr(), libc::S_IFBLK | 0o600, NUMBER) })?;
    write_blocks(&std::fs::read(BLOCKS)?)?;
    // SAFETY: all strings are constants that end with NUL, and this file system needs no mount data.
    done(unsafe {
        libc::mount(
            DEVICE.as_ptr(),
            DIRECTORY.as_ptr(),
            c"ext4".as_ptr(),
            0,
            std::ptr::null(),
        )
    })?;
    Ok(DIRECTORY.to_str().ok().map(Path::new))
}

/// Puts each block where its number says.
fn write_blocks(blocks: &[u8]) -> io::Result<()> {
    let disk = OpenOptions::new().write(true).open("/dev/ram0")?;
    for record in blocks.chunks_exact(8 + BLOCK_BYTES) {
        let (place, block) = record.split_at(8);
        let place = place.try_into().map_or(0, u64::from_le_bytes);
        disk.write_all_at(block, place)?;
    }
    disk.sync_all()
}
