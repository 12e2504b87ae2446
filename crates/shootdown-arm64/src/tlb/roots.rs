//! Loading roots, and what they rest on.

use super::operand::{Asid, AsidBits, Reach, TagEntries, Tlbi};
use super::ops::Tlb;
use super::port::{Dsb, Port};

/// TCR_EL1.A1: the ASID is TTBR1_EL1's. TCR_EL1.AS: ASIDs have 16 bits (DDI 0487, D24.2, "TCR_EL1").
const TCR_A1: u64 = 1 << 22;
const TCR_AS: u64 = 1 << 36;
/// TTBR0_EL1.BADDR, in bits 47:1 (D24.2, "TTBR0_EL1"). Bit 0 is CnP.
const TTBR_BADDR: u64 = 0xffff_ffff_fffe;

impl<P: Port> Tlb<P> {
    /// Brings this CPU into the state that the value expects: A1 clear, AS set where the features have 16 bits, the empty table under [`Asid::UNTAGGED`] in TTBR0_EL1, CnP clear, and nothing cached but what is
    /// behind TTBR1_EL1. Returns how wide its ASIDs are: what AS reads back, it is reserved where there are eight bits. (TTBR0_EL1 itself says nothing: while AS is clear all 16 bits read back, and eight of them mean
    /// nothing.) A machine has as many as the CPU with the fewest.
    ///
    /// Both bits may be cached in TLBs (D24.2), so everything is dropped behind. By then the root of a loader is gone: from an identity map global entries would come back, which no load drops.
    ///
    /// # Safety
    ///
    /// 1. Interrupts are off.
    /// 2. Nothing that this CPU uses is translated by TTBR0_EL1, and TTBR1_EL1.CnP is 0.
    pub unsafe fn start(&self) -> AsidBits {
        let wide = match self.features.asid_bits() {
            AsidBits::Eight => 0,
            AsidBits::Sixteen => TCR_AS,
        };
        let tcr = self.port.read_tcr() & !(TCR_A1 | TCR_AS) | wide;
        // SAFETY: 1. only A1 and AS change.
        unsafe { self.port.write_tcr(tcr) };
        // SAFETY: 1. duty 2. 2. nothing that is used is cached, by duty 2, and then nothing at all.
        unsafe { self.write_root(self.empty, Asid::UNTAGGED) };
        self.flush_all();
        match self.port.read_tcr() & TCR_AS {
            0 => AsidBits::Eight,
            _ => AsidBits::Sixteen,
        }
    }

    /// Loads a root under [`Asid::UNTAGGED`] and drops what that tag has: for hosts that use no tags, all that is not global.
    ///
    /// # Safety
    ///
    /// As [`Tlb::load_tagged_root`].
    #[inline]
    pub unsafe fn load_root(&self, root: u64) {
        // SAFETY: 1. to 3. the caller's. 4. nothing is kept.
        unsafe { self.load_tagged_root(root, Asid::UNTAGGED, TagEntries::Drop) };
    }

    /// Loads a root, its physical address, under a tag. Afterwards this CPU uses translations of that tag and global ones only, and with [`TagEntries::Drop`] none that the tag had before; meanwhile it walks no tables
    /// but those of the root before and of the new one ([why this order](super#loading-a-root)).
    ///
    /// # Safety
    ///
    /// 1. Interrupts are off.
    /// 2. `root` is a top table that stays until another is loaded. Nothing that this CPU uses meanwhile is translated by TTBR0_EL1.
    /// 3. The tag is below `1 <<` what [`Tlb::start`] returned: further bits would be ignored, and the tag another.
    /// 4. What the tag has cached on this CPU, if it is kept, is true of `root`.
    pub unsafe fn load_tagged_root(&self, root: u64, tag: Asid, entries: TagEntries) {
        let (before, splits) = (self.loaded(), self.errata.needs_split_loads());
        self.port.dsb(Dsb::Full);
        if splits || entries == TagEntries::Drop && before == tag {
            // SAFETY: 1. duty 2. 2. the table has no entries, and what is cached is true of the root before.
            unsafe { self.write_root(self.empty, before) };
        }
        if entries == TagEntries::Drop {
            self.invalidate(Reach::Own, Tlbi::Tag(tag));
            self.port.dsb(Dsb::Own);
        }
        if splits {
            // SAFETY: 1. duty 2. 2. as the last.
            unsafe { self.write_root(self.empty, tag) };
        }
        // SAFETY: 1. duty 2. 2. duty 4; else it was dropped, and nothing came back.
        unsafe { self.write_root(root, tag) };
    }

    /// # Safety
    ///
    /// 1. and 2. as [`Port::write_ttbr0`].
    #[inline]
    unsafe fn write_root(&self, root: u64, tag: Asid) {
        debug_assert!(root & !TTBR_BADDR == 0, "{root:#x} is not a root");
        // SAFETY: 1. and 2. the caller's.
        unsafe { self.port.write_ttbr0(root & TTBR_BADDR | tag.bits()) };
        self.port.isb();
    }
}
