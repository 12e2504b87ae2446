//! `/tmp`: names for files in memory. No directories below it.

use alloc::collections::btree_map::{BTreeMap, Entry};
use alloc::string::String;
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

/// The files by name. A file lives on when its name is gone.
static NAMES: Mutex<BTreeMap<String, Regular>> = Mutex::new(BTreeMap::new());

/// The name of a path that is directly in the directory.
pub(super) fn name_of(path: &str) -> Option<&str> {
    let name = path.strip_prefix(DIRECTORY)?.strip_prefix('/')?;
    (!name.is_empty() && !name.contains('/')).then_some(name)
}

/// The file at that path.
pub(super) fn find(path: &str) -> Option<Regular> {
    NAMES.lock().get(name_of(path)?).cloned()
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
    let name = String::from(name);
    match NAMES.lock().entry(name) {
        Entry::Vacant(vacant) => Ok(vacant.insert(fresh).clone()),
        Entry::Occupied(_) => Err(Errno::EEXIST),
    }
}

/// Takes the name away.
///
/// # Errors
/// ENOENT.
pub(super) fn remove(path: &str) -> Result<(), Errno> {
    let gone = name_of(path).and_then(|name| NAMES.lock().remove(name));
    gone.map(drop).ok_or(Errno::ENOENT)
}

/// All names.
pub(super) fn names() -> Vec<String> {
    NAMES.lock().keys().cloned().collect()
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
