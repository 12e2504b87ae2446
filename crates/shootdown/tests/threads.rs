//! CPUs as threads: everything at once, on a machine whose interleavings nobody chose. Also run under Miri.
//!
//! A thread takes its interrupts where it relaxes and between operations. Each caches translations in a TLB of its
//! own; an oracle beside the engine knows the oldest version of each page that may still be used.

#![cfg(not(loom))]

use shootdown::Cpus;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};

use shootdown::calls::Wait;
use shootdown::*;

use shootdown::tags::*;

const CPUS: usize = 4;
const PAGES: usize = 40;
const PAGE: usize = 4096;
const TAGS: usize = 2;
/// The root without a user part.
// SAFETY: as `tables`.
const KERNEL_ROOT: KernelRoot = unsafe { KernelRoot::new(0) };
const OPERATIONS: usize = if cfg!(miri) { 8 } else { 1000 };

thread_local! {
    static CPU: Cell<u32> = const { Cell::new(0) };
    static IRQS_OFF: Cell<bool> = const { Cell::new(false) };
    static TAG: Cell<u16> = const { Cell::new(0) };
    static TLB: RefCell<BTreeMap<(u16, usize), u64>> = const { RefCell::new(BTreeMap::new()) };
}

/// Under an engine with all that it can have, or a plain one.
#[derive(Debug)]
struct Threads<const PLAIN: bool> {
    interrupted: [AtomicBool; CPUS],
    slots: [[AsidSlot; TAGS]; CPUS],
}

// SAFETY: a thread is one CPU for good; interrupts run only in `take_interrupt`, which respects `IRQS_OFF`;
// flushes drop the thread's own entries; a flag stored with Release is the interrupt.
unsafe impl<const PLAIN: bool> Platform for Threads<PLAIN> {
    type Cpus = Cpus<CPUS>;
    const CONFIG: Config = if PLAIN { Config::PLAIN } else { Config::FULL };
    type IrqState = bool;

    fn current_cpu(&self) -> CpuId {
        CpuId::new(CPU.get())
    }

    fn irq_save(&self) -> bool {
        IRQS_OFF.replace(true)
    }

    unsafe fn irq_restore(&self, state: bool) {
        IRQS_OFF.set(state);
    }

    fn preempt_disable(&self) {}

    unsafe fn preempt_enable(&self) {}

    fn send_ipi(&self, target: CpuId) -> Result<(), IpiRefused> {
        self.interrupted[target.index()].store(true, Ordering::Release);
        Ok(())
    }

    fn local_flush(&self, operation: LocalFlush) {
        let loaded = TAG.get();
        TLB.with_borrow_mut(|tlb| match operation {
            LocalFlush::Pages(range, _) => tlb.retain(|(tag, page), _| {
                *tag != loaded || !(range.start()..range.end()).contains(page)
            }),
            LocalFlush::Space => tlb.retain(|(tag, _), _| *tag != loaded),
            LocalFlush::All => tlb.clear(),
        });
    }

    unsafe fn load_root(&self, _: u64) {
        unreachable!("the engine loads roots under tags");
    }

    fn asid_slots(&self, cpu: CpuId) -> &[AsidSlot] {
        &self.slots[cpu.index()]
    }

    unsafe fn load_tagged_root(&self, _: u64, asid: Asid, entries: TagEntries) {
        TAG.set(asid.as_u16());
        if entries == TagEntries::Drop {
            TLB.with_borrow_mut(|tlb| tlb.retain(|(tag, _), _| *tag != asid.as_u16()));
        }
    }

    fn now_ns(&self) -> u64 {
        0
    }

    fn relax(&self) {
        std::thread::yield_now();
    }
}

fn tables(number: u64) -> Root {
    // SAFETY: these roots are numbers.
    unsafe { Root::new(number) }
}

struct World<const PLAIN: bool> {
    engine: Shootdown<Threads<PLAIN>>,
    /// What a plain engine cannot do: changes its policy, and goes offline and online again.
    set_policy: fn(&Shootdown<Threads<PLAIN>>, Policy),
    go_out_and_in: fn(&Shootdown<Threads<PLAIN>>),
    space: AddressSpace<Cpus<CPUS>>,
    /// The page table: the version of each page.
    table: [AtomicU64; PAGES],
    /// The oldest version that a CPU may still use: raised when a flush has returned.
    oldest: [AtomicU64; PAGES],
    posts: AtomicUsize,
    runs: AtomicUsize,
    finished: AtomicUsize,
}

