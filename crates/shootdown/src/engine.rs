//! [`Shootdown`]: the engine itself, the memory of its CPUs, and bringing CPUs online.

use core::sync::atomic::{AtomicU64 as CoreU64, Ordering::Relaxed};

use crate::atomic_mask::AtomicCpuMask;
use crate::call::{Meeting, Ring};
use crate::capacity::Capacity;
use crate::cpu::CpuId;
use crate::dead::DeadCpus;
use crate::guard::IrqGuard;
use crate::handle::Watcher;
use crate::mask::CpuMask;
use crate::memory::{CpuMemory, Here};
use crate::platform::{LocalFlush, Platform};
use crate::policy::Policy;
use crate::quiet::KernelPart;
use crate::stats::Stats;
use crate::sync::{AtomicU64, Ordering, Padded, SetOnce, const_fn, fence};
use crate::trace::TraceEvent;

/// Cross-CPU calls and TLB shootdown for up to `P::Cpus::CPUS` CPUs.
///
/// Usually one `static` of the kernel, all zero at the start. All methods take `&self`; each says in which context it may be
/// called.
#[derive(Debug)]
pub struct Shootdown<P: Platform> {
    pub(crate) platform: P,
    /// [As a word](Policy::to_word) that is 0 for the default.
    policy: Padded<AtomicU64>,
    pub(crate) stall_ns: Padded<AtomicU64>,
    /// How many names of spaces were given out.
    pub(crate) names: Padded<AtomicU64>,
    /// Of this engine, in the names of its spaces; 0 before the first.
    pub(crate) number: CoreU64,
    /// How many groups have CPUs with memory: what is beyond is empty in every set.
    groups: CoreU64,
    /// The targets of flushes and kicks: all that are online.
    pub(crate) ready: Padded<AtomicCpuMask<P::Cpus>>,
    /// The targets of functions: the same, except that a CPU that comes or goes does so here first.
    pub(crate) callable: Padded<AtomicCpuMask<P::Cpus>>,
    pub(crate) dead: Padded<DeadCpus<P::Cpus>>,
    /// How often any CPU has died.
    pub(crate) deaths: CoreU64,
    /// Which CPU keeps others from going offline, plus one: one that leaves itself, or an initiator that is not online.
    pub(crate) departure: Padded<AtomicU64>,
    pub(crate) kernel: Padded<KernelPart<P::Cpus>>,
    /// The rendezvous that there is.
    pub(crate) meeting: Padded<Meeting<P::Cpus>>,
    rings: <P::Cpus as Capacity>::Rings,
    cpus: <P::Cpus as Capacity>::Table,
}

impl<P: Platform> Shootdown<P> {
    const_fn! {
        /// An engine with no CPU attached, under the policy of [`Platform::CONFIG`], or [`Policy::BEST`].
        pub fn new(platform: P) -> Self {
            Self {
                platform,
                policy: Padded(AtomicU64::new(0)),
                stall_ns: Padded(AtomicU64::new(0)),
                names: Padded(AtomicU64::new(0)),
                number: CoreU64::new(0),
                groups: CoreU64::new(0),
                ready: Padded(AtomicCpuMask::new()),
                callable: Padded(AtomicCpuMask::new()),
                dead: Padded(DeadCpus::new()),
                deaths: CoreU64::new(0),
                departure: Padded(AtomicU64::new(0)),
                kernel: Padded(KernelPart::new()),
                meeting: Padded(Meeting::new()),
                #[cfg(not(loom))]
                rings: P::Cpus::RINGS,
                #[cfg(loom)]
                rings: crate::capacity::Array::of(Ring::new),
                cpus: P::Cpus::TABLE,
            }
        }
    }

    /// The platform it was built with.
    pub fn platform(&self) -> &P {
        &self.platform
    }

    /// Gives CPU `first`, and those that follow it, their memory, which each needs before it uses the engine in any way. Call it once for each CPU that
    /// there is, on any CPU, before that CPU comes [`online`](Self::online): at boot for all, also for more CPUs than the machine has, or as each is found. Does
    /// not block. An engine that does not live for ever takes [`CpuMemory::assume_static`].
    ///
    /// # Panics
    /// When a CPU is not below the [capacity](Platform::Cpus) or has memory already, or the memory is another CPU's.
    #[track_caller]
    pub fn attach(&self, first: CpuId, memory: &'static [CpuMemory<P>]) {
        for (cpu, memory) in (first.index()..).map(CpuId::from_index).zip(memory) {
            let most = P::Cpus::CPUS;
            assert!(
                cpu.index() < most,
                "{cpu} is attached to an engine for {most} CPUs"
            );
            assert!(self.attached(cpu).is_none(), "{cpu} was attached before");
            let was_attached = memory.is_attached.swap(true, Relaxed);
            assert!(
                !was_attached,
                "the memory for {cpu} was attached before: each CPU of each engine needs its own"
            );
            // SAFETY: 1. it is borrowed for ever.
            let is_first = unsafe { self.cpus()[cpu.index()].set(memory) };
            assert!(is_first, "{cpu} was attached before");
            let groups = P::Cpus::group(cpu) as u64 + 1;
            self.groups.fetch_max(groups, Relaxed);
        }
    }

