//! A file in memory that programs map, write to and sync.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// The reference kernel's own request: a descriptor to read what syncs have stored.
const STORED: libc::Ioctl = 0x5301;

/// Makes a file of `bytes` zeroes, without a name in the tree.
pub fn create(name: &CStr, bytes: u64) -> io::Result<File> {
    // SAFETY: the name ends with NUL, and the call touches nothing else.
    let number = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
    let file = owned(number)?;
    file.set_len(bytes)?;
    Ok(file)
}

/// A file to read what syncs have stored of `file`; `None` on kernels that keep no such copy.
pub fn stored(file: &File) -> io::Result<Option<File>> {
    // SAFETY: the request takes no pointer.
    let number = unsafe { libc::ioctl(file.as_raw_fd(), STORED) };
    match owned(number) {
        Err(error) if error.raw_os_error() == Some(libc::ENOTTY) => Ok(None),
        other => other.map(Some),
    }
}

/// The file behind the number that a call has just made, or the error that it told of.
fn owned(number: i32) -> io::Result<File> {
    if number < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is open, and nobody else has it.
    let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
    Ok(File::from(descriptor))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::Region;
    use std::os::unix::fs::FileExt;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn a_mapping_and_its_file_have_the_same_bytes() {
        let file = create(c"test", 2 * 4096).unwrap();
        let region = Region::of_file(&file, 2).unwrap();
        region.word(1, 1).store(7, Relaxed);
        region.sync(2).unwrap();
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, 4096 + 8).unwrap();
        assert_eq!(u64::from_ne_bytes(bytes), 7);
        // This host has no such copy.
        assert!(stored(&file).unwrap().is_none());
    }
}
