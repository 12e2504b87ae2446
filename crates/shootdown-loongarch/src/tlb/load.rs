//! Tags at boot, and loading roots. The order of each sequence is explained at the module [`tlb`](super).

use super::asid::{Asid, AsidWidth, TagEntries};
use super::ops::Tlb;
use super::port::{Invtlb, Port};

impl<P: Port> Tlb<P> {
    /// Finds out how many bits of tags this CPU keeps, by writing all and reading them back; the tag that was loaded is loaded again. A host with several kinds of
    /// CPUs takes the smallest answer. PLV 0.
    ///
    /// Everything is dropped before and behind that: what the tag had cached, and what it is filled with meanwhile.
    pub fn detect_width(port: &P) -> AsidWidth {
        let irqs = port.irq_save();
        port.invtlb(Invtlb::All);
        let said = port.read_asid();
        // SAFETY: 1. it has cached nothing now.
        unsafe { port.write_asid(Asid::ONES) };
        let read_back = port.read_asid();
        // SAFETY: 1. it was loaded until now, and no root was since.
        unsafe { port.write_asid(Asid::of_register(said)) };
        port.invtlb(Invtlb::All);
        // SAFETY: 1. of the `irq_save` above.
        unsafe { port.irq_restore(irqs) };
        AsidWidth::of_registers(said, read_back)
    }

    /// Makes this CPU one that may use the value: drops everything, whatever the firmware or an earlier life has left, and loads [`Asid::UNTAGGED`] with the root that is there.
    /// Once, before anything else here; again after the CPU was offline.
    ///
    /// # Safety
    ///
    /// 1. PLV 0, interrupts off.
    /// 2. The engine has no root loaded here: the CPU is not online. Else the loaded tag would not be the one that the engine takes it for.
    pub unsafe fn start(&self) {
        self.port.dbar();
        self.port.invtlb(Invtlb::All);
        // SAFETY: 1. what it had cached is gone, and nothing but the loaded root fills it.
        unsafe { self.port.write_asid(Asid::UNTAGGED) };
    }

    /// Loads a root under [`Asid::UNTAGGED`], dropping what that has cached but for global translations.
    ///
    /// # Safety
    ///
    /// 1. `root` is the physical address of a top-level table, at a boundary of 4 KiB, whose tables stay until another root is loaded.
    /// 2. The code and the stack that run here, and everything else that this CPU goes on using, are in a direct-mapped window or in the upper half of the address space (CSR.PGDH), of
    ///    which all roots have the same.
    #[inline]
    pub unsafe fn load_root(&self, root: u64) {
        // SAFETY: 1. and 2. the caller's. 3. nothing is kept.
        unsafe { self.load_tagged_root(root, Asid::UNTAGGED, TagEntries::Drop) };
    }

    /// Loads a root under a tag. Afterwards this CPU uses translations of that tag and global ones only; other tags keep what they have. Meanwhile it walks the tables of the root
    /// before and of the new one, and no others. Interrupts are off meanwhile.
    ///
    /// Where no tags are used the tag means nothing, and everything that is not global is dropped.
    ///
    /// # Panics
    ///
    /// In debug builds, if `asid` is the [reserved](AsidWidth::reserved) tag, or one of more bits than are used.
    ///
    /// # Safety
    ///
    /// 1. As [`Tlb::load_root`], 1.
    /// 2. As [`Tlb::load_root`], 2.
    /// 3. What `asid` has cached on this CPU, if it is kept, is true of `root`, but for pages that have [become valid](Tlb::flush_faulted).
    /// 4. `asid` is [`Asid::UNTAGGED`] or one of the tags up to [`AsidWidth::slots`], where tags are used.
    #[inline]
    pub unsafe fn load_tagged_root(&self, root: u64, asid: Asid, entries: TagEntries) {
        let Some(reserved) = self.width().reserved() else {
            // SAFETY: 1. and 2. the caller's.
            return unsafe { self.load_without_tags(root) };
        };
        debug_assert!(
            asid == Asid::UNTAGGED || asid.as_u16() <= self.width().slots(),
            "{asid:?} is reserved, or there is no such tag"
        );
        self.uninterrupted(|| {
            self.port.dbar();
            self.port.invtlb(Invtlb::Tag(reserved));
            // SAFETY: 1. it has cached nothing now.
            unsafe { self.port.write_asid(reserved) };
            // SAFETY: 1. and 2. the caller's.
            unsafe { self.port.write_pgdl(root) };
            if entries == TagEntries::Drop {
                self.port.invtlb(Invtlb::Tag(asid));
            }
            // SAFETY: 1. nothing is left, or duty 3 of the caller.
            unsafe { self.port.write_asid(asid) };
        });
    }

    /// # Safety
    ///
    /// 1. and 2. As [`Tlb::load_root`].
    unsafe fn load_without_tags(&self, root: u64) {
        self.uninterrupted(|| {
            self.port.dbar();
            // SAFETY: 1. and 2. the caller's.
            unsafe { self.port.write_pgdl(root) };
            self.port.invtlb(Invtlb::NonGlobal);
        });
    }
}
