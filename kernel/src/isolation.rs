//! In kernels that are built with `isolation`: what becomes of the user side of a tag as its kernel side is flushed, and, the last thing before user mode, whether what this
//! CPU has cached under the user root may be used.
//!
//! What changes the root is in `traps/entry.s`, what it loads in [`arch::cr3`](crate::arch).

#[cfg(all(feature = "isolation", feature = "selftest"))]
pub use isolated::CHECK;
#[cfg(feature = "isolation")]
pub use isolated::{enter_user, flush_user_side, left_user};

#[cfg(feature = "isolation")]
mod isolated {
    #[cfg(feature = "selftest")]
    use core::sync::atomic::{AtomicBool, Ordering};

    use shootdown::FlushRange;
    use shootdown::tags::{Asid, TagEntries};
    use shootdown_x86::tlb::{self as x86_tlb, Depth, UserSide};

    #[cfg(feature = "selftest")]
    use crate::arch::percpu;
    use crate::arch::{cr3, tlb};
    #[cfg(feature = "selftest")]
    use crate::cpus::MAX_CPUS;
    use crate::platform::SHOOTDOWN;

    /// What looks at the user root that is loaded next.
    #[cfg(feature = "selftest")]
    pub static CHECK: spin::Once<fn(crate::addr::PhysAddr)> = spin::Once::new();

    /// Drops pages of the user side of a tag whose kernel side is loaded, if this processor can. Interrupts are off.
    pub fn flush_user_side(asid: Asid, range: FlushRange, depth: Depth) -> bool {
        let pages = (range.start(), range.page_size().bytes(), range.page_count());
        tlb::local().flush_user_side(cr3::pair(asid), pages, depth) == UserSide::Dropped
    }

    /// Whether the engine was asked on each CPU's way to user mode.
    #[cfg(feature = "selftest")]
    static WAS_ASKED: [AtomicBool; MAX_CPUS] = [const { AtomicBool::new(false) }; MAX_CPUS];

    /// This CPU comes from user mode, but not by an NMI. Interrupts are off.
    ///
    /// # Panics
    /// In kernels with self-tests, when it went there without [`enter_user`].
    #[inline]
    pub fn left_user() {
        #[cfg(feature = "selftest")]
        {
            let was_asked = WAS_ASKED[percpu::cpu_id().index()].swap(false, Ordering::Relaxed);
            assert!(
                was_asked,
                "user mode was entered without asking whether its side of the tag is due"
            );
        }
    }

    /// This CPU goes to user mode. Interrupts are off, and stay so until it is there.
    #[inline]
    pub fn enter_user() {
        #[cfg(feature = "selftest")]
        {
            WAS_ASKED[percpu::cpu_id().index()].store(true, Ordering::Relaxed);
            if let Some(check) = CHECK.get() {
                check(cr3::user_root());
            }
        }
        // SAFETY: 1. the exit that follows writes to CR3 what is chosen here; an NMI on the way loads nothing, and behind it the same again.
        let (asid, entries) = unsafe { SHOOTDOWN.user_memory().enter_user() };
        let entries = match entries {
            TagEntries::Keep => x86_tlb::TagEntries::Keep,
            TagEntries::Drop => x86_tlb::TagEntries::Drop,
        };
        cr3::choose_entries(asid, entries);
    }
}

/// There is one root.
#[cfg(not(feature = "isolation"))]
#[inline]
pub fn left_user() {}

/// There is one root.
#[cfg(not(feature = "isolation"))]
#[inline]
pub fn enter_user() {}
