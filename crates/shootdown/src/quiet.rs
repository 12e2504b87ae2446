//! Quiet CPUs: in user mode, or parked in a guest, they use nothing of the kernel, and are left alone by what concerns only that.
//!
//! What a quiet CPU misses is counted, for all CPUs at once: flushes of the kernel's part, and changes of its text. A CPU that comes back into the kernel says so, issues a
//! full barrier, and then reads the counts. An initiator counts, issues a full barrier, and then reads who is quiet. Either it finds the CPU in the kernel, and interrupts
//! it, or the CPU finds the count, and drops everything before it uses anything. The barrier cannot be spared: without it each may miss the other.
//!
//! A CPU records a flush that it has served if it has dropped all before that one, so it drops everything only where something has passed it by.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::atomic_mask::AtomicCpuMask;
use crate::call::{CallData, PostRefused};
use crate::capacity::Capacity;
use crate::cpu::CpuId;
use crate::engine::Shootdown;
use crate::handle::CpuControl;
use crate::mask::CpuMask;
use crate::memory::{CpuMemory, Here};
use crate::platform::{LocalFlush, Platform};
use crate::sync::{AtomicU64, Ordering, OwnFlag, OwnWord, const_fn, fence};
use crate::tlb::{FlushRequest, Listener};

/// What an engine keeps for the kernel's part: who listens to it, and what quiet CPUs may miss.
#[derive(Debug)]
pub(crate) struct KernelPart<C: Capacity> {
    pub(crate) listener: Listener,
    /// Some CPU is or was quiet: before that nothing is counted, and nobody is passed by. Takes part in no order: who finds it late interrupts a CPU too many.
    is_on: AtomicBool,
    /// Which CPUs; likewise.
    members: AtomicCpuMask<C>,
    /// How often the kernel's part was flushed.
    flushes: AtomicU64,
    /// How often its text was changed.
    texts: AtomicU64,
}

impl<C: Capacity> KernelPart<C> {
    const_fn! {
        pub(crate) fn new() -> Self {
            Self {
                listener: Listener::new(),
                is_on: AtomicBool::new(false),
                members: AtomicCpuMask::new(),
                flushes: AtomicU64::new(0),
                texts: AtomicU64::new(0),
            }
        }
    }
}

/// Whether a CPU is quiet. Read by initiators.
#[derive(Debug)]
pub(crate) struct QuietMark(AtomicU64);

impl QuietMark {
    const IN_KERNEL: u64 = 0;
    const QUIET: u64 = 1;
    /// In the kernel, and has not yet dropped what it has missed.
    const RETURNING: u64 = 2;

    const_fn! {
        #[inline]
        pub(crate) fn new() -> Self {
            Self(AtomicU64::new(Self::IN_KERNEL))
        }
    }

    /// Seen from another CPU, after a barrier.
    fn is_quiet(&self) -> bool {
        // ORDERING: Acquire: the CPU has used the kernel's part for the last time; pairs with `enter_quiet`.
        self.0.load(Ordering::Acquire) == Self::QUIET
    }

    /// Its CPU has stopped for good.
    pub(crate) fn reset(&self) {
        self.0.store(Self::IN_KERNEL, Ordering::Relaxed);
    }
}

/// The counts up to which a CPU has missed nothing. Its CPU alone uses it.
#[derive(Debug)]
pub(crate) struct Known {
    is_member: OwnFlag,
    flushes: OwnWord,
    texts: OwnWord,
}

impl Known {
    pub(crate) const fn new() -> Self {
        Self {
            is_member: OwnFlag::new(),
            flushes: OwnWord::new(),
            texts: OwnWord::new(),
        }
    }

    /// The flush with this count was served here; 0 for one that was not counted.
    #[inline]
    pub(crate) fn record(&self, count: u64) {
        if count == self.flushes.get() + 1 {
            self.flushes.set(count);
        }
    }
}

