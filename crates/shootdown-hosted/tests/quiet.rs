//! The way into the kernel of a quiet CPU, on real cores: two threads, each on one, meet again and again at the moment at which each could miss the other.
//!
//! The order that the engine has is tried beside one without its barrier, written by hand: that one must be noticed, or the test shows nothing.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use shootdown::*;

const ROUNDS: u64 = 100_000;
/// The wrong one is seen in one of a thousand rounds, more or less.
const MOST_ROUNDS: u64 = 5_000_000;

/// Lines of their own.
#[repr(align(128))]
#[derive(Default)]
struct Line(AtomicU64);

thread_local! {
    static CPU: Cell<u32> = const { Cell::new(0) };
    static IRQS_OFF: Cell<bool> = const { Cell::new(false) };
    /// The translation of the one page, or 0.
    static TLB: Cell<u64> = const { Cell::new(0) };
}

#[derive(Default)]
struct Pair {
    interrupted: [AtomicBool; 2],
}

// SAFETY: a thread is one CPU for good; interrupts run in `take_interrupt` only; flushes drop the thread's own entry; a flag stored with Release is the interrupt.
unsafe impl Platform for Pair {
    type Cpus = Cpus<2>;
    const CONFIG: Config = Config::PLAIN.with_quiet(true);
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

    fn local_flush(&self, _: LocalFlush) {
        TLB.set(0);
    }

    unsafe fn load_root(&self, _: u64) {}

    fn now_ns(&self) -> u64 {
        0
    }
}

fn take_interrupt(engine: &Shootdown<Pair>) {
    if engine.platform().interrupted[1].swap(false, Ordering::Acquire) {
        engine.handle_ipi();
    }
}

/// No core.
fn no_cores() -> libc::cpu_set_t {
    // SAFETY: all zero is an empty set.
    unsafe { std::mem::zeroed() }
}

/// Where this process may run.
fn allowed() -> libc::cpu_set_t {
    let mut allowed = no_cores();
    let process = std::process::id() as libc::pid_t;
    // SAFETY: it fills the set up to its size.
    unsafe { libc::sched_getaffinity(process, size_of_val(&allowed), &raw mut allowed) };
    allowed
}

fn cores(set: &libc::cpu_set_t) -> impl Iterator<Item = usize> + Clone {
    // SAFETY: it is below the size of the set.
    let is_in = move |core: &usize| unsafe { libc::CPU_ISSET(*core, set) };
    (0..libc::CPU_SETSIZE as usize).filter(is_in)
}

/// This thread stays on one of the cores, each on another one where there are two.
fn pin_to(me: usize) {
    let allowed = allowed();
    let mine = cores(&allowed).cycle().nth(me).expect("it runs somewhere");
    let mut set = no_cores();
    // SAFETY: it is below the size of the set.
    unsafe { libc::CPU_SET(mine, &mut set) };
    // SAFETY: the set is read up to its size; 0 is this thread.
    unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) };
}

/// Runs `initiator` and `target` at once, round after round, until `is_over`.
fn meet(
    initiator: impl Fn(u64) + Sync,
    target: impl Fn(u64) + Sync,
    is_over: impl Fn(u64) -> bool + Sync,
) {
    let at = [Line::default(), Line::default()];
    let turn = |me: usize, round: u64| {
        at[me].0.store(round, Ordering::SeqCst);
        let mut turns = 0;
        while at[1 - me].0.load(Ordering::SeqCst) < round {
            turns += 1;
            // Others may have the other core.
            if turns > 500 {
                std::thread::yield_now();
            }
        }
    };
    let run = |me: usize, act: &(dyn Fn(u64) + Sync)| {
        CPU.set(me as u32);
        pin_to(me);
        for round in 1.. {
            turn(me, 2 * round - 1);
            // Who has come first goes on a little later than the other: so each begins now a little earlier, now a little later.
            (0..round % [89, 397][me]).for_each(|turn| _ = std::hint::black_box(turn));
            act(round);
            turn(me, 2 * round);
            if is_over(round) {
                return;
            }
        }
    };
    // Neither is the test's own thread, which may run anywhere.
    std::thread::scope(|scope| {
        scope.spawn(|| run(1, &target));
        scope.spawn(|| run(0, &initiator));
    });
}

