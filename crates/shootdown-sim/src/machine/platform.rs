//! [`SimPlatform`]: what the engine finds under itself.

use std::marker::PhantomData;
use std::num::NonZeroU64;

use shootdown::{
    Capacity, CpuId, CpuSet, Cpus, FlushRange, IpiRefused, LocalFlush, Platform,
    remote::{FlushRequest, GlobalTags, RemoteFlush, RemoteTargets},
    secondary::{SecondaryFailed, SecondaryFlush},
    tags::{Asid, AsidSlot, TagEntries},
    watch::Stall,
};

use crate::machine::deeds::Deed;
use crate::machine::unwind::may_unwind;
use crate::machine::{Note, State, context};
use crate::walkthrough::Sort;

/// Events between two steps of a load: as many walks as a processor may make meanwhile.
const WALKS_MIDWAY: usize = 3;

/// Which top-level entry translates `address`.
const fn region_of(address: usize) -> usize {
    address >> 39
}

/// The platform of a virtual CPU, which may die with `DEATHS`. It has no state of its own: the thread's current machine has it.
#[derive(Clone, Copy, Default, Debug)]
pub struct SimPlatform<C = Cpus<64>, const DEATHS: bool = false>(PhantomData<C>);

/// What programs ask of the machine without an engine; they need no size for it.
pub const PLATFORM: SimPlatform = SimPlatform(PhantomData);

// SAFETY: duties as numbered at the trait.
// 1. A coroutine never moves between virtual CPUs.
// 2. Interrupts are taken at instruction boundaries, and only while the flag is on.
// 3. and 4. The models' TLBs drop what the operation names before the method returns. Each CPU of a machine has slots
//    of its own, and a machine has one engine. Virtual kernels keep the windows' entries of other roots empty.
// 5. `send` carries everything that the initiator has written or seen (exploration); the timed model's memory
//    is sequentially consistent.
// 6. A pending interrupt stays until it is taken; `handler` is `handle_ipi`.
// 7. Targets are flushed before they are taken, or do not run before they are. What listens has dropped what was named.
// 8. A machine has one back end.
unsafe impl<C: Capacity, const DEATHS: bool> Platform for SimPlatform<C, DEATHS> {
    type Cpus = C;
    const CONFIG: shootdown::Config = shootdown::Config::FULL
        .with_quiet(true)
        .with_deaths(DEATHS)
        .with_reach(true);
    type IrqState = bool;

    fn current_cpu(&self) -> CpuId {
        may_unwind();
        context().with(|state| state.numbers[state.running])
    }

    fn irq_save(&self) -> bool {
        may_unwind();
        let context = context();
        let (closes, were_on) = context.with(|state| {
            let closes = state.is_open();
            let were_on = std::mem::replace(&mut state.me().interrupts_on, false);
            (closes, were_on)
        });
        if closes {
            context.note(Note::Closed);
        }
        were_on
    }

    unsafe fn irq_restore(&self, state: bool) {
        may_unwind();
        let context = context();
        let opens = context.with(|machine| {
            let was_open = machine.is_open();
            machine.me().interrupts_on = state;
            !was_open && machine.is_open()
        });
        if opens {
            context.note(Note::Opened);
        }
        if state {
            context.event();
            context.boundary();
        }
    }

    fn preempt_disable(&self) {
        may_unwind();
        context().preempt_disable();
    }

    unsafe fn preempt_enable(&self) {
        may_unwind();
        context().preempt_enable();
    }

    fn send_ipi(&self, target: CpuId) -> Result<(), IpiRefused> {
        may_unwind();
        let context = context();
        context.choice();
        let sent = context.with(|state| state.send_to(std::iter::once(target)));
        context.event();
        sent
    }

    fn send_ipi_mask(&self, targets: CpuSet<'_>) -> Result<(), IpiRefused> {
        may_unwind();
        let context = context();
        context.choice();
        let sent = context.with(|state| state.send_to(targets.iter()));
        context.event();
        sent
    }

    fn local_flush(&self, operation: LocalFlush) {
        may_unwind();
        let context = context();
        context.choice();
        context.maybe_nmi();
        context.with(|state| state.tell_flush(operation));
        context.with(|state| state.flush(operation));
        context.event();
    }

    unsafe fn load_root(&self, root: u64) {
        // SAFETY: 1. as here.
        unsafe { self.load_tagged_root(root, Asid::UNTAGGED, TagEntries::Drop) };
    }

    fn asid_slots(&self, cpu: CpuId) -> &[AsidSlot] {
        context().asid_slots(context().index_of(cpu))
    }

    fn guest_slots(&self, cpu: CpuId) -> &[AsidSlot] {
        context().guest_slots(context().index_of(cpu))
    }

