//! The files that came with the kernel.

use super::cpio::{ArchiveError, Entry, Members, normal};

/// A file of the initramfs. Read-only; it lives as long as the kernel.
#[derive(Clone, Copy, Debug)]
pub struct File {
    /// Contents; empty for anything but regular files.
    pub data: &'static [u8],
    /// Type and permission bits, as `st_mode`.
    pub mode: u32,
}

/// The file at `path`, however many slashes it begins with. The last of several with one name, as
/// Linux unpacks them over each other.
pub fn find(path: impl AsRef<[u8]>) -> Option<File> {
    let wanted = normal(path.as_ref());
    let found = list().filter(|entry| entry.name == wanted).last()?;
    Some(File {
        data: found.data,
        mode: found.mode,
    })
}

/// All members, as far as the archive is readable; [`check`] says whether that is all.
pub fn list() -> impl Iterator<Item = Entry<'static>> {
    Members::new(crate::boot::info().initramfs).map_while(Result::ok)
}

/// Reads the whole archive once; how many members there are.
///
/// # Errors
/// What is wrong with it.
pub fn check() -> Result<usize, ArchiveError> {
    let mut count = 0;
    for entry in Members::new(crate::boot::info().initramfs) {
        entry?;
        count += 1;
    }
    Ok(count)
}
