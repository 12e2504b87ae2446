//! The CPUs: online, and with work to do. No scheduler is used: OSTD lets an entry function keep its CPU.

use core::sync::atomic::{AtomicUsize, Ordering};

use ostd::irq;
use shootdown::CallTargets;

use crate::options::{Mistake, Options};
use crate::platform::{self, MAX_CPUS, SHOOTDOWN, this_cpu};
use crate::{machine, spaces, torture};

/// Rounds of the first test.
const CALLS: usize = 2000;

/// On each CPU: the function that it is to run, as a number, or 0.
static WORK: [AtomicUsize; MAX_CPUS] = [const { AtomicUsize::new(0) }; MAX_CPUS];
static ONLINE: AtomicUsize = AtomicUsize::new(0);
/// Interrupts that all CPUs took, and how many of them were the timer's.
static INTERRUPTS: AtomicUsize = AtomicUsize::new(0);
static TICKS: AtomicUsize = AtomicUsize::new(0);

/// How many there are.
pub fn count() -> usize {
    ostd::cpu::num_cpus()
}

/// Brings all of them online. Once, on the boot CPU.
pub fn start(options: &Options) {
    if !(2..=MAX_CPUS).contains(&count()) {
        say!("ostd: 2 to {MAX_CPUS} CPUs are needed, not {}", count());
        machine::end(false);
    }
    platform::prepare(options.mistake == Mistake::NoFlush);
    spaces::prepare();
    irq::register_bottom_half_handler_l1(|guard, _| {
        INTERRUPTS.fetch_add(1, Ordering::Relaxed);
        guard
    });
    irq::register_bottom_half_handler_l2(|_| {
        INTERRUPTS.fetch_add(1, Ordering::Relaxed);
    });
    ostd::boot::smp::register_ap_entry(serve);
    join();
    while ONLINE.load(Ordering::Acquire) < count() {
        machine::halt();
    }
}

fn join() {
    platform::online();
    ostd::timer::register_callback_on_cpu(|| {
        TICKS.fetch_add(1, Ordering::Relaxed);
        torture::tick();
    });
    // ORDERING: publishes that this CPU is online; pairs with the wait in `start`.
    ONLINE.fetch_add(1, Ordering::Release);
}

/// What the other CPUs do for ever.
fn serve() {
    join();
    let place = &WORK[this_cpu()];
    loop {
        match place.load(Ordering::Acquire) {
            0 => machine::halt(),
            work => {
                // SAFETY: only `begin` stores there, and it stores a `fn()`.
                let work = unsafe { core::mem::transmute::<usize, fn()>(work) };
                work();
                // ORDERING: publishes what the work has done; pairs with `end`.
                place.store(0, Ordering::Release);
            }
        }
    }
}

/// Has another CPU do `work`. It must have ended what it did before.
pub fn begin(cpu: usize, work: fn()) {
    // ORDERING: publishes what the work finds; pairs with `serve`.
    let before = WORK[cpu].swap(work as usize, Ordering::Release);
    assert!(before == 0, "CPU {cpu} has work");
}

/// Waits until it has ended it.
pub fn end(cpu: usize) {
    while WORK[cpu].load(Ordering::Acquire) != 0 {
        machine::halt();
    }
}

/// Has all CPUs do `work`, this one too, and waits.
pub fn on_each(work: fn()) {
    (1..count()).for_each(|cpu| begin(cpu, work));
    work();
    (1..count()).for_each(end);
}

/// Interrupts that CPUs have sent each other, by whichever vector.
pub fn interrupts() -> usize {
    INTERRUPTS
        .load(Ordering::Relaxed)
        .saturating_sub(TICKS.load(Ordering::Relaxed))
}

/// Calls all CPUs, again and again.
pub fn check_calls() {
    static HITS: [AtomicUsize; MAX_CPUS] = [const { AtomicUsize::new(0) }; MAX_CPUS];
    for _ in 0..CALLS {
        SHOOTDOWN.call_many(CallTargets::Online, &|cpu| {
            HITS[cpu.index()].fetch_add(1, Ordering::Relaxed);
        });
    }
    let ran: usize = HITS.iter().map(|hits| hits.load(Ordering::Relaxed)).sum();
    say!(
        "ostd: {ran} functions ran in {CALLS} calls of {} CPUs",
        count()
    );
    if ran != CALLS * count() {
        machine::end(false);
    }
}
