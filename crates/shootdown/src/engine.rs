//! [`Shootdown`]: the engine itself, its per-CPU state, and bringing CPUs online.

use crate::atomic_mask::AtomicCpuMask;
use crate::call::{Ears, Inbox, Ring, SLOTS, Slot};
use crate::capacity::{Capacity, Cpus};
use crate::cpu::CpuId;
use crate::mask::CpuMask;
use crate::platform::{LocalFlush, Platform};
use crate::policy::Policy;
use crate::stats::{Counters, Stats};
use crate::sync::{
    AtomicBool, AtomicU64, Ordering, OwnWord, Padded, PlainCell, array_of, const_fn, fence,
};
use crate::tlb::{CpuTlb, FlushRequest, LazyMark, SpaceId};
use crate::trace::TraceEvent;
use crate::watchdog::Diary;

/// Cross-CPU calls and TLB shootdown for up to `N` CPUs.
///
/// Usually one `static` of the kernel. All methods take `&self`; each says in which context it may be called.
#[derive(Debug)]
pub struct Shootdown<P: Platform, const N: usize>
where
    Cpus<N>: Capacity,
{
    pub(crate) platform: P,
    policy: Padded<AtomicU64>,
    stall_ns: Padded<AtomicU64>,
    next_space: Padded<AtomicU64>,
    ready: Padded<AtomicCpuMask<N>>,
    /// Some CPU is going offline.
    leaving: Padded<AtomicBool>,
    rings: <Cpus<N> as Capacity>::Rings,
    cpus: [CpuState<N>; N],
}

/// The engine's state of one CPU. Lines that others write, lines that others read, and lines of its own
/// are apart.
#[derive(Debug)]
pub(crate) struct CpuState<const N: usize>
where
    Cpus<N>: Capacity,
{
    /// Written by every initiator that targets this CPU.
    pub(crate) inbox: Inbox<N>,
    /// Written by this CPU, read and acknowledged by its targets.
    pub(crate) slots: [Slot<N>; SLOTS],
    /// Flush descriptions that are passed by pointer, one a slot ([`Policy::BEFORE`]).
    pub(crate) indirect: [Padded<PlainCell<FlushRequest>>; SLOTS],
    /// Written by this CPU as it becomes idle and busy again, read by every initiator.
    pub(crate) lazy: LazyMark,
    own: Padded<OwnState>,
}

/// What only its own CPU writes.
#[derive(Debug)]
pub(crate) struct OwnState {
    pub(crate) tlb: CpuTlb,
    pub(crate) in_function: OwnFlag,
    /// Functions that came while another ran, for whoever runs that one.
    pub(crate) left_over: OwnFlag,
    pub(crate) serve_next: OwnCpu,
    pub(crate) ears: Ears,
    pub(crate) counters: Counters,
    pub(crate) diary: Diary,
}

impl<const N: usize> CpuState<N>
where
    Cpus<N>: Capacity,
{
    const_fn! {
        fn new() -> Self {
            Self {
                inbox: Inbox::new(),
                slots: array_of!(Slot::new()),
                indirect: array_of!(Padded(PlainCell::new(FlushRequest::NONE))),
                lazy: LazyMark::new(),
                own: Padded(OwnState {
                    tlb: CpuTlb::new(),
                    in_function: OwnFlag(OwnWord::new()),
                    left_over: OwnFlag(OwnWord::new()),
                    serve_next: OwnCpu(OwnWord::new()),
                    ears: Ears::new(),
                    counters: Counters::new(),
                    diary: Diary::new(),
                }),
            }
        }
    }
}

impl<const N: usize> core::ops::Deref for CpuState<N>
where
    Cpus<N>: Capacity,
{
    type Target = OwnState;

    fn deref(&self) -> &OwnState {
        &self.own.0
    }
}

/// A flag of this CPU's own.
#[derive(Debug)]
pub(crate) struct OwnFlag(OwnWord);

impl OwnFlag {
    #[inline]
    pub(crate) fn get(&self) -> bool {
        self.0.get() != 0
    }

    #[inline]
    pub(crate) fn set(&self, value: bool) {
        self.0.set(u64::from(value));
    }

    #[inline]
    pub(crate) fn replace(&self, value: bool) -> bool {
        let before = self.get();
        self.set(value);
        before
    }
}

/// A CPU number of this CPU's own.
#[derive(Debug)]
pub(crate) struct OwnCpu(OwnWord);

impl OwnCpu {
    #[inline]
    pub(crate) fn get(&self) -> CpuId {
        CpuId::from_index(self.0.get() as usize)
    }

    #[inline]
    pub(crate) fn set(&self, cpu: CpuId) {
        self.0.set(u64::from(cpu.as_u32()));
    }
}

/// Interrupts are off until this is dropped.
#[derive(Debug)]
pub(crate) struct IrqGuard<'a, P: Platform> {
    platform: &'a P,
    state: P::IrqState,
}

impl<P: Platform> Drop for IrqGuard<'_, P> {
    fn drop(&mut self) {
        self.platform.irq_restore(self.state);
    }
}

