//! [`CpuMemory`]: what the engine keeps for one CPU.

use core::sync::atomic::{AtomicBool, Ordering};

use crate::call::{Inbox, Lookout, OwnPosts, PostedList, RingReader, SLOTS, Slot, TakenLinks};
use crate::cpu::CpuId;
use crate::own_set::OwnSet;
use crate::platform::Platform;
use crate::stats::Counters;
use crate::sync::{OwnFlag, OwnWord, Padded, PlainCell, array_of, const_fn};
use crate::tlb::{CpuTlb, FlushRequest, LazyMark};
use crate::watchdog::ActivityLog;

/// What the engine keeps for one CPU. The host provides it, for the CPUs that there are
/// ([`Shootdown::attach`](crate::Shootdown::attach)); only the engine looks inside.
///
/// All of it is zero at the start, so a `static` of it lies in `.bss`. Lines that other CPUs write, lines that other CPUs read, and
/// lines of the CPU's own are apart.
#[derive(Debug)]
pub struct CpuMemory<P: Platform> {
    state: CpuState<P>,
    /// It is some CPU's, of some engine.
    is_attached: AtomicBool,
}

/// The engine's state of one CPU.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct CpuState<P: Platform> {
    /// Written by every initiator that targets this CPU.
    pub(crate) inbox: Inbox<P::Cpus>,
    /// Written by every CPU that posts call data to this one.
    pub(crate) posted: Padded<PostedList>,
    /// Written by this CPU, read and acknowledged by its targets.
    pub(crate) slots: [Slot<P::Cpus>; SLOTS],
    /// Flush descriptions that are passed by pointer, one a slot ([`Policy::BEFORE`](crate::Policy::BEFORE)).
    pub(crate) indirect: [Padded<PlainCell<FlushRequest>>; SLOTS],
    /// Written by this CPU as it becomes idle and busy again, read by every initiator.
    pub(crate) lazy: LazyMark,
    own: Padded<OwnState<P>>,
}

/// What only its own CPU writes.
#[derive(Debug)]
pub(crate) struct OwnState<P: Platform> {
    pub(crate) tlb: CpuTlb,
    /// A called function runs here.
    pub(crate) in_function: OwnFlag,
    /// An interrupt came while it ran.
    pub(crate) came_again: OwnFlag,
    /// Some of `taken` have not been looked at, so that flushes may be among what they ask for.
    pub(crate) is_unsearched: OwnFlag,
    /// Functions were slow lately.
    pub(crate) is_slow: OwnFlag,
    /// Requests of others that were served since this CPU published its last one.
    pub(crate) served: OwnWord,
    /// The address of the slot whose request named this CPU alone last, with `SERVED_AGAIN` if that was so of the one before, too.
    pub(crate) served_slot: OwnWord,
    /// Flushes that this CPU has acknowledged before it did them, since the interrupted task could go on last.
    pub(crate) early_acks: OwnWord,
    /// Requests of this CPU that still leave the rings alone.
    pub(crate) ring_rest: OwnWord,
    /// Initiators that were taken out of the inbox and may have functions left. Empty but in the handler, and where a waiter serves functions.
    pub(crate) taken: OwnSet<P::Cpus>,
    /// Whom the request that is being published names. Only with interrupts off.
    pub(crate) targets: OwnSet<P::Cpus>,
    /// Whom it must interrupt. As `targets`.
    pub(crate) to_interrupt: OwnSet<P::Cpus>,
    pub(crate) ring: RingReader,
    pub(crate) counters: Counters<P>,
    pub(crate) activity: ActivityLog<P>,
    pub(crate) own_posts: OwnPosts,
    pub(crate) taken_links: TakenLinks,
    /// Since when the platform has refused an interrupt to this CPU itself, in ns; 0 if it has not.
    pub(crate) owes_interrupt_since: OwnWord,
    pub(crate) lookout: Lookout,
}

impl<P: Platform> CpuState<P> {
    const_fn! {
        fn new() -> Self {
            Self {
                inbox: Inbox::new(),
                posted: Padded(PostedList::new()),
                slots: array_of!(Slot::new(); SLOTS),
                indirect: array_of!(Padded(PlainCell::new(FlushRequest::NONE)); SLOTS),
                lazy: LazyMark::new(),
                own: Padded(OwnState {
                    tlb: CpuTlb::new(),
                    in_function: OwnFlag::new(),
                    came_again: OwnFlag::new(),
                    is_unsearched: OwnFlag::new(),
                    is_slow: OwnFlag::new(),
                    served: OwnWord::new(),
                    served_slot: OwnWord::new(),
                    early_acks: OwnWord::new(),
                    ring_rest: OwnWord::new(),
                    taken: OwnSet::new(),
                    targets: OwnSet::new(),
                    to_interrupt: OwnSet::new(),
                    ring: RingReader::new(),
                    counters: Counters::new(),
                    activity: ActivityLog::new(),
                    own_posts: OwnPosts::new(),
                    taken_links: TakenLinks::new(),
                    owes_interrupt_since: OwnWord::new(),
                    lookout: Lookout::new(),
                }),
            }
        }
    }
}

impl<P: Platform> CpuMemory<P> {
    const_fn! {
        /// Memory of no CPU yet.
        #[allow(clippy::new_without_default, reason = "not const under loom")]
        pub fn new() -> Self {
            Self {
                state: CpuState::new(),
                is_attached: AtomicBool::new(false),
            }
        }
    }

    /// The same for ever, for an engine that does not live for ever.
    ///
    /// # Safety
    /// 1. It stays where it is until the last use of the reference, and of the engine that it is [attached](crate::Shootdown::attach) to.
    pub unsafe fn assume_static(&self) -> &'static Self {
        // SAFETY: duty 1.
        unsafe { &*core::ptr::from_ref(self) }
    }

    /// It becomes the memory of `cpu`.
    ///
    /// # Panics
    /// When it is another CPU's already.
    #[track_caller]
    pub(crate) fn claim(&self, cpu: CpuId) -> &CpuState<P> {
        let was_attached = self.is_attached.swap(true, Ordering::Relaxed);
        assert!(
            !was_attached,
            "the memory for {cpu} was attached before: each CPU of each engine needs its own"
        );
        &self.state
    }
}

/// The running CPU, and its memory; who has one stays on it, with interrupts off.
#[derive(Debug)]
pub(crate) struct Here<'a, P: Platform> {
    pub(crate) cpu: CpuId,
    pub(crate) state: &'a CpuState<P>,
}

impl<P: Platform> Clone for Here<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Platform> Copy for Here<'_, P> {}

impl<'a, P: Platform> core::ops::Deref for Here<'a, P> {
    type Target = &'a CpuState<P>;

    #[inline]
    fn deref(&self) -> &&'a CpuState<P> {
        &self.state
    }
}

impl<P: Platform> core::ops::Deref for CpuState<P> {
    type Target = OwnState<P>;

    #[inline]
    fn deref(&self) -> &OwnState<P> {
        &self.own.0
    }
}

// Engines share it between CPUs by pointers that do not say so.
const _: () = {
    const fn is_sync<T: Sync>() {}
    #[allow(dead_code, reason = "for the compiler")]
    const fn check<P: Platform>() {
        is_sync::<CpuState<P>>();
    }
};
