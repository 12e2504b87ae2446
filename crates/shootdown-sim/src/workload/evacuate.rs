//! Virtual machines whose memory is sent elsewhere while they run (T5): their writes are logged, page by page.
//!
//! CPU 0 goes round the virtual machines, reads and clears their logs, and write-protects what it found. On each other CPU virtual CPUs take turns.
//! They write pages of their working sets at random; the first write to a page since it was protected leaves the guest, is logged, and makes the page
//! writable. What rows differ in is who is told of what: [`Evacuation`].

use std::cell::{Cell, RefCell};

use shootdown::{
    Capacity, CpuId, CpuMask, Platform,
    guest::{GuestExit, GuestSpace, Vcpu},
};
use shootdown::{
    FlushRange, FreedTables,
    sim::{AtomicU64, Ordering},
};
use shootdown_peers::CrossCall;

use crate::machine::{Context, Engine, Machine, root_at};
use crate::timed::{Costs, Timed, Translation};
use crate::workload::Built;
use crate::workload::engine::with_size;
use crate::workload::evacuated::{Counted, Evacuated, Evacuation};

/// Rounds until the logs, the tags and the lines are as they are in each.
const WARM_UP_ROUNDS: u64 = 2;
/// In a nested leaf entry and in what a TLB holds of it: writes are allowed.
const WRITABLE: u64 = 1;
/// Above it, the round in which the entry was last protected.
const ROUND_SHIFT: u32 = 1;
/// All entries are protected at the start; 0 would be a page that is not there.
const FIRST_ROUND: u64 = 1;
/// How long an interrupt waits for the guest's instruction at most.
const STEP_PS: u64 = 100_000;
/// Working sets do not overlap, nor do the entries that lead to them.
const PAGES_APART: u64 = 1 << 18;

/// One row of the table.
#[derive(Clone, Debug)]
pub struct Evacuate {
    /// CPUs of the machine; the first one evacuates.
    pub cpus: usize,
    /// Virtual machines.
    pub machines: usize,
    /// Virtual CPUs of each.
    pub vcpus: usize,
    /// Pages of the working set of each virtual machine.
    pub pages: usize,
    /// Who is told of what.
    pub evacuation: Evacuation,
    /// The machine.
    pub costs: Costs,
    /// Decides which pages are written.
    pub seed: u64,
    /// Rounds that are measured.
    pub rounds: u64,
}

impl Evacuate {
    /// Runs the row.
    ///
    /// # Panics
    /// With fewer than two CPUs, or nothing to run or write.
    pub fn run(&self) -> Evacuated {
        assert!(self.cpus > 1 && self.rounds > 0);
        assert!(self.machines > 0 && self.vcpus > 0 && self.pages > 0);
        with_size!(self.cpus, run_sized(self))
    }
}

/// Nested leaf entries that share a cache line.
#[repr(align(64))]
struct EntryLine([AtomicU64; ENTRIES_PER_LINE]);

const ENTRIES_PER_LINE: usize = 8;

impl EntryLine {
    fn protected() -> Self {
        Self([const { AtomicU64::new(FIRST_ROUND << ROUND_SHIFT) }; ENTRIES_PER_LINE])
    }
}

/// One virtual machine.
struct Guest<C: Capacity> {
    space: GuestSpace<C>,
    first_page: u64,
    /// The nested leaf entries of the working set.
    table: Box<[EntryLine]>,
    /// Held while entries or the log are changed.
    lock: AtomicU64,
    /// Pages that were written since the last round.
    log: RefCell<Vec<usize>>,
    /// What is protected since this round is known to all.
    closed: Cell<u64>,
    /// The CPUs that run it, for those who keep such a set.
    holders: Holders<C>,
}

/// A set that CPUs enter and leave as they begin and end to run a guest; one word a line is enough for what it costs.
#[repr(align(64))]
struct Holders<C: Capacity> {
    word: AtomicU64,
    cpus: Cell<CpuMask<C>>,
}

