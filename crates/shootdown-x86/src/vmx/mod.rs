//! Intel's virtual machines (VMX), as far as their translations go. **Unproven on silicon**: tested on an emulated processor only.
//!
//! The rules, from SDM vol. 3C, "Caching Translation Information" of the chapter "VMX Support for Address Translation" (28.4 in the edition of 2021, 29.4 later):
//!
//! * A processor caches three kinds of things ("Information That May Be Cached"): *linear* mappings, of page tables where EPT is not in use, under the VPID;
//!   *guest-physical* mappings, of EPT tables, under the EP4TA (bits 51:12 of the EPT pointer) and **under no VPID**; *combined* mappings, of both, under both.
//! * While EPT is in use it uses combined and guest-physical ones of the present VPID and EP4TA, and no linear ones ("Creating and Using Cached Translation Information").
//! * INVEPT drops guest-physical and combined mappings of an EP4TA, those for all VPIDs. INVVPID drops linear and combined mappings of a VPID, those
//!   for all EP4TAs ("Operations that Invalidate Cached Mappings").
//! * INVVPID need not drop a guest-physical mapping, nor INVEPT a linear one; with VPIDs on, entries and exits drop nothing, and VMXON and VMXOFF nothing at all
//!   ("Operations that Need Not Invalidate Cached Mappings").
//! * So who takes rights or pages away in EPT tables executes INVEPT; widened rights need nothing, an EPT violation drops what led to it ("Guidelines for
//!   Use of the INVEPT Instruction"). INVVPID would leave guest-physical mappings, which another walk combines again.
//! * And with EPT in use INVVPID adds nothing to an INVEPT: what could be left, linear mappings and those of other EP4TAs, is not used. It is for what the host does to a guest's
//!   own tables while nested ones stay as they are, and drops less then: other virtual CPUs keep theirs, and all keep the guest-physical ones.
//! * Accessed and dirty flags that are turned on in the EPT pointer of the same tables ask for an INVEPT before the entry (the same section): give it as [`GuestEntries::Drop`](crate::guest::GuestEntries::Drop).
//!
//! [`VmxTags`] makes of that:
//!
//! | | |
//! |---|---|
//! | tag `n` has | VPID `n + 1`, in the field of the VMCS ("enable VPID" and "enable EPT" are on) |
//! | keep | nothing |
//! | drop, linear | INVVPID of the VPID; else of all VPIDs; else as below |
//! | drop | INVEPT of the EPT pointer, which other virtual CPUs *of this guest* feel on this CPU; else of all |
//!
//! What there is says IA32_VMX_EPT_VPID_CAP ([`EptVpidCap`]).

mod capabilities;
mod port;
mod tags;

pub use capabilities::{EptVpidCap, VmxLacks};
pub use port::{Hardware, InveptKind, InvvpidKind, Port, VmFail, VmcsField};
pub use tags::{CurrentVmcs, VmxTags};