#[test]
fn a_cpu_that_comes_back_and_a_flush_do_not_miss_each_other() {
    static ENGINE: Shootdown<Pair> = Shootdown::new(Pair {
        interrupted: [const { AtomicBool::new(false) }; 2],
    });
    static MEMORY: [CpuMemory<Pair>; 2] = [const { CpuMemory::new() }; 2];
    ENGINE.attach(CpuId::new(0), &MEMORY);
    let (table, done, stale) = (Line::default(), Line::default(), Line::default());
    let initiator = |round| {
        if round == 1 {
            ENGINE.online();
        } else {
            table.0.store(round, Ordering::Relaxed);
            let page = FlushRange::pages(0x1000, 1, PageSize::SIZE_4K);
            ENGINE.flush(FlushScope::Kernel, page, FreedTables::No);
        }
        done.0.store(round, Ordering::Release);
    };
    let target = |round| {
        let control = ENGINE.control();
        if round == 1 {
            ENGINE.online();
        } else {
            control.leave_quiet();
        }
        while done.0.load(Ordering::Acquire) < round {
            take_interrupt(&ENGINE);
        }
        take_interrupt(&ENGINE);
        let newest = table.0.load(Ordering::Relaxed);
        if TLB.get() != 0 && TLB.get() != newest {
            stale.0.fetch_add(1, Ordering::Relaxed);
        }
        TLB.set(newest);
        // SAFETY: 1. and 2. until the next round it does nothing.
        unsafe { control.enter_quiet() };
    };
    meet(initiator, target, |round| round == ROUNDS);
    assert_eq!(stale.0.into_inner(), 0, "of {ROUNDS} rounds");
    // Not beside it: there are two cores.
    without_the_barrier_they_do();
}

/// How often each misses the other, and in how many rounds, until it happens.
fn misses(has_barrier: bool, most: u64) -> (u64, u64) {
    let (quiet, changes, known) = (Line::default(), Line::default(), Line::default());
    let (found, missed, rounds) = (Line::default(), Line::default(), Line::default());
    let initiator = |round| {
        changes.0.store(round, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        found
            .0
            .store(1 - quiet.0.load(Ordering::Relaxed), Ordering::Relaxed);
    };
    let target = |_| {
        quiet.0.store(0, Ordering::Relaxed);
        if has_barrier {
            fence(Ordering::SeqCst);
        }
        known
            .0
            .store(changes.0.load(Ordering::Relaxed), Ordering::Relaxed);
    };
    // Both look between two rounds, when nothing goes on.
    let is_over = |round: u64| {
        let is_missed =
            found.0.load(Ordering::Relaxed) == 0 && known.0.load(Ordering::Relaxed) != round;
        if CPU.get() == 0 {
            missed.0.fetch_add(u64::from(is_missed), Ordering::Relaxed);
            rounds.0.store(round, Ordering::Relaxed);
        } else {
            quiet.0.store(1, Ordering::Relaxed);
        }
        is_missed && !has_barrier || round == most
    };
    meet(initiator, target, is_over);
    (missed.0.into_inner(), rounds.0.into_inner())
}

fn without_the_barrier_they_do() {
    assert_eq!(misses(true, ROUNDS), (0, ROUNDS));
    if cores(&allowed()).count() < 2 {
        return;
    }
    let (missed, rounds) = misses(false, MOST_ROUNDS);
    assert!(missed > 0, "not seen in {rounds} rounds");
    println!("without the barrier: one of {rounds} rounds");
}
