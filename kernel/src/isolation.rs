//! The last thing before user mode, in kernels that are built with `isolation`: the engine says whether what this CPU has cached under the user root may be used.
//!
//! What changes the root is in `traps/entry.s`, what it loads in [`arch::isolation`](crate::arch).

#[cfg(all(feature = "isolation", feature = "selftest"))]
pub use isolated::CHECK;
#[cfg(feature = "isolation")]
pub use isolated::enter_user;

#[cfg(feature = "isolation")]
mod isolated {
    use shootdown::tags::TagEntries;
    use shootdown_x86::tlb as x86_tlb;

    use crate::arch::isolation;
    use crate::platform::SHOOTDOWN;

    /// What looks at the user root that is loaded next.
    #[cfg(feature = "selftest")]
    pub static CHECK: spin::Once<fn(crate::addr::PhysAddr)> = spin::Once::new();

    /// This CPU goes to user mode. Interrupts are off, and stay so until it is there.
    #[inline]
    pub fn enter_user() {
        #[cfg(feature = "selftest")]
        if let Some(check) = CHECK.get() {
            check(isolation::user_root());
        }
        // SAFETY: 1. the exit that follows writes to CR3 what is chosen here; an NMI on the way loads nothing, and behind it the same again.
        let (asid, entries) = unsafe { SHOOTDOWN.user_memory().enter_user() };
        let entries = match entries {
            TagEntries::Keep => x86_tlb::TagEntries::Keep,
            TagEntries::Drop => x86_tlb::TagEntries::Drop,
        };
        isolation::choose_entries(asid, entries);
    }
}

/// There is one root.
#[cfg(not(feature = "isolation"))]
#[inline]
pub fn enter_user() {}
