//! Pinned threads as CPUs, and their interrupts.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// CPUs and their [second names](crate::operation::Operation::WrongGuess), at most: half of them each.
pub const MOST_NAMES: usize = 64;
/// The most CPUs.
pub const MOST_CPUS: usize = 16;

/// Something on a line of its own, and of the pair of lines that some processors fetch together.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Line<T>(pub T);

static BELLS: [Line<AtomicBool>; MOST_NAMES] = [const { Line(AtomicBool::new(false)) }; MOST_NAMES];
/// What an interrupt costs, in cycles, and whether it is noted when one is sent. Changes between turns only.
static COST: Line<AtomicU64> = Line(AtomicU64::new(0));
static NOTES: Line<AtomicBool> = Line(AtomicBool::new(false));

thread_local! {
    static NAME: Cell<u32> = const { Cell::new(0) };
    static IS_ON: Cell<bool> = const { Cell::new(true) };
    static ENTERED: Cell<u64> = const { Cell::new(0) };
    static SENT: Cell<u64> = const { Cell::new(0) };
}

/// The cycle counter, which all cores share.
#[inline]
pub fn cycles() -> u64 {
    // SAFETY: every x86-64 processor has it, and Linux lets programs read it.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Waits until all instructions before are done; stores may still be on their way.
#[inline]
pub fn wait_for_instructions() {
    // SAFETY: SSE2 is part of x86-64.
    unsafe { core::arch::x86_64::_mm_lfence() };
}

/// The cycle counter when all that this CPU has waited for has come: a plain reading may be ahead of loads before it.
#[inline]
pub fn cycles_after() -> u64 {
    wait_for_instructions();
    cycles()
}

/// Waits until all instructions before are done and all stores are seen, as an instruction that serialises does.
#[inline]
pub fn serialize() {
    // ORDERING: orders nothing that anybody relies on: it takes the time.
    core::sync::atomic::fence(Ordering::SeqCst);
    wait_for_instructions();
}

/// Spins for so many cycles, without looking for interrupts.
#[inline]
pub fn spend(cost: u64) {
    if cost > 0 {
        let start = cycles();
        while cycles() - start < cost {}
    }
}

/// Binds the running thread to a core of the host.
///
/// # Errors
/// The host does not allow it.
pub fn pin(core: usize) -> Result<(), String> {
    // SAFETY: a set of CPUs is plain bits.
    let mut set: libc::cpu_set_t = unsafe { core::mem::zeroed() };
    // SAFETY: the host has numbered its cores below the set's size.
    unsafe { libc::CPU_SET(core, &mut set) };
    // SAFETY: the set is as large as it says.
    match unsafe { libc::sched_setaffinity(0, size_of_val(&set), &set) } {
        0 => Ok(()),
        _ => Err(format!(
            "cannot bind a thread to core {core}: allow this process to run there (taskset, cgroups)"
        )),
    }
}

/// The cores on which this process may run.
pub fn cores() -> Vec<usize> {
    // SAFETY: as in `pin`.
    let mut set: libc::cpu_set_t = unsafe { core::mem::zeroed() };
    // SAFETY: the set is as large as it says.
    let status = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &mut set) };
    if status != 0 {
        return Vec::new();
    }
    // SAFETY: below the set's size.
    let is_ours = |core: &usize| unsafe { libc::CPU_ISSET(*core, &set) };
    (0..libc::CPU_SETSIZE as usize).filter(is_ours).collect()
}

/// What the host calls its processors: name, family and model, for the name may be that of many.
pub fn model() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let of = |key: &str| {
        let mut fields = info.lines().filter_map(|line| line.split_once(':'));
        let found = fields.find(|(name, _)| name.trim() == key);
        found.map_or("unknown", |(_, value)| value.trim())
    };
    let [name, family, model] = ["model name", "cpu family", "model"].map(of);
    format!("{name}, family {family}, model {model}")
}

/// The name under which the running CPU acts.
#[inline]
pub fn name() -> u32 {
    NAME.get()
}

/// From now on the running thread is this CPU, or acts under its second name.
pub fn set_name(name: u32) {
    NAME.set(name);
}

/// Interrupts a CPU.
#[inline]
pub fn ring(name: usize) {
    if NOTES.0.load(Ordering::Relaxed) {
        SENT.set(cycles());
    }
    // ORDERING: Release publishes what the interrupt is for; pairs with the fence in `take`.
    BELLS[name].0.store(true, Ordering::Release);
}

/// Turns interrupts off; returns whether they were on.
#[inline]
pub fn turn_off() -> bool {
    IS_ON.replace(false)
}

/// Turns interrupts on, or leaves them off; a waiting one is taken.
#[inline]
pub fn restore(is_on: bool) {
    IS_ON.set(is_on);
    if is_on {
        look();
    }
}

/// Takes a waiting interrupt, if interrupts are on.
#[inline]
pub fn look() {
    let bell = &BELLS[NAME.get() as usize].0;
    if bell.load(Ordering::Relaxed) && IS_ON.get() {
        take(bell);
    }
}

fn take(bell: &AtomicBool) {
    bell.store(false, Ordering::Relaxed);
    // ORDERING: sees what was written before `ring`, and what comes after this is rung for anew: an interrupt is a fence for whoever takes it.
    core::sync::atomic::fence(Ordering::SeqCst);
    IS_ON.set(false);
    spend(COST.0.load(Ordering::Relaxed));
    ENTERED.set(cycles());
    crate::contender::handle();
    IS_ON.set(true);
}

/// What interrupts cost from now on, and whether it is noted when they are sent. Between turns.
pub fn set_interrupts(cost: u64, notes: bool) {
    COST.0.store(cost, Ordering::SeqCst);
    NOTES.0.store(notes, Ordering::SeqCst);
}

/// When the running CPU has taken its last interrupt, and sent its last one, if that is noted. Taking it is noted always, as flushes are checked by it, so that
/// calls and flushes cost the same.
pub fn noted() -> [u64; 2] {
    [ENTERED.get(), SENT.get()]
}
