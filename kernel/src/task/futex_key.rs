//! Which word a futex is.
//!
//! A futex is the word itself, not its address: in memory that processes share it is known by its place in that memory,
//! elsewhere by address space and address. Callers may say that they use it within their process only.

use crate::arch::uaccess;
use crate::errno::Errno;

/// Number of buckets; a power of two.
pub(super) const BUCKETS: usize = 64;

/// Who waits for and wakes a futex.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FutexScope {
    /// Threads with the same address space (`FUTEX_PRIVATE_FLAG`).
    Private,
    /// Whoever has the memory.
    Shared,
}

/// A futex word.
#[derive(Clone, Copy, Debug)]
pub struct FutexKey {
    /// The address space, or the shared memory.
    memory: usize,
    /// The address there, or the offset.
    place: usize,
    /// Where the caller sees it.
    address: usize,
}

impl PartialEq for FutexKey {
    fn eq(&self, other: &Self) -> bool {
        (self.memory, self.place) == (other.memory, other.place)
    }
}

impl Eq for FutexKey {}

impl FutexKey {
    /// The word at `address` of the current address space; EINVAL unless aligned to its size.
    pub fn current(address: usize, scope: FutexScope) -> Result<Self, Errno> {
        if !address.is_multiple_of(size_of::<u32>()) {
            return Err(Errno::EINVAL);
        }
        super::with_current_space(|space| {
            let shared = match scope {
                FutexScope::Private => None,
                FutexScope::Shared => space.shared_place(address),
            };
            let (memory, place) = match shared {
                Some(shared) => (shared.memory, shared.offset),
                None => (core::ptr::from_ref(space).addr(), address),
            };
            Self {
                memory,
                place,
                address,
            }
        })
        .ok_or(Errno::EFAULT)
    }

    /// Where the caller sees it.
    pub(super) const fn address(self) -> usize {
        self.address
    }

    /// What the word holds, unless its page is not there. Does not sleep.
    pub(super) fn value_now(self) -> Option<u32> {
        uaccess::read_user_now(self.address).ok()
    }

    /// Which list its waiters are in.
    pub(super) fn bucket(self) -> usize {
        let mixed = (self.place >> 2) ^ (self.memory >> 6);
        (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % BUCKETS
    }
}
