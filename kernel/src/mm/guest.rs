//! Areas that show pages which others lend: ordinary memory of the whole process, flushed as ordinary memory is.
//!
//! The area itself allows nothing, so that a fault in it is an error; its entries have the rights that the pages were lent
//! with. The program may unmap the area, which gives the pages up, but not change or move it.

use super::error::MapError;
use super::frames::Share;
use super::invalidate::Gather;
use super::lend::Lending;
use super::map::{MapRequest, Placement, Populate};
use super::prot::Prot;
use super::pte::Pte;
use super::range::UserRange;
use super::space::{Inner, MemorySpace};
use super::vma::{Area, AreaKind, GuestId};
use alloc::vec::Vec;

/// An area for lent pages, of the space where it was made. It goes when the space does, or [`remove`](MemorySpace::remove_guests).
#[derive(Debug)]
pub struct GuestArea {
    id: GuestId,
    range: UserRange,
}

impl GuestArea {
    /// Where the first page is shown.
    pub const fn start(&self) -> usize {
        self.range.start()
    }
}

impl MemorySpace {
    /// A new area with room for so many bytes, and all tables that it needs.
    ///
    /// # Errors
    /// [`MapError::NoMemory`].
    pub fn make_room_for_guests(&self, bytes: usize) -> Result<GuestArea, MapError> {
        let id = GuestId::new();
        let start = self.map(MapRequest {
            addr: 0,
            len: bytes,
            prot: Prot::NONE,
            placement: Placement::Anywhere,
            populate: Populate::OnDemand,
            kind: AreaKind::Guests(id),
        })?;
        let guests = GuestArea {
            id,
            range: UserRange::new(start, bytes)?,
        };
        if self.lock().make_tables(guests.range).is_none() {
            self.remove_guests(&guests);
            return Err(MapError::NoMemory);
        }
        Ok(guests)
    }

    /// Shows `pages`, which moves them there, from the start of the area on. False when the program has unmapped a part of
    /// it; nothing is changed then.
    pub fn show_guests(
        &self,
        guests: &GuestArea,
        pages: &mut Vec<Share>,
        lending: Lending,
    ) -> bool {
        let inner = self.lock();
        let area = inner.areas.find(guests.start());
        if !area.is_some_and(|area| area.is_whole(guests)) {
            return false;
        }
        for (addr, share) in guests.range.pages().zip(pages.drain(..)) {
            // Not present before, and processors do not cache that: no flush is due.
            let cell = inner.table.leaf(addr).expect("tables stay with their area");
            cell.fill(Pte::leaf(share.into_raw(), lending.prot()));
        }
        true
    }

    /// Gives up all that the area shows, when no CPU translates to it any more.
    pub fn hide_guests(&self, guests: &GuestArea) {
        let mut gather = Gather::of(self, guests.range);
        let mut inner = self.lock();
        for part in inner.guest_parts(guests) {
            inner.discard(part, &mut gather);
        }
        let pending = self.submit(&mut inner, gather);
        drop(inner);
        pending.finish();
    }

    /// Removes the area, or what the program has left of it.
    pub fn remove_guests(&self, guests: &GuestArea) {
        let mut gather = Gather::of(self, guests.range);
        let mut inner = self.lock();
        loop {
            let part = inner.guest_parts(guests).next();
            let Some(part) = part else { break };
            let removed = inner.remove(part, &mut gather);
            assert!(removed.is_ok(), "nothing is split: {removed:?}");
        }
        let pending = self.submit(&mut inner, gather);
        drop(inner);
        pending.finish();
    }
}

impl Area {
    fn is_whole(&self, guests: &GuestArea) -> bool {
        self.kind == AreaKind::Guests(guests.id) && self.range == guests.range
    }
}

impl Inner {
    /// What the program has left of the area.
    fn guest_parts(&self, guests: &GuestArea) -> impl Iterator<Item = UserRange> {
        let id = guests.id;
        let parts = self.areas.touching(guests.range);
        parts
            .filter(move |area| area.kind == AreaKind::Guests(id))
            .map(|area| area.range)
    }
}
