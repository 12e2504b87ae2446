//! The asking part: threads that take CPUs offline and bring them back.

use core::sync::atomic::{AtomicBool, Ordering};

use shootdown::CpuId;

use crate::arch::apic;
use crate::cpu_stage::{self as stage, Stage};
use crate::errno::Errno;
use crate::task::{self, Deadline, WaitQueue};
use crate::zerocopy;

/// Between two looks at what the CPU has done. Its own steps take microseconds, but threads in long system calls leave when
/// they are done.
const LOOK_NS: u64 = 200_000;

/// One change at a time.
static CHANGING: AtomicBool = AtomicBool::new(false);
static WAITING: WaitQueue = WaitQueue::new();

/// The right to change which CPUs are online.
struct Turn;

impl Turn {
    /// Sleeps until nobody else has it.
    fn take() -> Result<Self, Errno> {
        // ORDERING: acquires what the one before did; pairs with the release in `drop`.
        // Not `then_some`: a turn made in vain would be dropped, and end somebody else's.
        let try_take = || (!CHANGING.swap(true, Ordering::Acquire)).then(|| Self);
        WAITING.wait_until(None, try_take)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // ORDERING: pairs with the acquire in `take`.
        CHANGING.store(false, Ordering::Release);
        WAITING.wake_all();
    }
}

/// Does what was written to the file of the CPU.
///
/// # Errors
/// EINVAL for anything but `0` and `1`; as [`take_offline`] and [`bring_online`].
pub fn command(cpu: CpuId, bytes: &[u8]) -> Result<(), Errno> {
    match bytes.trim_ascii() {
        b"0" => take_offline(cpu),
        b"1" => bring_online(cpu),
        _ => Err(Errno::EINVAL),
    }
}

/// Takes the CPU out of service: threads move to other CPUs, no call and no flush reaches it afterwards. Returns when it is
/// gone, at once if it was already.
///
/// Context: a user thread inside a system call, no lock held, preemption enabled. Waits for all that runs on the CPU to
/// leave it.
///
/// # Errors
/// EPERM for CPU 0, which stays. `Errno::RESTART` when a signal came before it was this thread's turn.
pub fn take_offline(cpu: CpuId) -> Result<(), Errno> {
    if cpu.index() == 0 {
        return Err(Errno::EPERM);
    }
    let turn = Turn::take()?;
    if stage::is(cpu, Stage::Running) {
        stage::set(cpu, Stage::Leaving);
        task::close_cpu(cpu);
        zerocopy::cpu_leaves(cpu);
        doze_until(cpu, Stage::Parked, || ());
        log::debug!("{cpu} is offline");
    }
    drop(turn);
    Ok(())
}

/// Brings the CPU back. Returns when it takes threads, at once if it did already.
///
/// Context: as for [`take_offline`].
///
/// # Errors
/// `Errno::RESTART` when a signal came before it was this thread's turn.
pub fn bring_online(cpu: CpuId) -> Result<(), Errno> {
    let turn = Turn::take()?;
    if stage::is(cpu, Stage::Parked) {
        stage::set(cpu, Stage::Returning);
        doze_until(cpu, Stage::Running, || wake(cpu));
        log::debug!("{cpu} is online again");
    }
    drop(turn);
    Ok(())
}

/// Waits for a stage, with `nudge` before each look. A signal does not cut it short: half a change helps nobody.
fn doze_until(cpu: CpuId, stage: Stage, nudge: impl Fn()) {
    while !stage::is(cpu, stage) {
        nudge();
        task::doze(Deadline::after_ns(LOOK_NS));
    }
}

/// Gets the CPU out of HLT. It may come between the CPU's look and its HLT, so it is sent again until the CPU answers; one too
/// many is ignored.
fn wake(cpu: CpuId) {
    // What is refused is sent again.
    let _ = apic::send_nmi(cpu);
}