impl<P: Platform> CpuControl<'_, P> {
    /// This CPU leaves the kernel, for user mode or a guest, and uses nothing of it until [`leave_quiet`](Self::leave_quiet). It costs one release store. Meanwhile it is not
    /// interrupted for flushes of the kernel's part, unless tables were freed or the flush is [strict](crate::FlushRanges::strict); nor by [`kick`](Self::kick), which counts it
    /// as passed; nor by [`serialise`](Self::serialise) and [`post_deferrable`](Self::post_deferrable), which it makes good when it comes back. Everything else interrupts it:
    /// flushes of its space and its guest, calls, other posts, barriers, rendezvous.
    ///
    /// Interrupts are off, and this is the last thing that the way out does. Needs [`Config::with_quiet`](crate::Config::with_quiet).
    ///
    /// # Panics
    /// When this CPU has no [memory](Shootdown::attach).
    ///
    /// # Safety
    /// 1. Until [`leave_quiet`](Self::leave_quiet) has returned this CPU runs no kernel code, and uses no kernel memory, but what is never changed or unmapped while it is online:
    ///    the rest of its way out, and its way in up to that call. That is so for every way in: system call, interrupt, exception, NMI, machine check, VM exit.
    /// 2. Text that is patched, and relies on [`serialise`](Self::serialise), is not part of these ways.
    #[inline]
    pub unsafe fn enter_quiet(self) {
        const { assert!(P::CONFIG.has_quiet, "CONFIG lacks with_quiet") };
        let engine = self.0;
        let cpu = engine.platform.current_cpu();
        let state = engine.state(cpu);
        if !state.known.is_member.get() {
            engine.join_quiet(Here { cpu, state });
        }
        let mark = &state.lazy.quiet.0;
        // ORDERING: Release: an initiator that passes us by gives away what we have used (I4, I5); pairs with `is_quiet`.
        mark.store(QuietMark::QUIET, Ordering::Release);
    }

    /// This CPU is in the kernel again. What it has missed is made good when this returns: everything is dropped, if a flush has passed it by; instructions are fetched anew, if
    /// text was changed; and if data were posted, it interrupts itself. True if the CPU was quiet: then a handler of an interrupt calls [`enter_quiet`](Self::enter_quiet)
    /// again before it returns. Where the CPU was not quiet it costs a read of a word of its own.
    ///
    /// Interrupts are off. Each way into the kernel calls it first, also that of NMIs, which may come while another one is in here: so
    /// [`local_flush`](Platform::local_flush) of everything and [`synchronise_here`](Platform::synchronise_here) are such that they may come in the middle of themselves, and
    /// in an NMI handler: x86's IRET is not, because it lets the next NMI in, onto the same stack.
    #[inline]
    pub fn leave_quiet(self) -> bool {
        const { assert!(P::CONFIG.has_quiet, "CONFIG lacks with_quiet") };
        let engine = self.0;
        let memory = engine.attached(engine.platform.current_cpu());
        // Relaxed: only this CPU writes it.
        let is_in_kernel = |memory: &CpuMemory<P>| {
            memory.lazy.quiet.0.load(Ordering::Relaxed) == QuietMark::IN_KERNEL
        };
        !memory.is_none_or(is_in_kernel) && engine.make_good()
    }

    /// As [`post_data`](Shootdown::post_data), but does not interrupt a target that is [quiet](Self::enter_quiet): that one runs the function when it is in the kernel again.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// As there.
    pub fn post_deferrable<F>(
        self,
        target: CpuId,
        data: &'static CallData<F>,
    ) -> Result<(), PostRefused>
    where
        F: Fn(CpuId) + Sync,
    {
        const { assert!(P::CONFIG.has_quiet, "CONFIG lacks with_quiet") };
        self.0.post(target, data, true)
    }
}

impl<P: Platform> Shootdown<P> {
    /// Has initiators look at this CPU's mark.
    #[cold]
    fn join_quiet(&self, here: Here<'_, P>) {
        let kernel = &self.kernel.0;
        kernel.members.insert(here.cpu, Ordering::Relaxed);
        kernel.is_on.store(true, Relaxed);
        here.known.is_member.set(true);
    }

