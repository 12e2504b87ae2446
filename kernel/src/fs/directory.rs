//! Directory entries, as `getdents64` has them.

use alloc::string::String;
use alloc::vec::Vec;

use linux_raw_sys::general as linux;

use super::attributes::Kind;
use super::tree;
use crate::errno::Errno;
use crate::user_memory::UserBytes;

/// Writes the entries of the directory at `path` from number `first` on. Returns how many bytes,
/// and the number of the entry after the last one written.
///
/// # Errors
/// EINVAL when not even one entry fits, EFAULT.
pub(super) fn read(path: &str, first: u64, to: UserBytes) -> Result<(usize, u64), Errno> {
    let mut entries: Vec<(String, Kind)> = Vec::new();
    entries.push((String::from("."), Kind::Directory));
    entries.push((String::from(".."), Kind::Directory));
    entries.extend(tree::children(path));
    let mut bytes = Vec::new();
    let mut next = first;
    let start = usize::try_from(first).unwrap_or(usize::MAX);
    for (name, kind) in entries.iter().skip(start) {
        let entry = directory_entry(name, *kind, next + 1);
        if bytes.len() + entry.len() > to.len {
            break;
        }
        bytes.extend_from_slice(&entry);
        next += 1;
    }
    if bytes.is_empty() && start < entries.len() {
        return Err(Errno::EINVAL);
    }
    to.copy_from(&bytes)?;
    Ok((bytes.len(), next))
}

/// One `struct linux_dirent64`: inode, next offset, length, type, name, padded to 8.
fn directory_entry(name: &str, kind: Kind, next: u64) -> Vec<u8> {
    let kind = match kind {
        Kind::Regular => linux::DT_REG,
        Kind::Directory => linux::DT_DIR,
        Kind::Device => linux::DT_CHR,
        Kind::Pipe => linux::DT_FIFO,
    };
    let len = (19 + name.len() + 1).next_multiple_of(8);
    let mut entry = Vec::with_capacity(len);
    entry.extend_from_slice(&1u64.to_ne_bytes());
    entry.extend_from_slice(&next.to_ne_bytes());
    entry.extend_from_slice(&(len as u16).to_ne_bytes());
    entry.push(kind as u8);
    entry.extend_from_slice(name.as_bytes());
    entry.resize(len, 0);
    entry
}
