//! Directory entries, as `getdents64` has them.

use alloc::string::String;
use alloc::vec::Vec;

use linux_raw_sys::general as linux;

use super::attributes::Kind;
use super::tmp;
use super::tree;
use crate::errno::Errno;
use crate::user_memory::UserBytes;

/// Writes the entries of the directory at `path` from place `first` on. Returns how many bytes, and the place behind the
/// last one written.
///
/// # Errors
/// EINVAL when not even one entry fits, EFAULT.
pub(super) fn read(path: &str, first: u64, to: UserBytes) -> Result<(usize, u64), Errno> {
    let mut listing = Listing {
        bytes: Vec::new(),
        room: to.len,
        next: first,
    };
    let dots = [".", ".."].map(|name| (String::from(name), Kind::Directory));
    let fixed = dots.into_iter().chain(tree::children(path));
    let start = usize::try_from(first).unwrap_or(usize::MAX);
    let all_fit = (0..)
        .zip(fixed)
        .skip(start)
        .all(|(place, (name, kind))| listing.add(place, &name, kind))
        && (path != tmp::DIRECTORY || listing.add_files(first));
    if listing.bytes.is_empty() && !all_fit {
        return Err(Errno::EINVAL);
    }
    to.copy_from(&listing.bytes)?;
    Ok((listing.bytes.len(), listing.next))
}

/// Entries as far as they fit. The place of one never changes while it is there.
struct Listing {
    bytes: Vec<u8>,
    room: usize,
    next: u64,
}

impl Listing {
    /// False when it does not fit.
    fn add(&mut self, place: u64, name: &str, kind: Kind) -> bool {
        let entry = directory_entry(name, kind, place + 1);
        let fits = self.bytes.len() + entry.len() <= self.room;
        if fits {
            self.bytes.extend_from_slice(&entry);
            self.next = place + 1;
        }
        fits
    }

    /// Adds the files in memory from place `first` on; false when not all fit.
    fn add_files(&mut self, first: u64) -> bool {
        let mut first = first.max(tmp::FIRST_PLACE);
        loop {
            let some = tmp::names_from(first);
            let Some((last, _)) = some.last() else {
                return true;
            };
            first = last + 1;
            let mut files = some.iter();
            if !files.all(|(place, name)| self.add(*place, name, Kind::Regular)) {
                return false;
            }
        }
    }
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
