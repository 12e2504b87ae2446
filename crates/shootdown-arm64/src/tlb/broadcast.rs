//! Dropping translations on all CPUs by one instruction.

use super::operand::{Asid, Depth, Reach, Tlbi};
use super::ops::Tlb;
use super::port::{Dsb, Port};
use super::steps::Pages;

/// The TLBs of all CPUs of the inner shareable domain, this one's too.
///
/// Begin, do something else perhaps, and [finish](Self::finish) *on the same CPU*: until then nothing is sure to be gone. Interrupts are off in between, or the caller cannot leave the CPU.
#[derive(Clone, Copy, Debug)]
pub struct Broadcast<'a, P: Port> {
    pub(super) tlb: &'a Tlb<P>,
}

impl<P: Port> Broadcast<'_, P> {
    /// Begins to drop pages, as [`Tlb::flush_pages`] does here. With a tag only what is global or has that tag, which must mean the same on every CPU; what is widened then drops the tag, and not what is global.
    pub fn begin(&self, tag: Option<Asid>, ranges: impl IntoIterator<Item = Pages>, depth: Depth) {
        self.tlb.port.dsb(Dsb::Full);
        for pages in ranges {
            self.tlb.issue(Reach::Inner, tag, pages, depth);
        }
    }

    /// Begins to drop everything.
    pub fn begin_all(&self) {
        self.tlb.port.dsb(Dsb::Full);
        self.tlb.invalidate(Reach::Inner, Tlbi::All);
    }

    /// Begins to drop all that is not global under a tag, which must mean the same on every CPU.
    pub fn begin_tag(&self, tag: Asid) {
        self.tlb.port.dsb(Dsb::Full);
        self.tlb.invalidate(Reach::Inner, Tlbi::Tag(tag));
    }

    /// Waits until all that this CPU began is done. Then no CPU uses what was named, and stores that were translated by it are visible; that takes a second TLBI and DSB on [most cores](crate::Errata),
    /// for which any that is broadcast will do: as Linux (`__repeat_tlbi_sync`), a leaf at address 0.
    pub fn finish(&self) {
        self.tlb.port.dsb(Dsb::Full);
        if self.tlb.errata.needs_repeat() {
            let nothing = Tlbi::Page(Some(Asid::UNTAGGED), 0, Depth::Leaf);
            self.tlb.invalidate(Reach::Inner, nothing);
            self.tlb.port.dsb(Dsb::Full);
        }
        self.tlb.port.isb();
    }
}
