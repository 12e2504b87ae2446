//! Invalidation by tag: of one that need not be loaded, and of the user side of a pair.

use super::invlpgb::Depth;
use super::invpcid::InvpcidKind;
use super::ops::{Tlb, addresses};
use super::pcid::{Pcid, PcidPair, UserSide};
use super::port::Port;

/// CR4.LA57 (SDM vol. 3A, "Control Registers").
const CR4_LA57: u64 = 1 << 12;

impl<P: Port> Tlb<P> {
    /// Drops what INVPCID would, by other means where the processor has none: exactly that for the loaded
    /// tag (a page with INVLPG, so perhaps a global translation of it too), everything for others.
    /// Nothing is ever cached of an address that is not canonical.
    ///
    /// # Panics
    ///
    /// In debug builds, without PCIDs, for a tag other than [`Pcid::UNTAGGED`]: nothing is cached under it, and whoever
    /// believes that something is has lost a flush. Other builds do nothing.
    pub fn flush_tagged(&self, kind: InvpcidKind) {
        let is_cached = self.pcids || kind.pcid().is_none_or(|pcid| pcid == Pcid::UNTAGGED);
        debug_assert!(
            is_cached,
            "{kind:x?} drops nothing: PCIDs are off, so all is cached as UNTAGGED"
        );
        if !is_cached {
            return;
        }
        if !self.invpcid {
            self.uninterrupted(|| self.flush_tagged_otherwise(kind));
        } else if self.takes(kind) {
            // SAFETY: 1. CPUID has it. 2. PCIDE is set by `start`, else nothing but 0 comes here.
            // 3. as just asked.
            unsafe { self.port.invpcid(kind) };
        }
    }

    /// [`Tlb::flush_tagged`] without INVPCID. Interrupts are off, so the loaded tag stays.
    fn flush_tagged_otherwise(&self, kind: InvpcidKind) {
        let is_loaded = kind.pcid() == Some(self.loaded_pcid());
        match kind {
            InvpcidKind::Page(_, address) if is_loaded => self.port.invlpg(address),
            InvpcidKind::Context(_) if is_loaded => self.flush_non_global(),
            InvpcidKind::AllNonGlobal if !self.pcids => self.flush_non_global(),
            // Loading another tag to flush it would fill it with translations of the wrong root.
            _ => self.flush_all(),
        }
    }

    /// Whether INVPCID takes the operand: an address has to be canonical (SDM vol. 1, "Canonical
    /// Addressing"), with 57 bits where CR4.LA57 is set, else with 48.
    fn takes(&self, kind: InvpcidKind) -> bool {
        let InvpcidKind::Page(_, address) = kind else {
            return true;
        };
        let is_extended_from = |bits: u32| {
            let above = usize::BITS - bits;
            (address as isize) << above >> above == address as isize
        };
        is_extended_from(48) || (is_extended_from(57) && self.port.read_cr4() & CR4_LA57 != 0)
    }

    /// [`Tlb::flush_pages`] for the user side of a pair whose kernel side is loaded, but for global translations: for
    /// `Platform::flush_user_side`, which is true where the side is [dropped](UserSide::Dropped). It takes INVPCID, which
    /// leaves tables alone that do not lead to an address that it names; so with [`Depth::Tables`] the whole side goes. Without
    /// INVPCID it stays owed. Without PCIDs no side is cached apart, and nothing is done.
    pub fn flush_user_side(
        &self,
        pair: PcidPair,
        (start, stride_bytes, pages): (usize, usize, usize),
        depth: Depth,
    ) -> UserSide {
        if !self.pcids {
            return UserSide::Dropped;
        }
        if !self.invpcid {
            return UserSide::Owed;
        }
        if depth == Depth::Tables {
            self.flush_tagged(InvpcidKind::Context(pair.user()));
            return UserSide::Dropped;
        }
        addresses(start, stride_bytes, pages)
            .for_each(|address| self.flush_tagged(InvpcidKind::Page(pair.user(), address)));
        UserSide::Dropped
    }

    /// [`Tlb::flush_non_global`] for both sides of a pair whose kernel side is loaded.
    pub fn flush_pair(&self, pair: PcidPair) -> UserSide {
        self.flush_non_global();
        self.flush_user_side(pair, (0, 1, 0), Depth::Tables)
    }
}
