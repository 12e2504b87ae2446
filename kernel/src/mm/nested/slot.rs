//! [`Slot`]: a range of guest-physical memory, and where its VMM has it.

use super::table::GUEST_END;
use crate::budget::{Budget, Share};
use crate::errno::Errno;
use crate::mm::layout::{PAGE_SIZE, USER_END};
use crate::mm::range::UserRange;
use alloc::vec::Vec;

/// Pages that one word of a log is about.
pub(super) const WORD_PAGES: usize = 64;

/// What a VMM asks for about one slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotRequest {
    /// Its number.
    pub id: u32,
    /// The first guest-physical address.
    pub guest: u64,
    /// How many bytes; 0 to remove it.
    pub bytes: u64,
    /// Where the VMM has the first.
    pub user: u64,
    /// Whether the pages that are written to are logged.
    pub logs: bool,
    /// Whether the guest may write.
    pub is_read_only: bool,
}

/// Most pages whose writes are logged, of all machines: 16 GiB, 512 KiB of kernel heap.
const MOST_LOGGED_PAGES: usize = 1 << 22;

static LOGGED_PAGES: Budget<MOST_LOGGED_PAGES> = Budget::full();

/// The pages that have been written to.
#[derive(Debug)]
pub(super) struct Log {
    /// A bit each.
    pub bits: Vec<u64>,
    _share: Share<MOST_LOGGED_PAGES>,
}

/// One slot.
#[derive(Debug)]
pub(super) struct Slot {
    pub id: u32,
    pub guest: UserRange,
    /// Where the VMM has the first page.
    pub user: usize,
    pub is_read_only: bool,
    pub log: Option<Log>,
}

impl Slot {
    /// Without a log.
    ///
    /// # Errors
    /// EINVAL for addresses or a length that are not whole pages, or lead out of what there is.
    pub fn new(wanted: &SlotRequest) -> Result<Self, Errno> {
        let number = |value: u64| usize::try_from(value).map_err(|_| Errno::EINVAL);
        let (guest, bytes, user) = (
            number(wanted.guest)?,
            number(wanted.bytes)?,
            number(wanted.user)?,
        );
        let end = |start: usize| start.checked_add(bytes).ok_or(Errno::EINVAL);
        let range = UserRange::from_bounds(guest, end(guest)?.min(GUEST_END + PAGE_SIZE));
        if !user.is_multiple_of(PAGE_SIZE) || end(user)? > USER_END {
            return Err(Errno::EINVAL);
        }
        Ok(Self {
            id: wanted.id,
            guest: range.ok_or(Errno::EINVAL)?,
            user,
            is_read_only: wanted.is_read_only,
            log: None,
        })
    }

    /// How many pages it has.
    pub const fn pages(&self) -> usize {
        self.guest.bytes() / PAGE_SIZE
    }

    /// Whether it has the guest-physical address.
    pub const fn holds(&self, guest: usize) -> bool {
        self.guest.start() <= guest && guest < self.guest.end()
    }

    /// Where the VMM has that address, which it holds.
    pub const fn user_of(&self, guest: usize) -> usize {
        self.user + (guest - self.guest.start())
    }

    /// The number of the page of that address, which it holds.
    pub const fn page_of(&self, guest: usize) -> usize {
        (guest - self.guest.start()) / PAGE_SIZE
    }

    /// The guest-physical address of a page.
    pub const fn guest_of(&self, page: usize) -> usize {
        self.guest.start() + page * PAGE_SIZE
    }

    /// The guest-physical addresses of what the VMM has in `start..end`.
    pub fn shown_in(&self, (start, end): (usize, usize)) -> Option<UserRange> {
        let first = start.max(self.user);
        let last = end.min(self.user + self.guest.bytes());
        if first >= last {
            return None;
        }
        let offset = |user: usize| user - self.user + self.guest.start();
        UserRange::from_bounds(offset(first), offset(last))
    }

    /// Whether a page counts as written to. Without a log all do: nobody wants to know of the first time.
    pub fn is_dirty(&self, page: usize) -> bool {
        self.log
            .as_ref()
            .is_none_or(|log| log.bits[page / WORD_PAGES] & 1 << (page % WORD_PAGES) != 0)
    }

    /// It does from now on.
    pub fn mark_dirty(&mut self, page: usize) {
        if let Some(log) = &mut self.log {
            log.bits[page / WORD_PAGES] |= 1 << (page % WORD_PAGES);
        }
    }
}

impl Log {
    /// Of so many pages, of which none or all are dirty.
    ///
    /// # Errors
    /// ENOMEM, also where too many pages are logged already.
    pub fn new(pages: usize, all_dirty: bool) -> Result<Self, Errno> {
        let share = LOGGED_PAGES.take(pages).ok_or(Errno::ENOMEM)?;
        let mut bits = no_bits(pages)?;
        if all_dirty {
            bits.fill(u64::MAX);
            let behind = bits.len() * WORD_PAGES - pages;
            if let Some(last) = bits.last_mut() {
                *last &= u64::MAX >> behind;
            }
        }
        Ok(Self {
            bits,
            _share: share,
        })
    }
}

/// Room for so many pages, of which none is set.
///
/// # Errors
/// ENOMEM.
pub(super) fn no_bits(pages: usize) -> Result<Vec<u64>, Errno> {
    let words = pages.div_ceil(WORD_PAGES);
    let mut bits = Vec::new();
    bits.try_reserve_exact(words).map_err(|_| Errno::ENOMEM)?;
    bits.resize(words, 0);
    Ok(bits)
}
