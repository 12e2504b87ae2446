//! AMD's virtual machines (SVM), as far as their translations go.
//!
//! The rules, from APM vol. 2 (3.43: sections 15.15, 15.16 and 15.25):
//!
//! * Translations of guests, and what is cached of nested tables, belong to the *ASID* that VMRUN found in the VMCB. 0 is the host's; VMRUN refuses it
//!   ("Nested Paging"). VMRUN and #VMEXIT drop nothing by themselves, and what the host drops of its own stays cached for guests ("TLB Control").
//! * Who takes rights or pages away in nested tables, and goes on under the same ASID, has VMRUN drop it: by TLB_CONTROL 3, this ASID, or 1, everything, the
//!   host's too ("TLB Flush"). Nothing drops by guest-physical address ("Invalidate Page, Alternate ASID").
//! * TLB_CONTROL 3 and 7 are there with *flush-by-ASID* only. Without it a guest is given an ASID that nobody has used since everything was dropped last ("TLB Flush").
//! * VMRUN reads TLB_CONTROL and does not change it: what is left there is done at the next entry, too.
//! * The ASID and N_CR3 are read again only if their *clean bits* are clear ("VMCB State Caching"); TLB_CONTROL always is. [`SvmTags::enter`](crate::guest::GuestTags::enter) clears
//!   these two bits. When a VMCB goes to another CPU or to another page, the host clears all of them.
//! * Global pages are global within an ASID.
//!
//! [`SvmTags`] makes of that what [`GuestTags`](crate::guest::GuestTags) promises:
//!
//! | | flush-by-ASID | without |
//! |---|---|---|
//! | tag `n` has | ASID `n + 1` | the ASID that it was given last |
//! | keep | TLB_CONTROL 0 | the same |
//! | drop | 3 | the next ASID, and 0; when there are no more: all tags lose theirs, and 1 |
//! | slots | all ASIDs but the host's and that of tag 0 | half the ASIDs, so that they last for as many drops as there are tags |
//!
//! Not for encrypted guests (SEV), whose ASID names their key. Errata of the first processors with ASIDs (170) need no care: those have no nested paging.

mod support;
mod tags;
mod vmcb;

pub use support::{Svm, SvmFlags, SvmLacks};
pub use tags::SvmTags;
pub use vmcb::{CleanBits, TlbControl, VmcbControl};

/// [`Msr::EFER`](crate::msr::Msr::EFER): SVM is on (APM vol. 2, "Enabling SVM"). Turning it on drops no translations.
pub const EFER_SVME: u64 = 1 << 12;
/// [`Msr::VM_CR`](crate::msr::Msr::VM_CR): firmware has switched SVM off; EFER.SVME faults.
pub const VM_CR_SVMDIS: u64 = 1 << 4;