impl<const PLAIN: bool> World<PLAIN> {
    fn take_interrupt(&self) {
        let pending = &self.engine.platform().interrupted[CPU.get() as usize];
        if !IRQS_OFF.get() && pending.swap(false, Ordering::Acquire) {
            self.engine.handle_ipi();
        }
    }

    /// A load from user mode.
    fn access(&self, page: usize) {
        self.take_interrupt();
        let oldest = self.oldest[page].load(Ordering::Acquire);
        let used = TLB.with_borrow_mut(|tlb| {
            *tlb.entry((TAG.get(), page * PAGE))
                .or_insert_with(|| self.table[page].load(Ordering::Relaxed))
        });
        assert!(
            used >= oldest,
            "CPU {} used version {used} of page {page}, {oldest} is flushed",
            CPU.get()
        );
    }

    /// Changes `count` pages and flushes them.
    fn change(&self, first: usize, count: usize) {
        let pages = first..(first + count).min(PAGES);
        let versions: Vec<u64> = pages
            .clone()
            .map(|page| self.table[page].fetch_add(1, Ordering::Relaxed) + 1)
            .collect();
        let range = FlushRange::pages(first * PAGE, pages.len(), PageSize::SIZE_4K);
        self.engine.flush(&self.space, range, FreedTables::No);
        for (page, version) in pages.zip(versions) {
            self.oldest[page].fetch_max(version, Ordering::AcqRel);
        }
    }

    fn operate(&'static self, random: &mut u64) {
        *random ^= *random << 13;
        *random ^= *random >> 7;
        *random ^= *random << 17;
        let (choice, page) = (*random >> 8 & 15, (*random >> 16) as usize % PAGES);
        let mask: CpuMask<Cpus<CPUS>> = (0..CPUS as u32)
            .filter(|cpu| *random >> (32 + cpu) & 1 == 1)
            .map(CpuId::new)
            .collect();
        let count = move |_: CpuId| {
            self.runs.fetch_add(1, Ordering::Relaxed);
        };
        match choice {
            0..5 => self.access(page),
            5..8 => self.change(page, 1 + (*random >> 40) as usize % 36),
            8..10 => {
                let ran = self.engine.submit(&mask, count, Wait::None).targets();
                self.posts.fetch_add(ran.len(), Ordering::Relaxed);
            }
            10..12 => {
                let inside = AtomicUsize::new(0);
                let ran = self.engine.call_many(&mask, &|_| {
                    inside.fetch_add(1, Ordering::Relaxed);
                });
                assert_eq!(inside.into_inner(), ran.len(), "a call returned early");
            }
            12 => {
                // A called function that flushes.
                self.engine.call_many(&mask, &|_| self.change(page, 1));
            }
            13 => {
                let ticket = self.engine.submit(&mask, count, Wait::Received);
                self.posts
                    .fetch_add(ticket.targets().len(), Ordering::Relaxed);
                ticket.wait();
            }
            14 => self.leave_for_a_while(page),
            _ => {
                let policies = [Policy::BEFORE, Policy::PUBLISHED, Policy::BEST];
                (self.set_policy)(&self.engine, policies[page % 3]);
            }
        }
    }

    /// Without the space, lazy in it, or out of service.
    fn leave_for_a_while(&self, how: usize) {
        let engine = &self.engine;
        let rest = || (0..how).for_each(|_| self.take_interrupt());
        if how % 2 == 0 {
            engine.user_memory().enter_lazy(&self.space, KERNEL_ROOT);
            rest();
            engine.switch_to(Some(&self.space), &self.space);
            return;
        }
        engine.switch_away(&self.space, KERNEL_ROOT);
        if how % 3 == 0 {
            (self.go_out_and_in)(engine);
        } else {
            rest();
        }
        engine.switch_to(None, &self.space);
    }

    fn run_cpu(&'static self, cpu: u32, start: &Barrier) {
        CPU.set(cpu);
        self.engine.online();
        self.engine.switch_to(None, &self.space);
        start.wait();
        let mut random = 0x9e37_79b9_7f4a_7c15 ^ u64::from(cpu) << 32 | 1;
        for _ in 0..OPERATIONS {
            self.operate(&mut random);
        }
        self.finished.fetch_add(1, Ordering::AcqRel);
        while self.finished.load(Ordering::Acquire) < CPUS {
            self.take_interrupt();
            std::thread::yield_now();
        }
        self.take_interrupt();
        self.engine.switch_away(&self.space, KERNEL_ROOT);
    }
}

