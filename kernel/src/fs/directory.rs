//! Directory entries, as `getdents64` has them.

use alloc::sync::Arc;
use alloc::vec::Vec;

use linux_raw_sys::general as linux;

use super::attributes::Kind;
use super::inode::{Directory, FIRST_PLACE, Inode};
use crate::errno::Errno;
use crate::user_memory::UserBytes;

/// Most bytes of entries of one call: they are in the kernel's heap first.
const MOST_BYTES: usize = 8 << 10;

/// Writes the entries of the directory from place `first` on. Returns how many bytes, and the place behind the last one written.
///
/// # Errors
/// EINVAL when not even one entry fits, EFAULT.
pub(super) fn read(
    inode: &Arc<Inode>,
    directory: &Directory,
    first: u64,
    to: UserBytes,
) -> Result<(usize, u64), Errno> {
    let mut listing = Listing {
        bytes: Vec::new(),
        room: to.len.min(MOST_BYTES),
        next: first,
    };
    let all_fit = listing.add_dots(inode, directory) && listing.add_names(directory);
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
    fn add(&mut self, place: u64, name: &str, inode: &Inode) -> bool {
        let entry = directory_entry(name, inode, place + 1);
        let fits = self.bytes.len() + entry.len() <= self.room;
        if fits {
            self.bytes.extend_from_slice(&entry);
            self.next = place + 1;
        }
        fits
    }

    /// Adds the directory itself and the one above it.
    fn add_dots(&mut self, inode: &Arc<Inode>, directory: &Directory) -> bool {
        let above = directory.above().unwrap_or_else(|| inode.clone());
        let dots = (0..FIRST_PLACE).zip([(".", inode), ("..", &above)]);
        let first = self.next;
        let mut rest = dots.filter(|(place, _)| *place >= first);
        rest.all(|(place, (name, inode))| self.add(place, name, inode))
    }

    /// Adds the names; false when not all fit.
    fn add_names(&mut self, directory: &Directory) -> bool {
        loop {
            let some = directory.listed_from(self.next);
            if some.is_empty() {
                return true;
            }
            let mut names = some.iter();
            if !names.all(|listed| self.add(listed.place, &listed.name, &listed.inode)) {
                return false;
            }
        }
    }
}

/// One `struct linux_dirent64`: inode, next offset, length, type, name, padded to 8.
fn directory_entry(name: &str, inode: &Inode, next: u64) -> Vec<u8> {
    let about = inode.attributes();
    let kind = match about.kind() {
        Kind::Regular => linux::DT_REG,
        Kind::Directory => linux::DT_DIR,
        Kind::Device => linux::DT_CHR,
        Kind::Pipe => linux::DT_FIFO,
        Kind::Link => linux::DT_LNK,
    };
    let len = (19 + name.len() + 1).next_multiple_of(8);
    let mut entry = Vec::with_capacity(len);
    entry.extend_from_slice(&about.inode.to_ne_bytes());
    entry.extend_from_slice(&next.to_ne_bytes());
    entry.extend_from_slice(&(len as u16).to_ne_bytes());
    entry.push(kind as u8);
    entry.extend_from_slice(name.as_bytes());
    entry.resize(len, 0);
    entry
}
