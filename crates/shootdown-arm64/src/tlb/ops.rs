//! Invalidation as an engine asks for it: pages, a space, everything.

use super::broadcast::Broadcast;
use super::operand::{Asid, Depth, Granule, Reach, Tlbi};
use super::port::{Dsb, Port};
use super::steps::{Pages, Step};
use crate::errata::Errata;
use crate::features::Features;

/// Above so many instructions everything is dropped instead: Linux's `MAX_DVM_OPS` with pages of 4 KiB (`arch/arm64/include/asm/tlbflush.h`). The engine asks for fewer.
pub const CEILING_OPERATIONS: usize = 512;

/// The translations of whichever CPU calls, of the regime of EL1 and EL0.
#[derive(Clone, Copy, Debug)]
pub struct Tlb<P: Port> {
    pub(super) port: P,
    granule: Granule,
    ranges: bool,
    pub(super) errata: Errata,
    pub(super) features: Features,
    /// The physical address of a table without entries.
    pub(super) empty: u64,
}

impl<P: Port> Tlb<P> {
    /// Those of CPUs with these features and errata, by this port. `empty` is the physical address of a top table without entries, aligned as a root.
    ///
    /// # Safety
    ///
    /// 1. `features` hold on every CPU that uses the value, and `errata` are those of all CPUs of the inner shareable domain, [merged](Errata::merge).
    /// 2. `granule` is that of TTBR0_EL1 and TTBR1_EL1 there. TCR_EL1.DS is 0, or [`Tlb::without_ranges`] is called.
    /// 3. The table at `empty` stays, and stays empty.
    /// 4. Each of these CPUs runs [`Tlb::start`] before anything but [`publish`](Self::publish).
    /// 5. The port does on the CPU that calls what [`Port`] says.
    ///
    /// # Panics
    ///
    /// Without the [granule](Features::has_granule).
    pub const unsafe fn new(
        port: P,
        features: &Features,
        errata: Errata,
        granule: Granule,
        empty: u64,
    ) -> Self {
        assert!(features.has_granule(granule), "no such granule");
        Self {
            port,
            granule,
            ranges: features.has_tlbi_ranges(),
            errata,
            features: *features,
            empty,
        }
    }

    /// The same without invalidations of ranges.
    pub const fn without_ranges(mut self) -> Self {
        self.ranges = false;
        self
    }

    /// The port.
    pub const fn port(&self) -> &P {
        &self.port
    }

    /// The same TLBs on all CPUs; none where the machine's errata [forbid it](Errata::allows_broadcast).
    pub fn broadcast(&self) -> Option<Broadcast<'_, P>> {
        let allowed = self.errata.allows_broadcast();
        allowed.then_some(Broadcast { tlb: self })
    }

    /// Makes this CPU's stores to page tables visible to the walkers of all CPUs, and has its own next instruction use them: for entries that have become valid.
    #[inline]
    pub fn publish(&self) {
        self.port.dsb(Dsb::Stores);
        self.port.isb();
    }

    /// This CPU executes nothing from here on that it fetched or translated before: ISB, for `Platform::synchronise_here`. Caches of instructions are the business of whoever changed them.
    #[inline]
    pub fn synchronise(&self) {
        self.port.isb();
    }

    /// Drops pages on this CPU, global ones too, under every ASID; with [`Depth::Tables`] also what leads to them. An address in each page will do. With tables and pages larger than the granule, or above
    /// [`CEILING_OPERATIONS`], everything.
    #[inline]
    pub fn flush_pages(&self, pages: Pages, depth: Depth) {
        self.flush(|| self.issue(Reach::Own, None, pages, depth));
    }

    /// Drops all on this CPU that is not global under the loaded tag. The caller stays on this CPU.
    #[inline]
    pub fn flush_space(&self) {
        self.flush_tag(self.loaded());
    }

    /// Drops all on this CPU that is not global under a tag. A tag that is loaded fills again at once.
    #[inline]
    pub fn flush_tag(&self, tag: Asid) {
        self.flush(|| self.invalidate(Reach::Own, Tlbi::Tag(tag)));
    }

    /// Drops everything on this CPU.
    pub fn flush_all(&self) {
        self.flush(|| self.invalidate(Reach::Own, Tlbi::All));
    }

    /// The loaded tag.
    #[inline]
    pub fn loaded(&self) -> Asid {
        Asid::of_bits(self.port.read_ttbr0())
    }

    /// The barriers around TLBIs of this CPU alone ([why these](super#barriers)).
    #[inline]
    fn flush(&self, issue: impl FnOnce()) {
        self.port.dsb(Dsb::Full);
        issue();
        self.port.dsb(Dsb::Own);
        self.port.isb();
    }

    /// One that is no range.
    #[inline]
    pub(super) fn invalidate(&self, reach: Reach, operation: Tlbi) {
        debug_assert!(!matches!(operation, Tlbi::Range(..)));
        // SAFETY: 1. no range is named.
        unsafe { self.port.tlbi(reach, operation) };
    }

    /// The TLBIs for pages, without barriers.
    pub(super) fn issue(&self, reach: Reach, tag: Option<Asid>, pages: Pages, depth: Depth) {
        let ranges = self.ranges.then_some(self.granule);
        // One address leads to one table of each level, a larger page may have had many tables of the lower ones.
        let leaves_tables = depth == Depth::Tables && pages.stride_bytes > self.granule.bytes();
        if leaves_tables || pages.operations(ranges) > CEILING_OPERATIONS {
            return self.invalidate(reach, tag.map_or(Tlbi::All, Tlbi::Tag));
        }
        for step in pages.steps(ranges) {
            let operation = match step {
                // Bits below the granule are reserved.
                Step::Page(address) => {
                    Tlbi::Page(tag, address & !(self.granule.bytes() - 1), depth)
                }
                Step::Range(range) => Tlbi::Range(tag, range, depth),
            };
            // SAFETY: 1. `steps` has ranges only where the features have them.
            unsafe { self.port.tlbi(reach, operation) };
        }
    }
}