    unsafe fn load_tagged_root(&self, root: u64, asid: Asid, entries: TagEntries) {
        may_unwind();
        let context = context();
        context.choice();
        context.maybe_nmi();
        context.with(|state| {
            state.tell_as(|| {
                let label = format!("loads root {root}");
                let text = format!("loads Root({root}) under {asid:?}, {entries:?}");
                (Sort::Engine, label, text)
            });
        });
        let mut steps = context
            .with(|state| state.begin_load(asid, entries))
            .iter()
            .peekable();
        while let Some(step) = steps.next() {
            let is_last = steps.peek().is_none();
            context.with(|state| state.take_load_step(root, asid, *step, is_last));
            if !is_last {
                // The processor walks here, and is interrupted by what cannot be masked.
                (0..WALKS_MIDWAY).for_each(|_| context.event());
                context.maybe_nmi();
            }
        }
        context.event();
    }

    fn splits_tags(&self) -> bool {
        context().with(|state| state.timed().is_some_and(|timed| timed.splits_tags()))
    }

    const HAS_WINDOWS: bool = true;

    unsafe fn copy_shared_top(&self, shared: u64, private: u64, range: FlushRange) {
        may_unwind();
        let context = context();
        context.maybe_nmi();
        let tables = context.with(|state| {
            state.count(Deed::CopyTop, range.page_count());
            if let Some(timed) = state.timed() {
                timed.tops.insert((private, region_of(range.start())));
            }
            state.explore()?.hardware.tables()
        });
        if let Some(tables) = tables {
            tables.copy_shared_top(shared, private, range);
        }
    }

    fn region_of(&self, address: usize) -> usize {
        let tables = context().with(|state| state.explore()?.hardware.tables());
        tables.map_or_else(|| region_of(address), |tables| tables.region_of(address))
    }

    unsafe fn clear_top(&self, private: u64, range: FlushRange) {
        may_unwind();
        let context = context();
        context.maybe_nmi();
        let tables = context.with(|state| {
            if let Some(timed) = state.timed() {
                timed.tops.remove(&(private, region_of(range.start())));
            }
            state.explore()?.hardware.tables()
        });
        match tables {
            Some(tables) => tables.clear_top(private, range),
            None => context.event(),
        }
    }

    fn flushes_remotely(&self) -> bool {
        context().flushes_remotely()
    }

    fn flush_remote(&self, targets: &mut RemoteTargets<'_>, request: &FlushRequest) -> RemoteFlush {
        may_unwind();
        context().flush_remote(targets, request)
    }

    fn finish_remote(&self, targets: &mut RemoteTargets<'_>, request: &FlushRequest) {
        may_unwind();
        context().finish_remote(targets, request);
    }

    fn global_tags(&self) -> GlobalTags {
        context().global_tags()
    }

    fn flush_everywhere(&self, asid: Asid, request: &FlushRequest) -> bool {
        may_unwind();
        context().flush_everywhere(asid, request)
    }

    fn begin_secondary(
        &self,
        listener: u64,
        request: &FlushRequest,
        before: Option<NonZeroU64>,
    ) -> Option<NonZeroU64> {
        may_unwind();
        context().some_listeners().begin(listener, request, before)
    }

    fn finish_secondary(&self, token: NonZeroU64) -> SecondaryFlush {
        may_unwind();
        context().some_listeners().finish(token)
    }

    fn release_secondary(&self, listener: u64) -> Result<(), SecondaryFailed> {
        may_unwind();
        context().some_listeners().release(listener)
    }

    fn now_ns(&self) -> u64 {
        may_unwind();
        let context = context();
        // Whoever reads the clock shares nothing with others: no choice for exploration.
        if context.with(State::charge_clock) {
            context.event();
        }
        context.clock_ns()
    }

    fn relax(&self) {
        may_unwind();
        let context = context();
        match context.with(State::relax) {
            true => context.give_way(),
            false => context.event(),
        }
        context.boundary();
    }

    fn synchronise_here(&self) {
        context().with(|state| {
            let cpu = state.running;
            state.synchronised[cpu] += 1;
        });
    }

    fn on_stall(&self, stall: &Stall) {
        context().with(|state| state.stalls.push(*stall));
    }

    fn prefetch_write(&self, address: usize) {
        context().with(|state| state.prefetch(address));
    }

    fn on_trace(&self, event: shootdown::watch::TraceEvent) {
        may_unwind();
        let context = context();
        context.with(|state| state.tell_engine(event));
        context.with(|state| state.trace(event));
        context.note(Note::Engine(event));
        context.maybe_nmi();
    }
}