/// One virtual CPU on its CPU.
struct Running<'a, C: Capacity> {
    guest: &'a Guest<C>,
    vcpu: Vcpu,
    /// How often the tags of its CPU had been voided when it ran last.
    voided: u64,
    /// What it does until it writes next.
    left_ps: u64,
    /// The write that made it leave, which it repeats.
    refused: Option<usize>,
    random: fastrand::Rng,
}

struct World<'a, C: Capacity> {
    row: &'a Evacuate,
    engine: &'a Engine<C>,
    /// Whose calls tell others, unless the engine does.
    calls: &'a dyn CrossCall<C>,
    guests: Vec<Guest<C>>,
    /// How often all tags of each CPU were voided.
    voided: Vec<Cell<u64>>,
    counted: Cell<Counted>,
    /// At the begin of the measured rounds: when, and what was counted.
    began: Cell<Option<(u64, Counted)>>,
    outcome: RefCell<Option<Evacuated>>,
    is_over: Cell<bool>,
}

// Not inlined: see `madvise`.
#[inline(never)]
fn run_sized<C: Capacity>(row: &Evacuate) -> Evacuated {
    let engine = Engine::<C>::new(row.cpus);
    let peer = row
        .evacuation
        .peer()
        .map(|peer| Built::<C>::new(peer, row.cpus));
    let calls: &dyn CrossCall<C> = peer.as_ref().map_or(&*engine, Built::calls);
    let world = World {
        row,
        engine: &engine,
        calls,
        guests: (0..row.machines)
            .map(|index| Guest::new(&engine, row, index))
            .collect(),
        voided: vec![Cell::new(0); row.cpus],
        counted: Cell::default(),
        began: Cell::new(None),
        outcome: RefCell::new(None),
        is_over: Cell::new(false),
    };
    let model = Timed::with_seed(row.cpus, row.costs.clone(), row.seed).without_idle_turns();
    let machine = Machine::timed(model, || calls.handle_ipi());
    machine.run_each(row.evacuation.name(), |cpu, context| {
        engine.online();
        match cpu {
            0 => world.evacuate(context),
            _ => world.host(cpu, context),
        }
    });
    world.outcome.into_inner().expect("the evacuation is over")
}

impl<C: Capacity> Guest<C> {
    fn new(engine: &Engine<C>, row: &Evacuate, index: usize) -> Self {
        Self {
            space: GuestSpace::new(engine, root_at(index as u64 + 1)),
            first_page: (index as u64 + 1) * PAGES_APART,
            table: (0..row.pages.div_ceil(ENTRIES_PER_LINE))
                .map(|_| EntryLine::protected())
                .collect(),
            lock: AtomicU64::new(0),
            log: RefCell::default(),
            closed: Cell::new(0),
            holders: Holders {
                word: AtomicU64::new(0),
                cpus: Cell::new(CpuMask::EMPTY),
            },
        }
    }

    fn entry(&self, page: usize) -> &AtomicU64 {
        &self.table[page / ENTRIES_PER_LINE].0[page % ENTRIES_PER_LINE]
    }
}

