//! [`Frame`]: ownership of one physical page frame.

use crate::mm::layout::{PAGE_SIZE, PhysAddr};
use core::num::NonZeroU32;

/// Exclusive ownership of one 4 KiB frame of physical memory.
///
/// There is no `Drop`: a frame that is dropped is leaked, which is always safe, while freeing it
/// behind everybody's back would break I5. Free it with [`free`](super::free).
#[must_use = "a dropped frame is lost until the next boot"]
#[derive(Debug, PartialEq, Eq)]
pub struct Frame(NonZeroU32);

impl Frame {
    /// Takes the frame at `address` back from wherever [`into_raw`](Self::into_raw) put it.
    ///
    /// # Safety
    /// 1. `address` is that of a usable frame (page-aligned, not zero, in the direct map).
    /// 2. Nobody else owns it: its number came out of `into_raw`, once.
    pub unsafe fn from_raw(address: PhysAddr) -> Self {
        Self(number_of(address))
    }

    /// The frame with this number, which nobody owns.
    pub(super) const fn new(number: NonZeroU32) -> Self {
        Self(number)
    }

    /// Gives up ownership; the address, to be kept in a page-table entry or the like.
    pub const fn into_raw(self) -> PhysAddr {
        self.address()
    }

    /// Its physical address.
    pub const fn address(&self) -> PhysAddr {
        address_of(self.0)
    }

    /// Its number: physical address divided by the page size.
    pub(super) const fn number(&self) -> NonZeroU32 {
        self.0
    }

    /// Fills the frame with zeros.
    pub fn clear(&mut self) {
        let page = self.address().to_direct().cast::<crate::mm::clear::Page>();
        // SAFETY: the direct map covers every frame, and `&mut self` is its only owner.
        unsafe { crate::mm::clear::clear_page(page) };
    }
}

/// The number of the frame at `address`.
///
/// # Panics
/// When there can be no frame.
pub(super) fn number_of(address: PhysAddr) -> NonZeroU32 {
    let number = address.as_u64() as usize / PAGE_SIZE;
    match u32::try_from(number).ok().and_then(NonZeroU32::new) {
        Some(number) => number,
        None => panic!("no frame at {address:?}"),
    }
}

/// Physical address of a frame number.
pub(super) const fn address_of(number: NonZeroU32) -> PhysAddr {
    PhysAddr::new(number.get() as u64 * PAGE_SIZE as u64)
}
