//! Loading roots: what comes before the write of `satp`, and what behind.

use super::asid::{Asid, AsidBits, TagEntries};
use super::mode::{Mode, SATP_ASID};
use super::ops::Tlb;
use super::port::{Fence, Port};

impl<P: Port> Tlb<P> {
    /// Loads a root under [`Asid::UNTAGGED`], dropping all translations of that tag that are not global: without ASIDs all that are not global. Interrupts off.
    ///
    /// # Safety
    ///
    /// 1. `root` maps the code, the stack and everything else that this hart goes on using, until another one is loaded.
    /// 2. It is the physical address of a table of the top level of [`Tlb::mode`].
    pub unsafe fn load_root(&self, root: u64) {
        // SAFETY: 1. and 2. the caller's. 3. nothing is kept.
        unsafe { self.load_tagged_root(root, Asid::UNTAGGED, TagEntries::Drop) };
    }

    /// Loads a root under a tag. Afterwards this hart uses translations of that tag and global ones only; other tags keep what they have. Without
    /// [ASIDs](Tlb::asid_bits) the tag means nothing, and everything that is not global is dropped. Interrupts off.
    ///
    /// | | | by (Privileged, "Supervisor Memory-Management Fence Instruction") |
    /// |---|---|---|
    /// | `Keep` | `satp` | nothing is to be dropped; what became valid since may [fault once more](Tlb::retry) |
    /// | `Drop`, another tag is loaded | SFENCE.VMA of the new tag, `satp` | "while a different ASID is loaded [..] provided the next time `satp` is loaded with the recycled ASID, it is simultaneously loaded with the new page table" |
    /// | `Drop`, the tag is loaded | SFENCE.VMA of the tag, `satp`, SFENCE.VMA of the tag | the last two: "it should first change `satp` [..], then execute SFENCE.VMA" |
    /// | no ASIDs | the same with ASID 0 | the last two: "If the implementation does not provide ASIDs [..] then after every `satp` write" |
    ///
    /// Why before, with another tag: while a tag is not loaded, flushes of its space pass this hart by, and what it has cached may lead to tables that are long freed. The hart may walk by
    /// it from the write of `satp` on. Why before, with the same one: a table of the new space may have been unlinked on this very hart, and freed at once because nobody had the space
    /// loaded. "Writing `satp` does not imply any ordering constraints between page-table updates and subsequent address translations", so without a fence a walk may still read what led there; where the walker
    /// sets A bits (Svadu), it would write to what that memory is by now. Why behind, with the same tag: what is dropped before comes back from the old root until the write.
    ///
    /// In the last two rows the hart walks what it has cached of the root before until the call returns; so that root's tables stay until then (`Platform`, contract 4).
    ///
    /// # Panics
    ///
    /// In debug builds, where [harts have no such tag](AsidBits::has), but others: a fence ignores bits that they do not have, and would drop another one.
    ///
    /// # Safety
    ///
    /// 1. `root` maps the code, the stack and everything else that this hart goes on using, until another one is loaded.
    /// 2. It is the physical address of a table of the top level of [`Tlb::mode`], and harts [have](AsidBits::has) the tag, if there are any ASIDs.
    /// 3. What `asid` has cached on this hart, if it is kept, is true of `root`.
    pub unsafe fn load_tagged_root(&self, root: u64, asid: Asid, entries: TagEntries) {
        let (asid, entries) = if self.asid_bits == AsidBits::NONE {
            (Asid::UNTAGGED, TagEntries::Drop)
        } else {
            let bits = self.asid_bits;
            debug_assert!(bits.has(asid), "{asid:?} with {bits:?}");
            (asid, entries)
        };
        let drops = entries == TagEntries::Drop;
        let is_loaded = drops && self.loaded_asid() == asid;
        // Also if it is loaded: the stores to the new root's tables come before any walk of them.
        if drops {
            self.fence(Fence::Tag(asid));
        }
        // SAFETY: 1. duties 1 and 2 of the caller. 2. duty 3, or dropped above or below.
        unsafe { self.port.write_satp(self.mode.satp(root, asid)) };
        if is_loaded {
            self.fence(Fence::Tag(asid));
        }
    }
}

/// How many bits of ASID the calling hart has, found "by writing one to every bit position in the ASID field, then reading back" (Privileged, "Supervisor Address
/// Translation and Protection (satp) Register"). Everything that the hart has cached is dropped; the root and its tag are as before.
///
/// On each hart, or on one of each kind, before any of them uses tags.
///
/// # Panics
///
/// Where no root is loaded: then the field is reserved.
///
/// # Safety
///
/// 1. Interrupts are off, and the loaded root maps what this hart uses.
/// 2. `port` acts on the hart that calls, as [`Port`] says.
pub unsafe fn detect_asid_bits<P: Port>(port: &P) -> AsidBits {
    let before = port.read_satp();
    assert!(
        Mode::of_satp(before).is_some(),
        "satp is {before:#x}: no root is loaded"
    );
    // What the borrowed tag has cached of somebody before this kernel may lead to tables that are long freed.
    port.sfence_vma(Fence::All);
    // SAFETY: 1. the root that is loaded. 2. dropped above: from here on it is cached of that root.
    unsafe { port.write_satp(before | SATP_ASID) };
    let field = port.read_satp() & SATP_ASID;
    // SAFETY: 1. and 2. the root and the tag that were there.
    unsafe { port.write_satp(before) };
    // Behind the write: what the borrowed tag has cached comes back as long as it is loaded.
    port.sfence_vma(Fence::All);
    AsidBits::of_field(field >> SATP_ASID.trailing_zeros())
}