    /// Makes the running CPU a target, and drops every translation it holds.
    ///
    /// Call it on the CPU itself, once, with interrupts off, when its vector and controller work. Until then
    /// no CPU targets it, so nothing can be lost; a flush that just missed it is covered by the flush here. It may have
    /// been online before; [`offline`](Self::offline) ends it.
    ///
    /// A CPU that is online and waits for something with interrupts off, such as a barrier at boot, must call
    /// [`poll`](Self::poll) in its loop: flushes wait for it.
    ///
    /// # Panics
    /// When the CPU is online already, has no [memory](Self::attach), its number is not below the capacity, or its [tags](Platform::asid_slots) are those of
    /// another engine on which it is online.
    pub fn online(&self) {
        let (_irq, here) = self.stay();
        let me = here.cpu;
        assert!(!self.is_ready(me), "{me} came online twice");
        let ring = self.ring_of(me);
        here.ring.begin(match self.has_deaths() {
            true => ring.next_unclaimed(),
            false => ring.next(),
        });
        if self.is_dead(me) {
            self.rise(me);
        }
        self.claim_tags(me);
        // ORDERING: Release: no broadcast that names us is older than what we have just read.
        self.callable.0.insert(me, Ordering::Release);
        // ORDERING: Release: who finds us ready can call us.
        self.ready.0.insert(me, Ordering::Release);
        // ORDERING: store ready / drop translations, against PTE change / read ready in `submit_kernel_flush`:
        // either the initiator sees us, or what it changed precedes the walks that follow our flush.
        fence(Ordering::SeqCst);
        self.drop_local(LocalFlush::All);
        if P::CONFIG.has_rendezvous {
            self.await_rendezvous(here);
        }
        self.platform.on_trace(TraceEvent::Online { cpu: me });
    }

    /// The CPUs that are targets now; one that is going [`offline`](Self::offline) refuses functions already. Any context; does not
    /// block.
    pub fn ready_cpus(&self) -> CpuMask<P::Cpus> {
        // ORDERING: acquires the last accesses of CPUs that went offline; callers that need I1 put their fence before this.
        self.ready.0.load(Ordering::Acquire)
    }

    /// Changes the policy for requests submitted from now on. Any context; does not block. Needs [`Config::with_any_policy`](crate::Config::with_any_policy).
    pub fn set_policy(&self, policy: Policy) {
        const { assert!(P::CONFIG.policy.is_none(), "CONFIG lacks with_any_policy") };
        #[cfg(loom)]
        for ring in self.rings() {
            ring.is_used.set(u64::from(policy.broadcasts_from()));
        }
        self.policy.0.store(policy.to_word(), Ordering::Relaxed);
    }

    /// The policy in force.
    #[inline]
    pub fn policy(&self) -> Policy {
        match P::CONFIG.policy {
            Some(policy) => policy,
            None => Policy::from_word(self.policy.0.load(Ordering::Relaxed)),
        }
    }

    /// What the engine keeps for `cpu`.
    ///
    /// # Panics
    /// When `cpu` has no memory, or is not below the capacity.
    #[inline]
    pub(crate) fn state(&self, cpu: CpuId) -> &CpuMemory<P> {
        match self.cpus().get(cpu.index()).and_then(SetOnce::get) {
            Some(memory) => memory,
            None => no_memory(cpu, P::Cpus::CPUS),
        }
    }

