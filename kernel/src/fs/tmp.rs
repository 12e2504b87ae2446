//! `/tmp`: names for files in memory. No directories below it.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::file::OpenFile;
use super::node::{Node, Regular};
use crate::errno::Errno;
use crate::mm::MemoryFile;
use crate::sync::Mutex;
use linux_raw_sys::general as linux;

/// The directory.
pub(super) const DIRECTORY: &str = "/tmp";

/// Longest name, as on Linux.
const NAME_MAX: usize = 255;

/// Longest name of a file without one in the tree: what remains of [`NAME_MAX`] after Linux's prefix.
const MEMFD_NAME_MAX: usize = 249;

/// Permissions of a file that was made without a name.
const MEMFD_PERMISSIONS: u32 = 0o777;

/// The place of the first file in a listing of the directory. What else may be listed comes before.
pub(super) const FIRST_PLACE: u64 = 1 << 32;

/// Most files listed under one lock.
const LISTED_FILES: usize = 64;

/// The files. One lives on when its name is gone.
struct Names {
    files: BTreeMap<Arc<str>, Named>,
    /// In the order in which they were made: who lists them goes on behind a place, whatever comes and goes meanwhile.
    places: BTreeMap<u64, Arc<str>>,
    next_place: u64,
}

struct Named {
    place: u64,
    regular: Regular,
}

static NAMES: Mutex<Names> = Mutex::new(Names {
    files: BTreeMap::new(),
    places: BTreeMap::new(),
    next_place: FIRST_PLACE,
});

/// The name of a path that is directly in the directory.
pub(super) fn name_of(path: &str) -> Option<&str> {
    let name = path.strip_prefix(DIRECTORY)?.strip_prefix('/')?;
    (!name.is_empty() && !name.contains('/')).then_some(name)
}

/// The file at that path.
pub(super) fn find(path: &str) -> Option<Regular> {
    let names = NAMES.lock();
    let found = names.files.get(name_of(path)?)?;
    Some(found.regular.clone())
}

/// A new file at that path, where there was none a moment ago.
///
/// # Errors
/// EROFS outside of the directory, ENOENT in a directory below it, EEXIST, ENAMETOOLONG, ENOSPC when there are too many files or no memory is left.
pub(super) fn create(path: &str, permissions: u32) -> Result<Regular, Errno> {
    let outside = if path.starts_with(DIRECTORY) {
        Errno::ENOENT
    } else {
        Errno::EROFS
    };
    let name = name_of(path).ok_or(outside)?;
    if name.len() > NAME_MAX {
        return Err(Errno::ENAMETOOLONG);
    }
    // Made in advance: not under the lock.
    let fresh = make(permissions)?;
    let name: Arc<str> = Arc::from(name);
    let mut names = NAMES.lock();
    if names.files.contains_key(&name) {
        return Err(Errno::EEXIST);
    }
    let place = names.next_place;
    names.next_place += 1;
    names.places.insert(place, name.clone());
    let regular = fresh.clone();
    names.files.insert(name, Named { place, regular });
    Ok(fresh)
}

/// Takes the name away.
///
/// # Errors
/// ENOENT.
pub(super) fn remove(path: &str) -> Result<(), Errno> {
    let name = name_of(path).ok_or(Errno::ENOENT)?;
    let mut names = NAMES.lock();
    let gone = names.files.remove(name).ok_or(Errno::ENOENT)?;
    let name = names.places.remove(&gone.place);
    drop(names);
    // Not under the lock.
    drop((gone, name));
    Ok(())
}

/// Some names from a place on, each with its own; none behind the last.
pub(super) fn names_from(place: u64) -> Vec<(u64, Arc<str>)> {
    let mut found = Vec::with_capacity(LISTED_FILES);
    let names = NAMES.lock();
    let range = names.places.range(place..).take(LISTED_FILES);
    found.extend(range.map(|(place, name)| (*place, name.clone())));
    found
}

/// A file without a name in the tree (`memfd_create`), open for reading and writing.
///
/// # Errors
/// EINVAL for too long a name, ENFILE when too many files are open, ENOSPC as [`create`].
pub fn new_memory_file(name: &str) -> Result<Arc<OpenFile>, Errno> {
    if name.len() > MEMFD_NAME_MAX {
        return Err(Errno::EINVAL);
    }
    let node = Node::Memory(make(MEMFD_PERMISSIONS)?);
    OpenFile::at_path(
        node,
        linux::O_RDWR,
        alloc::format!("/memfd:{name} (deleted)"),
    )
}

fn make(permissions: u32) -> Result<Regular, Errno> {
    Ok(Regular {
        file: MemoryFile::new().ok_or(Errno::ENOSPC)?,
        permissions,
    })
}
