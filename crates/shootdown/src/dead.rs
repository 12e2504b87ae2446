//! CPUs that have stopped for good: whoever waits for them goes on, and what they have begun others complete.
//!
//! All that a CPU has begun is in memory (`docs/protocol/steps.md`). Some of it another CPU may be doing at this moment, and looks the same as if the dead one had stopped
//! in the middle of it. So first nobody sends the dead CPU anything new, and all other CPUs are kicked: who has answered is through with what it had begun. What is
//! half done then is the dead CPU's.
//!
//! A host that cannot say that a CPU walks no tables any more declares it *lost*: the same, but it stays in the sets of its spaces, and what flushes of those were to free is kept, until it
//! is declared dead.
//!
//! One CPU completes for all that were declared with it, and keeps others from going offline for the last part; if it dies itself, its own declarer begins anew with those, too.

use core::sync::atomic::Ordering::Relaxed;

use crate::atomic_mask::AtomicCpuMask;
use crate::call::{Answer, Kind, Number, RequestRef, SLOTS};
use crate::capacity::Capacity;
use crate::cpu::CpuId;
use crate::engine::Shootdown;
use crate::guard::PreemptGuard;
use crate::handle::CpuControl;
use crate::mask::CpuMask;
use crate::memory::Here;
use crate::own_set::ones_from;
use crate::platform::Platform;
use crate::sync::{AtomicU64, Ordering, const_fn, fence};
use crate::tlb::AddressSpace;

/// What CPUs that have died did not run.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Unserved {
    /// Calls that have ended without an answer; of each the function may have run, in part too.
    pub calls: usize,
    /// Posted data that have not run, and may be posted again.
    pub data: usize,
}

/// The CPUs that have died.
#[derive(Debug)]
pub(crate) struct DeadCpus<C: Capacity> {
    all: AtomicCpuMask<C>,
    /// Those that may still walk tables.
    lost: AtomicCpuMask<C>,
    /// How often any has been lost.
    losses: AtomicU64,
}

impl<C: Capacity> DeadCpus<C> {
    const_fn! {
        pub(crate) fn new() -> Self {
            Self {
                all: AtomicCpuMask::new(),
                lost: AtomicCpuMask::new(),
                losses: AtomicU64::new(0),
            }
        }
    }
}

/// How often CPUs had been lost when a flush began, or that one that is lost may use what the flush is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Losses(usize);

impl Losses {
    const NONE: Self = Self(0);
    const HELD: Self = Self(0xffff);
    /// It stands in a request above the number of its slot: there is room, and a ticket is no larger.
    const SHIFT: u32 = 8;

    const fn of(count: u64) -> Self {
        Self(count as usize % Self::HELD.0)
    }

    /// The request of a flush with these beside it. Where no CPU was asked there is none, and one may be lost that would have been: then it is request 0 of the slot, which has
    /// ended, or ends.
    pub(crate) fn beside(self, request: Option<RequestRef>, me: CpuId) -> RequestRef {
        let mut request = request.unwrap_or(RequestRef {
            initiator: me,
            slot: 0,
            number: Number::of_word(0),
        });
        request.slot |= self.0 << Self::SHIFT;
        request
    }

    /// The two again.
    #[inline]
    pub(crate) fn split<P: Platform>(mut request: RequestRef) -> (RequestRef, Self) {
        if !P::CONFIG.has_deaths {
            return (request, Self::NONE);
        }
        let losses = Self(request.slot >> Self::SHIFT);
        request.slot &= (1 << Self::SHIFT) - 1;
        (request, losses)
    }
}