    /// The running CPU, while interrupts are off.
    ///
    /// # Panics
    /// When it has no memory, or is not below the capacity.
    #[inline]
    pub(crate) fn here(&self, _: &IrqGuard<'_, P>) -> Here<'_, P> {
        let cpu = self.platform.current_cpu();
        let state = self.state(cpu);
        Here { cpu, state }
    }

    /// The same where this CPU may have no memory.
    #[inline]
    pub(crate) fn here_if_attached(&self, _: &IrqGuard<'_, P>) -> Option<Here<'_, P>> {
        let cpu = self.platform.current_cpu();
        let state = self.attached(cpu)?;
        Some(Here { cpu, state })
    }

    /// What the engine keeps for `cpu`, or `None` where it has none yet, or is not below the capacity.
    #[inline]
    pub(crate) fn attached(&self, cpu: CpuId) -> Option<&CpuMemory<P>> {
        self.cpus().get(cpu.index()).and_then(SetOnce::get)
    }

    /// Whether `cpu` is a target of flushes.
    #[inline]
    pub(crate) fn is_ready(&self, cpu: CpuId) -> bool {
        // ORDERING: Acquire: a CPU that is found ready is found with its memory; pairs with `online`.
        cpu.index() < P::Cpus::CPUS && self.ready.0.contains(cpu, Ordering::Acquire)
    }

    /// Whether `cpu` is a target of functions.
    #[inline]
    pub(crate) fn is_callable(&self, cpu: CpuId) -> bool {
        // ORDERING: as in `is_ready`.
        cpu.index() < P::Cpus::CPUS && self.callable.0.contains(cpu, Ordering::Acquire)
    }

    /// Whether anything is sent to `cpu`.
    pub(crate) fn is_target(&self, cpu: CpuId) -> bool {
        self.is_callable(cpu) || self.is_ready(cpu)
    }

    /// The groups that have CPUs.
    #[inline]
    pub(crate) fn groups(&self) -> core::ops::Range<usize> {
        // A CPU of a further group is attached before it is ready; an initiator that must find it reads this after a barrier (I1, I8).
        match P::Cpus::IS_WIDE {
            true => 0..self.groups.load(Relaxed) as usize,
            false => 0..1,
        }
    }

    pub(crate) fn rings(&self) -> &[Ring<P::Cpus>] {
        self.rings.as_ref()
    }

    #[inline]
    pub(crate) fn cpus(&self) -> &[SetOnce<CpuMemory<P>>] {
        let table: *const [SetOnce<()>] = self.cpus.as_ref();
        // SAFETY: a `SetOnce` is a pointer, whatever it leads to (`repr(transparent)`): these are the same ones, all null until `attach` sets them through this.
        unsafe { &*(table as *const [SetOnce<CpuMemory<P>>]) }
    }

    /// The CPUs that have memory, and what the engine keeps for each.
    pub(crate) fn states(&self) -> impl Iterator<Item = (CpuId, &CpuMemory<P>)> {
        let all = self.cpus().iter().enumerate();
        all.filter_map(|(cpu, state)| Some((CpuId::from_index(cpu), state.get()?)))
    }

    /// Whether requests may be announced in rings.
    pub(crate) const HAS_RINGS: bool = match P::CONFIG.policy {
        Some(policy) => policy.broadcasts_to(P::Cpus::CPUS - 1),
        None => true,
    };

    /// The ring that `cpu` reads.
    #[inline]
    pub(crate) fn ring_of(&self, cpu: CpuId) -> &Ring<P::Cpus> {
        &self.rings()[P::Cpus::group(cpu)]
    }

    #[track_caller]
    #[inline]
    pub(crate) fn irq_guard(&self) -> IrqGuard<'_, P> {
        IrqGuard::new(&self.platform)
    }

    /// Turns interrupts off: until the guard is dropped, the caller stays on the running CPU.
    ///
    /// # Panics
    /// As [`here`](Self::here).
    #[track_caller]
    #[inline(always)]
    pub(crate) fn stay(&self) -> (IrqGuard<'_, P>, Here<'_, P>) {
        let irq = self.irq_guard();
        let here = self.here(&irq);
        (irq, here)
    }
}

impl<P: Platform> Watcher<'_, P> {
    /// The counters of `cpu`, all zero before it is [attached](Shootdown::attach). Any context; does not block. Needs
    /// [`Config::with_counters`](crate::Config::with_counters).
    pub fn stats(self, cpu: CpuId) -> Stats {
        const { assert!(P::CONFIG.has_counters, "CONFIG lacks with_counters") };
        let memory = self.0.attached(cpu);
        memory.map_or_else(Stats::default, |memory| memory.counters.read())
    }

    /// The counters of all CPUs, added up. As [`stats`](Self::stats).
    pub fn total_stats(self) -> Stats {
        const { assert!(P::CONFIG.has_counters, "CONFIG lacks with_counters") };
        let mut total = Stats::default();
        for (_, memory) in self.0.states() {
            total.merge(&memory.counters.read());
        }
        total
    }
}

// Out of line and by value: what is formatted has an address, and would have to be kept in memory by every caller.

#[cold]
#[inline(never)]
#[track_caller]
fn no_memory(cpu: CpuId, limit: usize) -> ! {
    if cpu.index() >= limit {
        panic!("{cpu} on an engine for {limit} CPUs");
    }
    panic!("{cpu} uses the engine before it has memory: call Shootdown::attach for it first");
}