    /// Drops what this CPU has missed; true if it was quiet. It may be inside this already.
    #[cold]
    fn make_good(&self) -> bool {
        let (_irq, here) = self.stay();
        let (kernel, known, mark) = (&self.kernel.0, &here.known, &here.lazy.quiet.0);
        let was_quiet = mark.load(Ordering::Relaxed) == QuietMark::QUIET;
        // Relaxed: the barrier publishes it.
        mark.store(QuietMark::RETURNING, Ordering::Relaxed);
        // ORDERING: store mark / read counts, posted data and what was changed, against change, count, post / read mark: either an initiator finds us here, or we find what it has
        // counted, and changed before. (One that finds us here interrupts us, whatever we find.)
        fence(Ordering::SeqCst);
        // ORDERING: Acquire: a count that is found early brings the change along, because the initiator may look when we are quiet again; pairs with `count_flush`.
        let flushes = kernel.flushes.load(Ordering::Acquire);
        if flushes != known.flushes.get() {
            self.drop_local(LocalFlush::All);
            known.flushes.set(flushes);
        }
        // Relaxed: the initiator has issued a fence before it counted, and `synchronise` issues one.
        let texts = kernel.texts.load(Ordering::Relaxed);
        if texts != known.texts.get() {
            self.synchronise();
            known.texts.set(texts);
        }
        if was_quiet {
            if here.posted.0.is_unsent() && self.interrupt_self(here) {
                here.posted.0.note_sent();
            }
            // Relaxed: to others it says the same. An NMI-like context that finds it finds all dropped.
            mark.store(QuietMark::IN_KERNEL, Ordering::Relaxed);
        }
        was_quiet
    }

    /// Counts a flush of the kernel's part, for those that miss it; 0 where nobody is quiet. The barrier of I1 follows.
    #[inline]
    pub(crate) fn count_flush(&self) -> u64 {
        let kernel = &self.kernel.0;
        match P::CONFIG.has_quiet && kernel.is_on.load(Relaxed) {
            // ORDERING: Release: the change; pairs with `make_good`.
            true => kernel.flushes.fetch_add(1, Ordering::Release) + 1,
            false => 0,
        }
    }

    /// Those of `cpus`, or of all that are online, that a kick by this request has to reach, if any may be left out. Interrupts are off.
    pub(crate) fn to_be_kicked(
        &self,
        cpus: Option<&CpuMask<P::Cpus>>,
        request: FlushRequest,
    ) -> Option<CpuMask<P::Cpus>> {
        let kernel = &self.kernel.0;
        let is_missable = matches!(request, FlushRequest::NOTHING | FlushRequest::SERIALISE);
        if !P::CONFIG.has_quiet || !is_missable || !kernel.is_on.load(Relaxed) {
            return None;
        }
        if request == FlushRequest::SERIALISE {
            // Relaxed: see `make_good`.
            kernel.texts.fetch_add(1, Ordering::Relaxed);
        }
        // ORDERING: what was done before, and the count / read marks, against store mark / read anything in `make_good`.
        fence(Ordering::SeqCst);
        let all = cpus.copied().unwrap_or_else(|| self.ready_cpus());
        Some(all.iter().filter(|cpu| !self.is_quiet(*cpu)).collect())
    }

    /// Takes those out of this CPU's set `targets` that miss `request`, and make it good before they use what it names. After the barrier of I1.
    #[inline]
    pub(crate) fn spare_quiet(&self, here: Here<'_, P>, request: &FlushRequest) {
        let is_missable = request.space().is_none() && !request.must_reach_all();
        if P::CONFIG.has_quiet && is_missable && request.generation().as_u64() != 0 {
            for cpu in here.targets.iter() {
                if self.is_quiet(cpu) {
                    here.targets.remove(cpu);
                    here.counters.quiet_skipped.add(1);
                }
            }
        }
    }

    /// Data were posted to `target`: whether it is quiet, and finds them when it is not any more.
    #[cold]
    pub(crate) fn will_look(&self, target: CpuId) -> bool {
        // ORDERING: post / read mark, against store mark / read posted data in `make_good`.
        fence(Ordering::SeqCst);
        self.is_quiet(target)
    }

    /// Whether `cpu`, seen from another, uses nothing of the kernel. After a barrier.
    pub(crate) fn is_quiet(&self, cpu: CpuId) -> bool {
        let is_member = self.kernel.0.members.contains(cpu, Ordering::Relaxed);
        is_member && self.state(cpu).lazy.quiet.is_quiet()
    }
}