impl<P: Platform> CpuControl<'_, P> {
    /// `cpus` have stopped for good: whatever waits for them ends, and what they have begun is completed. They are offline from here on. A CPU that is declared dead and
    /// goes on stops itself, by a panic, when it next serves anything.
    ///
    /// Preemption and interrupts in any state; not in contexts like an NMI. Spins for all other online CPUs, serving this CPU's flushes: hold no lock that they
    /// spin for without polling. Those that have died together are declared together: one that is not declared is waited for. It may be called on several CPUs at once.
    ///
    /// What a dead CPU has lent others, on its stacks, they may use until [`is_settled`](Self::is_settled) says so. Locks of the host that it holds are the host's.
    /// Call data that it had marked and not yet posted stay [`Busy`](crate::calls::PostRefused::Busy). A walk, a lazy or deferring state and a guest are over; spaces that it had
    /// loaded name it until they are flushed once. A rendezvous of which no step had begun is over; of another one the steps that are left are run without it. Somebody
    /// must be there to find out: a CPU that is online, and neither inside that rendezvous nor waiting for one of `cpus`.
    ///
    /// It comes back by [`online`](crate::Shootdown::online), after a reset, when every space whose [`cpus`](crate::AddressSpace::cpus) name it has been flushed. Needs
    /// [`Config::with_deaths`](crate::Config::with_deaths).
    ///
    /// # Panics
    /// When this CPU is among them, or has no [memory](crate::Shootdown::attach); inside a section of [`walk`](crate::user_memory::UserMemory::walk).
    ///
    /// # Safety
    /// 1. They execute nothing from now on, until they are reset and come back online.
    /// 2. They walk no page tables but the kernel's permanent ones: paging is off there, or a permanent root is loaded. A halted CPU keeps its root.
    /// 3. Their stacks, and what they have lent in calls, stay until [`is_settled`](Self::is_settled) says so.
    pub unsafe fn declare_dead(self, cpus: &CpuMask<P::Cpus>) -> Unserved {
        const { assert!(P::CONFIG.has_deaths, "CONFIG lacks with_deaths") };
        let engine = self.0;
        let unserved = engine.declare(cpus, false);
        for cpu in cpus.iter().filter(|cpu| engine.is_lost(*cpu)) {
            engine.state(cpu).lazy.reset();
            // ORDERING: Release: it is nowhere; pairs with `forget_dead`.
            engine.dead.0.lost.remove(cpu, Ordering::Release);
        }
        unserved
    }

    /// As [`declare_dead`](Self::declare_dead), where the host cannot say that these CPUs walk no page tables any more: they may do so for ever, on speculation, in the spaces that they had loaded. All waits end
    /// as there. But a flush of the kernel's part, or of a space or guest that one of them had in use, and each flush that is under way meanwhile, frees nothing:
    /// [`try_wait`](crate::FlushTicket::try_wait) returns [`Held`](crate::secondary::Held), `wait` and `flush` panic, and what is dropped instead is leaked and counted. A space whose
    /// [`cpus`](crate::AddressSpace::cpus) name one is not dropped but forgotten, with its tables.
    ///
    /// A CPU that was reset meanwhile, or whose root is seen to be the kernel's, is declared dead in addition: then a retry gives back what was held.
    ///
    /// # Panics
    /// As there.
    ///
    /// # Safety
    /// 1. and 3. as there.
    pub unsafe fn declare_lost(self, cpus: &CpuMask<P::Cpus>) -> Unserved {
        const { assert!(P::CONFIG.has_deaths, "CONFIG lacks with_deaths") };
        self.0.declare(cpus, true)
    }

    /// Whether all that `cpu` had begun is complete, which has died, and nobody uses what it has lent: its stacks may be used again, and it may come back. Any context; does
    /// not block.
    pub fn is_settled(self, cpu: CpuId) -> bool {
        self.0.attached(cpu).is_none_or(|memory| {
            // ORDERING: Acquire: what its declarer did is seen.
            let is_declared = memory.declared_by.load(Ordering::Acquire) == 0;
            is_declared && memory.slots.iter().all(|slot| slot.is_free())
        })
    }
}

impl<P: Platform> Shootdown<P> {
    /// These have stopped for good, and are lost, perhaps.
    fn declare(&self, cpus: &CpuMask<P::Cpus>, are_lost: bool) -> Unserved {
        let _preempt = PreemptGuard::new(&self.platform);
        self.forbid_wait_in_walk();
        let dead = self.withdraw_dead(cpus, are_lost);
        if dead.is_empty() {
            return Unserved::default();
        }
        // A request that keeps a slot of ours may wait for them.
        let mut unserved = Unserved::default();
        let last = self.last_of_their_groups(&dead);
        unserved.calls += self.answer_for(&dead, None);
        self.settle();
        let mut answer = || unserved.calls += self.answer_for(&dead, Some(&last));
        let _departure = loop {
            // An initiator that is not online was not kicked: one that keeps others from going offline may wait for them, too.
            answer();
            let (_irq, here) = self.stay();
            if let Some(guard) = self.hold_departures(here.cpu) {
                break guard;
            }
            self.serve_flushes(here);
            self.platform.relax();
        };
        answer();
        let (_irq, here) = self.stay();
        for cpu in dead.iter() {
            self.announce_for(cpu);
            unserved.data += self.bury(cpu);
        }
        self.interrupt_all(here);
        for cpu in dead.iter() {
            // ORDERING: Release: see `is_settled`.
            (self.state(cpu).declared_by).store(0, Ordering::Release);
        }
        unserved
    }

