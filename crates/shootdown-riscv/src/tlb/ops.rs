//! Invalidation as an engine asks for it: pages, a tag, everything.

use super::asid::{Asid, AsidBits};
use super::entry::{Access, allows};
use super::mode::{self, Mode};
use super::port::{Fence, Port};
use crate::features::{Features, Processor};

/// Above so many fences [`Tlb::flush_pages`] drops everything, if the host says nothing else. Linux has the same figure (`tlb_flush_all_threshold`, `arch/riscv/mm/tlbflush.c`).
pub const CEILING: usize = 64;

const BASE_PAGE: usize = 4096;
/// The smallest page that is an entry of its own above the lowest level.
const MEGAPAGE: usize = 2 << 20;

/// What a flush of pages is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Depth {
    /// Leaf entries were changed.
    Leaf,
    /// Tables were unlinked, and may be freed: what leads to them goes, too.
    Tables,
}

/// The translation caches of whichever hart calls.
#[derive(Clone, Copy, Debug)]
pub struct Tlb<P: Port> {
    pub(super) port: P,
    pub(super) mode: Mode,
    pub(super) asid_bits: AsidBits,
    features: Features,
    /// Fences that name an address or an ASID work.
    is_exact: bool,
    ceiling: usize,
}

impl<P: Port> Tlb<P> {
    /// The caches of harts with these features, which load roots for `mode`, with ASIDs of `asid_bits` ([`detect_asid_bits`](super::detect_asid_bits); of harts that differ, the fewest).
    ///
    /// # Safety
    ///
    /// 1. `features` hold on every hart that uses the value, and each of them has `mode` and at least `asid_bits`.
    /// 2. No hart that uses it has erratum CIP-1200, or `processor` is one that [has](Processor::has_cip_1200).
    /// 3. `port` acts on the hart that calls, as [`Port`] says.
    pub const unsafe fn new(
        port: P,
        mode: Mode,
        asid_bits: AsidBits,
        features: Features,
        processor: Processor,
    ) -> Self {
        Self {
            port,
            mode,
            asid_bits,
            features,
            is_exact: !processor.has_cip_1200(),
            ceiling: CEILING,
        }
    }

    /// The same with another ceiling, in fences: 0 drops everything always.
    pub const fn with_ceiling(mut self, fences: usize) -> Self {
        self.ceiling = fences;
        self
    }

    /// How many bits this value gives to ASIDs.
    pub const fn asid_bits(&self) -> AsidBits {
        self.asid_bits
    }

    /// The translation scheme of the roots.
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// A fence, or one of everything where others do not work.
    pub(super) fn fence(&self, what: Fence) {
        let works = self.is_exact;
        self.port.sfence_vma(if works { what } else { Fence::All });
    }

    /// Drops the page that holds `address`, global or not, under every tag; of a large page any address will do. Any context.
    ///
    /// Not for tables that were freed: [`Tlb::flush_pages`].
    #[inline]
    pub fn flush_page(&self, address: usize) {
        self.fence(Fence::Page(address));
    }

    /// Drops `pages` pages of `stride_bytes` each, as [`Tlb::flush_page`], from `start` on, where one begins. With [`Depth::Tables`], and above the
    /// [ceiling](Tlb::with_ceiling), everything. Any context.
    ///
    /// Pages below 2 MiB are dropped 4 KiB by 4 KiB, because a TLB may hold a region of Svnapot as 4 KiB pages, or the other way round: "SFENCE.VMA instruction(s) covering all
    /// 4 KiB regions within the range" (Privileged, "Svnapot").
    ///
    /// The range must not wrap around the end of the address space; the part beyond is left out.
    pub fn flush_pages(&self, start: usize, stride_bytes: usize, pages: usize, depth: Depth) {
        let (step, fences) = if stride_bytes < MEGAPAGE {
            (
                BASE_PAGE,
                pages.saturating_mul(stride_bytes.div_ceil(BASE_PAGE)),
            )
        } else {
            (stride_bytes, pages)
        };
        // An address orders and drops leaves only, so freed tables take a fence without one.
        if depth == Depth::Tables || fences > self.ceiling || !self.is_exact {
            self.port.sfence_vma(Fence::All);
        } else if self.features.has(Features::SVINVAL) && fences > 1 {
            self.invalidate(addresses(start, step, fences));
        } else {
            addresses(start, step, fences).for_each(|address| self.fence(Fence::Page(address)));
        }
    }

    /// As many fences that name an address, by Svinval: the same effect, and one wait (Privileged, "Svinval").
    fn invalidate(&self, addresses: impl Iterator<Item = usize>) {
        // Stores come before what is invalidated ...
        // SAFETY: 1. duty 1 of `new`.
        unsafe { self.port.sfence_w_inval() };
        for address in addresses {
            // SAFETY: as above.
            unsafe { self.port.sinval_vma(address) };
        }
        // ... and that before later walks.
        // SAFETY: as above.
        unsafe { self.port.sfence_inval_ir() };
    }

    /// Drops all that the loaded tag has cached, entries of tables too; global translations stay. Where there are no ASIDs that is all that is not global.
    ///
    /// Call it where no other root is loaded meanwhile on this hart (interrupts off, if handlers load any): it reads the tag first.
    pub fn flush_loaded_tag(&self) {
        self.fence(Fence::Tag(self.loaded_asid()));
    }

    /// Drops everything, global translations and all tags too. Any context.
    pub fn flush_all(&self) {
        self.port.sfence_vma(Fence::All);
    }

    /// For the handler of a page fault that found `leaf` in the tables, for the address that faulted: if the entry [allows] the access by now, the fault was
    /// spurious, whatever its A and D are where the walker [sets them](Features::SVADU). This hart then drops what it has cached, and the access is to be made again: true. Else nothing happens: false.
    ///
    /// It drops everything, not the page: what was cached may be an invalid entry *above* the leaf, from before a table was linked, and an address names leaves only.
    #[must_use]
    pub fn retry(&self, leaf: u64, access: Access) -> bool {
        let is_spurious = allows(leaf, access, self.features);
        if is_spurious {
            self.flush_all();
        }
        is_spurious
    }

    /// The loaded tag; [`Asid::UNTAGGED`] where there are no ASIDs.
    pub(super) fn loaded_asid(&self) -> Asid {
        if self.asid_bits == AsidBits::NONE {
            Asid::UNTAGGED
        } else {
            mode::asid_of(self.port.read_satp())
        }
    }
}

/// The first addresses of pages so far apart; those beyond the end of the address space are left out.
fn addresses(start: usize, step: usize, pages: usize) -> impl Iterator<Item = usize> {
    (0..pages).map_while(move |page| start.checked_add(page.checked_mul(step)?))
}