/// Preemption is disabled until this is dropped.
#[derive(Debug)]
pub(crate) struct PreemptGuard<'a, P: Platform>(&'a P);

impl<P: Platform> Drop for PreemptGuard<'_, P> {
    fn drop(&mut self) {
        self.0.preempt_enable();
    }
}

impl<P: Platform, const N: usize> Shootdown<P, N>
where
    Cpus<N>: Capacity,
{
    const_fn! {
        /// An engine with no CPU online and the default [`Policy`].
        pub fn new(platform: P) -> Self {
            Self {
                platform,
                policy: Padded(AtomicU64::new(Policy::BEST.to_bits())),
                stall_ns: Padded(AtomicU64::new(0)),
                next_space: Padded(AtomicU64::new(1)),
                ready: Padded(AtomicCpuMask::new()),
                leaving: Padded(AtomicBool::new(false)),
                #[cfg(not(loom))]
                rings: <Cpus<N> as Capacity>::RINGS,
                #[cfg(loom)]
                rings: <Cpus<N> as Capacity>::rings(),
                cpus: array_of!(CpuState::new()),
            }
        }
    }

    /// The platform it was built with.
    pub fn platform(&self) -> &P {
        &self.platform
    }

    /// Makes the running CPU a target, and drops every translation it holds.
    ///
    /// Call it on the CPU itself, once, with interrupts off, when its vector and controller work. Until then
    /// nobody targets it, so nothing can be lost; a flush that just missed it is covered by the flush here. It may have
    /// been online before; [`offline`](Self::offline) ends it.
    ///
    /// # Panics
    /// When the CPU is online already, or its number is not below `N`.
    pub fn online(&self) {
        let irq = self.irq_guard();
        let me = self.platform.current_cpu();
        assert!(me.index() < N, "{me} on an engine for {N} CPUs");
        assert!(
            !self.ready.0.contains(me, Ordering::Relaxed),
            "{me} came online twice"
        );
        self.state(me).ears.begin(self.ring_of(me).next());
        // ORDERING: Release: no broadcast that names us is older than what we have just read.
        self.ready.0.insert(me, Ordering::Release);
        // ORDERING: store ready / drop translations, against PTE change / read ready in `submit_flush_kernel`:
        // either the initiator sees us, or what it changed precedes the walks that follow our flush.
        fence(Ordering::SeqCst);
        self.platform.local_flush(LocalFlush::All);
        self.reset_tags(me);
        self.platform.on_trace(TraceEvent::Online { cpu: me });
        drop(irq);
    }

    /// The CPUs that are targets now. Any context; does not block.
    pub fn ready_cpus(&self) -> CpuMask<N> {
        // ORDERING: acquires the last accesses of CPUs that went offline; callers that need I1 put their fence before this.
        self.ready.0.load(Ordering::Acquire)
    }

    pub(crate) fn stall_word(&self) -> &AtomicU64 {
        &self.stall_ns.0
    }

    pub(crate) fn ready_set(&self) -> &AtomicCpuMask<N> {
        &self.ready.0
    }

    pub(crate) fn rings(&self) -> &[Ring] {
        self.rings.as_ref()
    }

    /// The ring that `cpu` hears.
    pub(crate) fn ring_of(&self, cpu: CpuId) -> &Ring {
        &self.rings()[cpu.index() / 64]
    }

    pub(crate) fn leaving(&self) -> &AtomicBool {
        &self.leaving.0
    }

    /// Changes the policy for requests submitted from now on. Any context; does not block.
    pub fn set_policy(&self, policy: Policy) {
        #[cfg(loom)]
        for ring in self.rings() {
            ring.is_used.set(u64::from(policy.broadcasts_from()));
        }
        self.policy.0.store(policy.to_bits(), Ordering::Relaxed);
    }

    /// The policy in force.
    pub fn policy(&self) -> Policy {
        Policy::from_bits(self.policy.0.load(Ordering::Relaxed))
    }

    /// The counters of `cpu`. Any context; does not block.
    ///
    /// # Panics
    /// When `cpu` is not below `N`.
    pub fn stats(&self, cpu: CpuId) -> Stats {
        self.state(cpu).counters.read()
    }

    /// The counters of all CPUs, added up.
    pub fn total_stats(&self) -> Stats {
        let mut total = Stats::default();
        for state in &self.cpus {
            total.merge(&state.counters.read());
        }
        total
    }

    #[inline]
    pub(crate) fn state(&self, cpu: CpuId) -> &CpuState<N> {
        &self.cpus[cpu.index()]
    }

    #[track_caller]
    pub(crate) fn irq_guard(&self) -> IrqGuard<'_, P> {
        IrqGuard {
            platform: &self.platform,
            state: self.platform.irq_save(),
        }
    }

    /// Disables preemption.
    #[track_caller]
    pub(crate) fn preempt_guard(&self) -> PreemptGuard<'_, P> {
        self.platform.preempt_disable();
        PreemptGuard(&self.platform)
    }

    pub(crate) fn fresh_space_id(&self) -> SpaceId {
        SpaceId::from_raw(self.next_space.0.fetch_add(1, Ordering::Relaxed))
    }
}