    /// Those of `dead` that may have been the last of their group to answer, and have not ended it. Who ends it if it was another one, has when all have [settled](Self::settle).
    fn last_of_their_groups(&self, dead: &CpuMask<P::Cpus>) -> CpuMask<P::Cpus> {
        let is_last = |cpu: &CpuId| {
            let Answer { request, group, .. } = self.state(*cpu).last_answer.get();
            let initiator = self.attached(request.initiator);
            initiator.is_some_and(|state| state.slots[request.slot].pending(group) == 0)
        };
        dead.iter()
            .filter(|_| P::Cpus::IS_WIDE)
            .filter(is_last)
            .collect()
    }

    /// Nothing new is sent to these, and none of them keeps others from anything. Returns those that this CPU has to complete for.
    fn withdraw_dead(&self, cpus: &CpuMask<P::Cpus>, are_lost: bool) -> CpuMask<P::Cpus> {
        let (_irq, here) = self.stay();
        let me = here.cpu;
        assert!(!cpus.contains(me), "{me} declares itself dead");
        let mut dead = CpuMask::EMPTY;
        for (cpu, state) in self.states() {
            let by = &state.declared_by;
            // ORDERING: AcqRel: who takes over sees what the one before did, and the next what we do.
            let takes = |from| {
                (by.compare_exchange(from, me.as_mark(), Ordering::AcqRel, Ordering::Relaxed))
                    .is_ok()
            };
            let from = by.load(Ordering::Relaxed);
            let is_orphan = cpus.iter().any(|cpu| cpu.as_mark() == from);
            let is_new = cpus.contains(cpu) && !self.is_dead(cpu);
            if (is_orphan || is_new && from == 0) && takes(from) {
                match !is_orphan && self.is_dead(cpu) {
                    // Another one has completed for it meanwhile.
                    true => by.store(0, Ordering::Relaxed),
                    false => _ = dead.insert(cpu),
                }
            }
        }
        if are_lost {
            for cpu in dead.iter().filter(|cpu| cpus.contains(*cpu)) {
                self.dead.0.lost.insert(cpu, Ordering::Relaxed);
            }
            // ORDERING: Release: who finds the count finds them; pairs with `losses`. It comes before they are no targets any more, and before anything is answered for them: who
            // finds that finds the count.
            self.dead.0.losses.fetch_add(1, Ordering::Release);
        }
        for cpu in dead.iter() {
            // ORDERING: Release: if it is lost, that is said before; pairs with `forget_dead`.
            self.dead.0.all.insert(cpu, Ordering::Release);
            // Before what they leave is answered: who waits for that finds it.
            self.deaths.fetch_add(1, Relaxed);
            // ORDERING: Release, as in `withdraw`.
            self.callable.0.remove(cpu, Ordering::Release);
            self.ready.0.remove(cpu, Ordering::Release);
        }
        // ORDERING: remove them / read ready for the kick, against insert / read the set of a CPU that comes online.
        fence(Ordering::SeqCst);
        for cpu in dead.iter() {
            if P::CONFIG.has_rendezvous {
                self.go_on_for(here, cpu);
            }
            let held = cpu.as_mark();
            // ORDERING: as the end of a `DepartureGuard`.
            let _ =
                (self.departure.0).compare_exchange(held, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
        if !dead.is_empty() {
            // The kick that follows may find that one of them has rung, and rely on it.
            self.interrupt_all(here);
        }
        dead
    }

    /// Acknowledges all requests in place of these CPUs; returns how many are calls. Before all others have [settled](Self::settle) it leaves out what one of them may be
    /// doing; then it is told which of the dead were the [last of their groups](Self::last_of_their_groups).
    fn answer_for(&self, dead: &CpuMask<P::Cpus>, settled: Option<&CpuMask<P::Cpus>>) -> usize {
        let mut calls = 0;
        for cpu in dead.iter().filter(|_| settled.is_some()) {
            let last = self.state(cpu).last_answer.get();
            let request = last.request;
            // It may never have answered anything.
            match self.attached(request.initiator) {
                Some(_) if last.is_given_up => self.complete_given_up(request),
                Some(initiator) if settled.is_some_and(|last| last.contains(cpu)) => {
                    initiator.slots[request.slot].end_group(last.group, request.number);
                }
                _ => {}
            }
        }
        for (initiator, _) in self.states() {
            for slot in 0..SLOTS {
                let answered = dead
                    .iter()
                    .filter(|cpu| self.answer_one(initiator, slot, *cpu, settled.is_some()));
                calls += answered.count();
            }
        }
        calls
    }

    /// The same for the request in one slot and one CPU; true if it was a call that it had not answered.
    fn answer_one(&self, initiator: CpuId, index: usize, dead: CpuId, is_settled: bool) -> bool {
        let (_irq, here) = self.stay();
        let slot = &self.state(initiator).slots[index];
        let (group, bit) = (P::Cpus::group(dead), P::Cpus::bit(dead));
        // As long as this is so it stays the same request: nobody else takes the bit away, but who gives the call up: both may, because nobody names the dead again
        // before all have answered a kick.
        let Some(kind) = slot.kind_of(dead) else {
            return false;
        };
        let request = RequestRef {
            initiator,
            slot: index,
            number: slot.number(),
        };
        let is_call = !kind.has(Kind::FLUSH);
        let (mut is_first, mut answered) = (true, bit);
        if Self::HAS_RINGS && slot.is_in_ring_of(group) {
            let ring = &self.rings()[group];
            match ring.index_of(request) {
                Some(index) => match ring.leave_leaf(index, dead, is_settled) {
                    (is_one_less, Some(all)) => (is_first, answered) = (is_one_less, all),
                    // Another of its leaf ends it.
                    (is_one_less, None) => return is_call && is_one_less,
                },
                // Its initiator is announcing it, or has died as it did.
                None if !self.is_dead(initiator) => return false,
                None => {}
            }
        }
        // If this CPU dies as well, in between, the next one ends the group.
        here.last_answer.set(Answer {
            request,
            group,
            is_given_up: false,
        });
        slot.acknowledge_for(group, answered, bit);
        is_call && is_first
    }

    /// Has all that `dead` was about to ask for be found, by the inboxes; those that are gone do not find it any more. Interrupts are off.
    fn announce_for(&self, dead: CpuId) {
        self.rings().iter().for_each(|ring| ring.complete_for(dead));
        for (index, slot) in self.state(dead).slots.iter().enumerate() {
            let request = RequestRef {
                initiator: dead,
                slot: index,
                number: slot.number(),
            };
            for group in self.groups() {
                // Where it had not named anybody yet.
                slot.end_group(group, request.number);
                let ring = &self.rings()[group];
                let is_in_ring = Self::HAS_RINGS && slot.is_in_ring_of(group);
                let is_announced = ring
                    .index_of(request)
                    .is_some_and(|index| ring.names_any(index));
                if is_in_ring && !is_announced {
                    slot.leave_ring(group);
                }
                for lane in ones_from(slot.pending(group), 0) {
                    let target = P::Cpus::cpu(group, lane);
                    // One that is leaving runs no functions any more.
                    let is_served = match slot.kind().has(Kind::FLUSH) {
                        true => self.is_ready(target),
                        false => self.is_callable(target),
                    };
                    if !is_served {
                        self.answer_one(dead, index, target, true);
                    } else if !(is_in_ring && is_announced) {
                        // All are interrupted.
                        let _ = self.state(target).inbox.add(dead, true);
                    }
                }
            }
        }
    }

    /// Leaves what the engine keeps for `dead` as that of a CPU that has not come online; returns how many data were posted to it. Interrupts are off.
    fn bury(&self, dead: CpuId) -> usize {
        let state = self.state(dead);
        let count = state.posted.0.take_back(&state.taken_links, dead);
        state.own_posts.give_back();
        state.inbox.ring_all();
        state.inbox.take(dead, false, |_, _| {});
        state.reset();
        if !self.is_lost(dead) {
            state.lazy.reset();
        }
        count
    }

    /// Whatever was announced, somebody may rely on an interrupt that a CPU has not sent. Interrupts are off.
    fn interrupt_all(&self, here: Here<'_, P>) {
        // One that comes online is called before it is flushed.
        let mut targets = self.ready_cpus();
        // ORDERING: Acquire: as in `is_callable`.
        targets.unite(&self.callable.0.load(Ordering::Acquire));
        for cpu in targets.iter() {
            self.state(cpu).inbox.ring_all();
            match cpu == here.cpu {
                true => _ = self.interrupt_self(here),
                false => self.interrupt_one(here, cpu),
            }
        }
    }

    /// A CPU that was dead comes back: nobody takes its bit out of sets any more, or sends it what was meant for the one before. Interrupts are off.
    #[cold]
    pub(crate) fn rise(&self, me: CpuId) {
        assert!(
            !self.is_lost(me),
            "{me} comes online and was declared lost: declare it dead, when it has been reset"
        );
        // Relaxed: the kick publishes it. Who has answered looks again before it takes anybody out of a set (`forget_dead`).
        self.dead.0.all.remove(me, Ordering::Relaxed);
        self.settle();
    }

    /// Takes the dead out of a space's set; a group's `holders` are seen there. Interrupts are off.
    #[inline]
    pub(crate) fn forget_dead(
        &self,
        here: Here<'_, P>,
        space: &AddressSpace<P::Cpus>,
        group: usize,
        holders: u64,
    ) {
        if !self.has_deaths() {
            return;
        }
        // ORDERING: Acquire: who finds one that is lost finds that in the other set, which is read behind this; pairs with `withdraw_dead`.
        let dead = holders & self.dead.0.all.group(group).load(Ordering::Acquire);
        // ORDERING: Acquire: one that was lost is nowhere now; pairs with `declare_dead`.
        let dead = dead & !self.dead.0.lost.group(group).load(Ordering::Acquire);
        // Before one of them comes back it kicks those that are online.
        if dead != 0 && self.is_ready(here.cpu) {
            // ORDERING: Release, as in `leave`.
            space
                .cpu_set()
                .group(group)
                .fetch_and(!dead, Ordering::Release);
        }
    }

    /// Whether any CPU has ever died.
    #[inline]
    pub(crate) fn has_deaths(&self) -> bool {
        P::CONFIG.has_deaths && self.deaths.load(Relaxed) != 0
    }

    /// Whether `cpu`, which is below the capacity, has died.
    #[inline]
    pub(crate) fn is_dead(&self, cpu: CpuId) -> bool {
        self.has_deaths() && self.dead.0.all.contains(cpu, Ordering::Relaxed)
    }

    pub(crate) fn dead_cpus(&self) -> CpuMask<P::Cpus> {
        self.dead.0.all.load(Ordering::Relaxed)
    }

    /// Whether `cpu`, which is below the capacity, may still walk tables, although it has died.
    fn is_lost(&self, cpu: CpuId) -> bool {
        self.dead.0.lost.contains(cpu, Ordering::Relaxed)
    }

    /// What a flush has to know of losses, where CPUs that `may_use` what it is about may be lost. After the barrier of I1, and before it looks for its targets.
    #[inline]
    pub(crate) fn losses(&self, may_use: impl Fn(CpuId) -> bool) -> Losses {
        if !P::CONFIG.has_deaths {
            return Losses::NONE;
        }
        // ORDERING: Acquire, before the set is read: a CPU that is lost later changes the count; pairs with `withdraw_dead`.
        let count = self.dead.0.losses.load(Ordering::Acquire);
        let lost = || self.dead.0.lost.load(Ordering::Relaxed);
        match count != 0 && lost().iter().any(may_use) {
            true => Losses::HELD,
            false => Losses::of(count),
        }
    }

    /// A flush is over that knew of these: whether a CPU may still use what it was about.
    #[inline]
    pub(crate) fn was_lost(&self, known: Losses) -> bool {
        // Relaxed: who answered for a lost CPU has counted before.
        P::CONFIG.has_deaths && known != Losses::of(self.dead.0.losses.load(Ordering::Relaxed))
    }

    /// Whether any CPU is lost.
    pub(crate) fn has_lost(&self) -> bool {
        // ORDERING: Acquire: those that were are nowhere; pairs with `declare_dead`.
        P::CONFIG.has_deaths && !self.dead.0.lost.is_empty(Ordering::Acquire)
    }

    /// Stops a CPU that was declared dead, and serves.
    #[inline]
    pub(crate) fn must_live(&self, me: CpuId) {
        if self.is_dead(me) {
            declared_dead(me);
        }
    }
}

#[cold]
#[inline(never)]
fn declared_dead(me: CpuId) -> ! {
    panic!("{me} was declared dead, and goes on without a reset");
}
