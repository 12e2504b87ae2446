//! The files that came with the kernel.

use alloc::collections::BTreeMap;
use core::ops::Bound;

use spin::Once;

use super::cpio::{ArchiveError, Entry, Members, normal};

/// A file of the initramfs. Read-only; it lives as long as the kernel.
#[derive(Clone, Copy, Debug)]
pub struct File {
    /// Contents; empty for anything but regular files.
    pub data: &'static [u8],
    /// Type and permission bits, as `st_mode`.
    pub mode: u32,
}

/// The files by name, once [`index`] has made it.
static INDEX: Once<BTreeMap<&'static [u8], File>> = Once::new();

/// Makes an index, with which searches take logarithmic time. Called at boot, once there is a heap.
pub fn index() {
    INDEX.call_once(|| list().map(|entry| (entry.name, file(&entry))).collect());
}

fn file(entry: &Entry<'static>) -> File {
    File {
        data: entry.data,
        mode: entry.mode,
    }
}

/// The file at `path`, however many slashes it begins with. The last of several with one name, as
/// Linux unpacks them over each other. Allocates nothing and takes no lock.
pub fn find(path: impl AsRef<[u8]>) -> Option<File> {
    let wanted = normal(path.as_ref());
    match INDEX.get() {
        Some(index) => index.get(wanted).copied(),
        None => list()
            .filter(|entry| entry.name == wanted)
            .last()
            .as_ref()
            .map(file),
    }
}

/// Is there something below the directory at `path`? Asked when there is an index.
pub fn has_below(path: impl AsRef<[u8]>) -> bool {
    let directory = normal(path.as_ref());
    let Some(index) = INDEX.get() else {
        return false;
    };
    let prefix = [directory, b"/"].concat();
    let behind = (Bound::Excluded(&*prefix), Bound::Unbounded);
    let next = index.range::<[u8], _>(behind).next();
    next.is_some_and(|(name, _)| name.starts_with(&prefix))
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
