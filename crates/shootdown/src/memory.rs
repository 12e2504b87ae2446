//! [`CpuMemory`]: what the engine keeps for one CPU.

use core::sync::atomic::AtomicBool;

use crate::call::{
    Beside, Inbox, LastAnswer, Lookout, OwnPosts, PostedList, RingReader, SLOTS, Slot, TakenLinks,
};
use crate::cpu::CpuId;
use crate::own_set::OwnSet;
use crate::platform::Platform;
use crate::quiet::Known;
use crate::stats::Counters;
use crate::sync::{AtomicU64, Ordering, OwnFlag, OwnWord, Padded, array_of, const_fn};
use crate::tlb::{CpuTlb, LazyMark, WalkState};
use crate::watchdog::{ActivityLog, Entry};

/// What the engine keeps for one CPU. The host provides it, for the CPUs that there are
/// ([`Shootdown::attach`](crate::Shootdown::attach)); only the engine looks inside.
///
/// All of it is zero at the start, so a `static` of it lies in `.bss`. Lines that other CPUs write, lines that other CPUs read, and
/// lines of the CPU's own are apart.
#[derive(Debug)]
#[repr(C)]
pub struct CpuMemory<P: Platform> {
    /// Written by every initiator that targets this CPU.
    pub(crate) inbox: Inbox<P::Cpus>,
    /// Written by every CPU that posts call data to this one.
    pub(crate) posted: Padded<PostedList>,
    /// Written by this CPU, read and acknowledged by its targets.
    pub(crate) slots: [Slot<P::Cpus>; SLOTS],
    /// What lies beside each slot.
    pub(crate) beside: [Padded<Beside>; SLOTS],
    /// Written by this CPU as it becomes idle and busy again, read by every initiator.
    pub(crate) lazy: LazyMark,
    // What follows this CPU writes; others write only its log of activities, and the counters of waits that end on it. It begins on a line of its own,
    // because `lazy` fills its lines.
    pub(crate) tlb: CpuTlb,
    /// Whether it reads page tables without a lock.
    pub(crate) walks: WalkState,
    pub(crate) known: Known,
    /// A called function runs here.
    pub(crate) in_function: OwnFlag,
    /// An interrupt came while it ran.
    pub(crate) came_again: OwnFlag,
    /// It is inside a rendezvous.
    pub(crate) is_met: OwnFlag,
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
    /// Initiators that were taken out of the inbox and may have something left. Empty where nothing is served.
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
    /// The request that it acknowledged last, or is about to.
    pub(crate) last_answer: LastAnswer,
    /// The address of the listener that it is telling something.
    pub(crate) telling: AtomicU64,
    /// Which CPU completes for this one, which has died, as its mark.
    pub(crate) declared_by: AtomicU64,
    /// It is some CPU's, of some engine.
    pub(crate) is_attached: AtomicBool,
}

impl<P: Platform> CpuMemory<P> {
    const_fn! {
        /// Memory of no CPU yet.
        #[allow(clippy::new_without_default, reason = "not const under loom")]
        pub fn new() -> Self {
            Self {
                inbox: Inbox::new(),
                posted: Padded(PostedList::new()),
                slots: array_of!(Slot::new(); SLOTS),
                beside: array_of!(Padded(Beside::new()); SLOTS),
                lazy: LazyMark::new(),
                tlb: CpuTlb::new(),
                walks: WalkState::new(),
                known: Known::new(),
                in_function: OwnFlag::new(),
                came_again: OwnFlag::new(),
                is_met: OwnFlag::new(),
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
                last_answer: LastAnswer::new(),
                telling: AtomicU64::new(0),
                declared_by: AtomicU64::new(0),
                is_attached: AtomicBool::new(false),
            }
        }
    }

    /// Its CPU has stopped for good, and answers nothing any more: as if it had never served anything. Its mark stays, which says where it was.
    pub(crate) fn reset(&self) {
        let flags = [
            &self.in_function,
            &self.came_again,
            &self.is_met,
            &self.is_unsearched,
        ];
        flags.into_iter().for_each(|flag| flag.set(false));
        self.early_acks.set(0);
        self.owes_interrupt_since.set(0);
        self.taken.clear();
        self.telling.store(0, Ordering::Relaxed);
        self.walks.reset();
        self.tlb.reset();
        self.activity.begins(Entry::NONE);
    }

    /// The same for ever, for an engine that does not live for ever.
    ///
    /// # Safety
    /// 1. It stays where it is until the last use of the reference, and of the engine that it is [attached](crate::Shootdown::attach) to.
    pub unsafe fn assume_static(&self) -> &'static Self {
        // SAFETY: duty 1.
        unsafe { &*core::ptr::from_ref(self) }
    }
}

/// The running CPU, and its memory. Interrupts are off as long as it is there; where a CPU polls idly, it stays on this CPU at least.
#[derive(Debug)]
pub(crate) struct Here<'a, P: Platform> {
    pub(crate) cpu: CpuId,
    pub(crate) state: &'a CpuMemory<P>,
}

impl<P: Platform> Clone for Here<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Platform> Copy for Here<'_, P> {}

impl<'a, P: Platform> core::ops::Deref for Here<'a, P> {
    type Target = &'a CpuMemory<P>;

    #[inline]
    fn deref(&self) -> &&'a CpuMemory<P> {
        &self.state
    }
}