impl<C: Capacity> World<'_, C> {
    fn count(&self, change: impl FnOnce(&mut Counted)) {
        let mut counted = self.counted.get();
        change(&mut counted);
        self.counted.set(counted);
    }

    /// Lets the virtual CPUs of this CPU run, one turn after the other.
    fn host(&self, cpu: usize, context: Context<'_>) {
        let all = self.row.machines * self.row.vcpus;
        let mine = (cpu - 1..all).step_by(self.row.cpus - 1);
        let machine_of = |vcpu: usize| &self.guests[vcpu % self.row.machines];
        let mut vcpus: Vec<_> = mine
            .map(|vcpu| {
                let guest = machine_of(vcpu);
                let random = fastrand::Rng::with_seed(self.row.seed ^ (vcpu as u64) << 32);
                Running {
                    guest,
                    vcpu: Vcpu::new(self.engine, &guest.space),
                    voided: 0,
                    left_ps: 0,
                    refused: None,
                    random,
                }
            })
            .collect();
        while !self.is_over.get() {
            if vcpus.is_empty() {
                context.work(self.row.costs.guest.turn_ps);
            }
            for running in &mut vcpus {
                context.work(self.row.costs.context_switch_ps);
                self.run_turn(cpu, context, running);
            }
        }
    }

    fn run_turn(&self, cpu: usize, context: Context<'_>, running: &mut Running<'_, C>) {
        let (until_ps, guest) = (
            context.now_ps() + self.row.costs.guest.turn_ps,
            running.guest,
        );
        self.change_set(guest, |cpus| cpus.insert(CpuId::new(cpu as u32)));
        while context.now_ps() < until_ps && !self.is_over.get() {
            let voided = self.voided[cpu].get();
            if std::mem::replace(&mut running.voided, voided) != voided {
                running.vcpu.drop_translations();
            }
            self.run_guest(context, running, until_ps);
            self.count(|counted| counted.exits += 1);
            if let Some(page) = running.refused {
                self.first_write(context, guest, page);
            }
        }
        self.change_set(guest, |cpus| cpus.remove(CpuId::new(cpu as u32)));
    }

    /// Until its turn is over, an interrupt comes, or it writes a page that is write-protected.
    fn run_guest(&self, context: Context<'_>, running: &mut Running<'_, C>, until_ps: u64) {
        let Running {
            guest,
            vcpu,
            left_ps,
            refused,
            random,
            ..
        } = running;
        // SAFETY: 1. to 3. The virtual CPU's TLB is told of the tag, and left under the host's; an interrupt ends the loop and stays pending.
        unsafe {
            guest.space.run(self.engine, vcpu, |entry| {
                context.enter_guest(entry);
                while context.now_ps() < until_ps && !context.interrupt_ends_guest() {
                    if *left_ps > 0 {
                        let step_ps = STEP_PS.min(*left_ps);
                        context.work(step_ps);
                        *left_ps -= step_ps;
                        continue;
                    }
                    let page = refused
                        .take()
                        .unwrap_or_else(|| random.usize(..self.row.pages));
                    if !self.write(context, guest, page) {
                        *refused = Some(page);
                        break;
                    }
                    *left_ps = self.row.costs.guest.write_ps;
                }
                context.leave_guest();
                GuestExit::Ran(())
            });
        }
    }

    /// A write of the guest; false if it is not allowed.
    fn write(&self, context: Context<'_>, guest: &Guest<C>, page: usize) -> bool {
        let entry = guest.entry(page);
        let number = guest.first_page + page as u64;
        let (Translation::Cached(found) | Translation::Walked(found)) =
            context.touch(number, entry.as_core())
        else {
            unreachable!("all pages are there")
        };
        if found & WRITABLE == 0 {
            // What refuses a write is not kept (AMD APM vol. 2, "Page-Fault Exception").
            context.forget_refused(number);
            return false;
        }
        // Protected since, and everybody has been told.
        let protected = entry.as_core().load(std::sync::atomic::Ordering::Relaxed) >> ROUND_SHIFT;
        let is_stale = found >> ROUND_SHIFT < protected && protected <= guest.closed.get();
        self.count(|counted| {
            counted.writes += 1;
            counted.stale += u64::from(is_stale);
        });
        true
    }

    /// The host's part of a first write: the page is logged and becomes writable.
    fn first_write(&self, context: Context<'_>, guest: &Guest<C>, page: usize) {
        context.work(self.row.costs.guest.first_write_ps);
        self.locked(guest, || {
            let entry = guest.entry(page);
            let before = entry.fetch_or(WRITABLE, Ordering::Relaxed);
            // Else another virtual CPU came first.
            if before & WRITABLE == 0 {
                guest.log.borrow_mut().push(page);
                self.count(|counted| counted.dirtied += 1);
            }
        });
        if self.row.evacuation.flushes_first_writes() {
            self.tell(context, guest);
        }
    }

    /// Reads and clears the logs, round after round.
    fn evacuate(&self, context: Context<'_>) {
        for turn in 1..=WARM_UP_ROUNDS + self.row.rounds {
            let round = FIRST_ROUND + turn;
            let ends_ps = context.now_ps() + self.row.costs.guest.round_ps;
            if turn == WARM_UP_ROUNDS + 1 {
                self.began.set(Some((context.now_ps(), self.counted_now())));
            }
            for guest in &self.guests {
                self.clear(context, guest, round);
            }
            let left_ps = ends_ps.saturating_sub(context.now_ps());
            context.work(left_ps);
        }
        let (began_ps, before) = self.began.get().expect("rounds are measured");
        let span_ps = context.now_ps() - began_ps;
        let counted = self.counted_now().since(before);
        self.outcome.replace(Some(Evacuated { span_ps, counted }));
        self.is_over.set(true);
    }

    fn counted_now(&self) -> Counted {
        let stats = self.engine.watch().total_stats();
        Counted {
            ipis: self.counted.get().ipis + stats.ipis_sent,
            tags_dropped: stats.tags_dropped + stats.tags_taken,
            ..self.counted.get()
        }
    }

    fn clear(&self, context: Context<'_>, guest: &Guest<C>, round: u64) {
        let taken = self.locked(guest, || {
            let taken = guest.log.take();
            for page in &taken {
                guest
                    .entry(*page)
                    .store(round << ROUND_SHIFT, Ordering::Relaxed);
            }
            taken
        });
        if taken.is_empty() {
            return;
        }
        self.tell(context, guest);
        guest.closed.set(round);
        self.count(|counted| counted.cleared += taken.len() as u64);
        context.work(taken.len() as u64 * self.row.costs.copy_page_ps);
    }

    /// No CPU runs the guest on what was there before, once this returns.
    fn tell(&self, context: Context<'_>, guest: &Guest<C>) {
        self.count(|counted| counted.flushes += 1);
        if self.row.evacuation.peer().is_none() {
            self.engine
                .submit_flush(&guest.space, FlushRange::WHOLE, FreedTables::No)
                .wait();
            return;
        }
        let running = guest.holders.cpus.get();
        let others = {
            let mut others = running;
            others.remove(context.number_of(context.cpu()));
            others.len() as u64
        };
        self.count(|counted| counted.ipis += others);
        // Of all guests: Xen's FLUSH_HVM_ASID_CORE.
        let void = |cpu: CpuId| {
            let voided = &self.voided[cpu.index()];
            voided.set(voided.get() + 1);
        };
        let shared = Shared(&void);
        self.calls.call(&running, &|cpu| shared.call(cpu));
    }

    /// The engine needs no such set.
    fn change_set(&self, guest: &Guest<C>, change: impl FnOnce(&mut CpuMask<C>) -> bool) {
        if self.row.evacuation.peer().is_none() {
            return;
        }
        guest.holders.word.fetch_add(1, Ordering::AcqRel);
        let mut cpus = guest.holders.cpus.get();
        change(&mut cpus);
        guest.holders.cpus.set(cpus);
    }

    fn locked<R>(&self, guest: &Guest<C>, work: impl FnOnce() -> R) -> R {
        while guest.lock.swap(1, Ordering::Acquire) != 0 {
            self.engine.platform().relax();
        }
        let result = work();
        guest.lock.store(0, Ordering::Release);
        result
    }
}

/// A function that virtual CPUs share.
struct Shared<'a>(&'a dyn Fn(CpuId));

// SAFETY: the virtual CPUs are coroutines of one thread.
unsafe impl Sync for Shared<'_> {}

impl Shared<'_> {
    fn call(&self, cpu: CpuId) {
        (self.0)(cpu);
    }
}