#[test]
fn calls_and_flushes_from_all_cpus_lose_nothing_and_leave_nothing_stale() {
    let world = run::<false>(Shootdown::set_policy, |engine| {
        let state = engine.platform().irq_save();
        engine.offline();
        engine.online();
        // SAFETY: 1. saved above.
        unsafe { engine.platform().irq_restore(state) };
    });
    let stats = world.engine.watch().total_stats();
    assert!(stats.remote_flushes > 0 && stats.functions_run > 0);
    // Under the interpreter the few operations may hold none of these.
    assert!(cfg!(miri) || stats.tags_kept > 0 && stats.tags_dropped > 0 && stats.lazy_skipped > 0);
}

#[test]
fn a_plain_engine_loses_nothing_and_leaves_nothing_stale() {
    let world = run::<true>(|_, _| (), |_| ());
    assert_eq!(world.engine.policy(), Policy::BEST);
}

/// Each call has run once when its ticket has been waited for, or was given up and never runs, whatever its target does at that moment.
#[test]
fn a_call_has_run_or_was_given_up() {
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    let world = new_world::<true>(|_, _| (), |_| ());
    let (start, over) = (Barrier::new(2), AtomicBool::new(false));
    let (mut given_up, mut run) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            CPU.set(1);
            world.engine.online();
            start.wait();
            while !over.load(Ordering::Acquire) {
                world.take_interrupt();
                std::hint::spin_loop();
            }
            world.take_interrupt();
        });
        world.engine.online();
        start.wait();
        for round in 0..10 * OPERATIONS {
            let count = |_: CpuId| _ = RUNS.fetch_add(1, Ordering::Relaxed);
            let ticket = world.engine.control().try_submit(CpuId::new(1), count);
            (0..round % 64).for_each(|_| std::hint::spin_loop());
            match ticket.unwrap().give_up() {
                Ok(()) => given_up += 1,
                Err(ticket) => {
                    ticket.wait();
                    run += 1;
                }
            }
            assert_eq!(RUNS.load(Ordering::Relaxed), run, "after {given_up}");
        }
        over.store(true, Ordering::Release);
    });
    assert_eq!(RUNS.load(Ordering::Relaxed), run, "one ran later");
    assert!(cfg!(miri) || given_up > 0);
}

/// All CPUs do what they draw, to the end.
fn run<const PLAIN: bool>(
    set_policy: fn(&Shootdown<Threads<PLAIN>>, Policy),
    go_out_and_in: fn(&Shootdown<Threads<PLAIN>>),
) -> &'static World<PLAIN> {
    let world = new_world(set_policy, go_out_and_in);
    let start = Arc::new(Barrier::new(CPUS));
    let cpus: Vec<_> = (0..CPUS as u32)
        .map(|cpu| {
            let start = start.clone();
            std::thread::spawn(move || world.run_cpu(cpu, &start))
        })
        .collect();
    for cpu in cpus {
        cpu.join().expect("a CPU failed");
    }
    assert_eq!(
        world.posts.load(Ordering::Relaxed),
        world.runs.load(Ordering::Relaxed),
        "a post was lost"
    );
    world
}

/// With no CPU online.
fn new_world<const PLAIN: bool>(
    set_policy: fn(&Shootdown<Threads<PLAIN>>, Policy),
    go_out_and_in: fn(&Shootdown<Threads<PLAIN>>),
) -> &'static World<PLAIN> {
    let engine = Shootdown::new(Threads {
        interrupted: Default::default(),
        slots: [const { [const { AsidSlot::new() }; TAGS] }; CPUS],
    });
    let space = AddressSpace::new(&engine, tables(1));
    let world: &'static World<PLAIN> = Box::leak(Box::new(World {
        engine,
        set_policy,
        go_out_and_in,
        space,
        table: std::array::from_fn(|_| AtomicU64::new(0)),
        oldest: std::array::from_fn(|_| AtomicU64::new(0)),
        posts: AtomicUsize::new(0),
        runs: AtomicUsize::new(0),
        finished: AtomicUsize::new(0),
    }));
    let memory = (0..CPUS).map(|_| CpuMemory::new()).collect::<Vec<_>>();
    world.engine.attach(CpuId::new(0), memory.leak());
    world
}
