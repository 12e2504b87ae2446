//! The files that came with the kernel.

use super::cpio::{ArchiveError, Entry, Members, normal};

/// The file at `path`, however many slashes it begins with. The last of several with one name, as
/// Linux unpacks them over each other. Reads the whole archive; allocates nothing and takes no lock.
pub fn find(path: &str) -> Option<Entry<'static>> {
    let wanted = normal(path.as_bytes());
    list().filter(|entry| entry.name == wanted).last()
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
