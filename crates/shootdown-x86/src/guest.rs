//! Tags of guests: what a processor caches while it runs them, the same for [SVM](crate::svm) and [VMX](crate::vmx).
//!
//! A hypervisor is written once, against [`GuestTags`]; each CPU has one, [`SvmTags`](crate::svm::SvmTags) or
//! [`VmxTags`](crate::vmx::VmxTags). Who decides which tag a virtual CPU runs under, and when it has to be dropped, is
//! `shootdown::guest::GuestSpace::run`, or whoever else compares generations:
//!
//! | when | what |
//! |---|---|
//! | boot | [`Svm::detect`](crate::svm::Svm::detect), or [`EptVpidCap`](crate::vmx::EptVpidCap) from its register |
//! | a CPU comes online, each time | enable SVM or VMX; a new `SvmTags` or `VmxTags`: what an old one knew counts no more |
//! | `Platform::guest_slots` | as many slots as [`GuestTags::slots`] allows, and as virtual CPUs take turns on a CPU: 64 are plenty |
//! | in `GuestSpace::run`, interrupts off | [`GuestTags::enter`], then VMRUN or VMLAUNCH/VMRESUME, then [`GuestTags::ran`] and `GuestExit::Ran` |
//! | the guest was not entered, or the processor refused its state | not `ran`; `GuestExit::NotEntered` |
//! | the host changes nested tables | nothing here: `submit_flush` or `submit_batch`, after the change |
//! | the host changes CR0, CR3, CR4 or EFER of a guest, or flushes for it | nothing here: `Vcpu::drop_translations` |
//! | the guest flushes itself (INVLPG, CR3, INVPCID) | nothing: without intercepts it drops its own, where it runs |
//!
//! ```
//! use shootdown_x86::guest::{EnterError, GuestEntries, GuestEntry, GuestTags};
//!
//! /// The closure of `GuestSpace::run`. `vmrun` returns false if the processor refused the guest's state.
//! fn run<T: GuestTags>(
//!     tags: &mut T,
//!     entry: GuestEntry,
//!     control: &mut T::Control,
//!     vmrun: impl FnOnce(&mut T::Control) -> bool,
//! ) -> Result<bool, EnterError> {
//!     tags.enter(entry, control)?;
//!     let ran = vmrun(control);
//!     if ran {
//!         tags.ran();
//!     }
//!     Ok(ran)
//! }
//! ```
//!
//! Tag `n` is the processor's tag (ASID, VPID) `n + 1`, where it does not change them itself ([`svm`](crate::svm), without flush-by-ASID):
//! 0 is the host's, and 1 that of guests without a tag of their own.

use core::error::Error;
use core::fmt;

use crate::vmx::VmFail;

/// How a guest is to be entered. `shootdown::guest::GuestEntry` says the same in the engine's types.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GuestEntry {
    /// The nested page tables: N_CR3 (SVM), the EPT pointer with its low bits (VMX).
    pub root: u64,
    /// The tag, 1 to [`GuestTags::slots`]; 0 for a guest without one, of which all is dropped whatever `entries` says.
    pub tag: u16,
    /// What may be used of what the tag has cached.
    pub entries: GuestEntries,
}

/// What happens, as a guest is entered, to what its tag has cached.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum GuestEntries {
    /// It may be used.
    Keep,
    /// What the guest's own page tables said is dropped: they were changed while the virtual CPU did not run, or ran elsewhere. Only for the
    /// virtual CPU that had the tag last, whose nested tables were not changed since. VMX drops less than with [`Drop`](Self::Drop); SVM the same.
    DropLinear,
    /// All of it is dropped, what nested tables said too.
    Drop,
}

/// The tags of one CPU. On that CPU only, and from one entry to the end of the guest's run with interrupts off.
pub trait GuestTags {
    /// What the processor reads as it enters the guest.
    type Control;

    /// How many tags may be used besides 0: the most that `Platform::guest_slots` should give this CPU. The same as long as the value lives.
    fn slots(&self) -> usize;

    /// Has the next entry by `control` use `entry`, and nothing that it says is dropped. Other tags keep what they have, but where the processor
    /// cannot drop as little. To be called before every entry: what the last one left in `control` would be done again.
    ///
    /// # Errors
    /// The guest must not be entered. Nothing of `entry` may be taken for dropped.
    fn enter(&mut self, entry: GuestEntry, control: &mut Self::Control) -> Result<(), EnterError>;

    /// The guest ran after the last [`enter`](Self::enter). Whoever forgets it, or asks the processor in vain, has more dropped than needed, never less.
    fn ran(&mut self) {}
}

/// Why a guest cannot be entered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EnterError {
    /// There is no such tag: [`GuestTags::slots`].
    NoSuchTag(u16),
    /// These are no nested page tables: not at a page boundary.
    BadRoot(u64),
    /// The processor refused an instruction of VMX, as for an EPT pointer that it does not take.
    Refused(VmFail),
}

impl fmt::Display for EnterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchTag(tag) => write!(f, "guests have no tag {tag} on this CPU"),
            Self::BadRoot(root) => write!(f, "no nested page tables at {root:#x}"),
            Self::Refused(fail) => write!(f, "{fail}"),
        }
    }
}

impl Error for EnterError {}

impl From<VmFail> for EnterError {
    fn from(fail: VmFail) -> Self {
        Self::Refused(fail)
    }
}
