//! With isolation: what entries and exits write to CR3.

use shootdown::tags::Asid;
use shootdown_x86::Pcid;
use shootdown_x86::tlb::{PcidPair, TagEntries};

use super::{percpu, tlb, top};
use crate::addr::PhysAddr;

/// Clear in what CR3 reads as.
const KEEPS: u64 = 1 << 63;
/// Where the root is in it.
const ROOT: u64 = 0x000f_ffff_ffff_f000;

/// The PCIDs of a tag.
///
/// # Panics
///
/// When there are fewer pairs than tags.
pub fn pair(asid: Asid) -> PcidPair {
    let pair = Pcid::new(asid.as_u16()).and_then(PcidPair::new);
    pair.expect("there are fewer slots than pairs of PCIDs")
}

/// This CPU is about to load `root`: entries and exits are to know. Interrupts are off.
pub fn note_root(root: PhysAddr, asid: Asid) {
    let (tlb, pair) = (tlb::local(), pair(asid));
    let user = top::user_root(root).map_or(0, PhysAddr::as_u64);
    percpu::set_cr3((
        tlb.cr3_of(root.as_u64(), pair.kernel(), TagEntries::Keep),
        tlb.cr3_of(user, pair.user(), TagEntries::Drop),
    ));
}

/// The next exit of this CPU loads the user root under the user side of `asid`, and keeps what that has cached or drops it. Interrupts are off until then.
///
/// # Panics
///
/// When the loaded root has none: the kernel's own.
pub fn choose_entries(asid: Asid, entries: TagEntries) {
    let root = user_root().as_u64();
    assert!(root != 0, "user mode on a root without a user half");
    percpu::set_user_cr3(tlb::local().cr3_of(root, pair(asid).user(), entries));
}

/// The user root of the root that this CPU has loaded. Interrupts are off.
pub fn user_root() -> PhysAddr {
    PhysAddr::new(percpu::user_cr3() & !KEEPS & ROOT)
}
