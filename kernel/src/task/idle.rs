//! Idle CPUs: they halt, or first look for work for a while.
//!
//! A halted CPU costs whoever wants something of it an interrupt, and itself the way out of the halt; under a hypervisor
//! both are exits. A CPU that polls sees a request in its inbox at once, and initiators send it no interrupt. It takes time from
//! whatever shares its core, so it polls for [`POLL_NS`] at most, as Linux's haltpoll governor does, and only if it is told to:
//! `idle=poll` on the command line, or `poll` written to `/proc/shootdown/idle`. Under an emulator with fewer cores than CPUs
//! polling slows down those that work.

use core::sync::atomic::{AtomicBool, Ordering};

use super::{cpu, sched};
use crate::arch::percpu;
use crate::boot::BootInfo;
use crate::boot::fail::boot_fail;
use crate::irq;
use crate::platform::SHOOTDOWN;
use crate::time;

/// How long an idle CPU polls before it halts: Linux's `guest_halt_poll_ns` (`drivers/cpuidle/governors/haltpoll.c`).
const POLL_NS: u64 = 200_000;

static POLLS: AtomicBool = AtomicBool::new(false);

/// What idle CPUs do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IdleMode {
    /// They halt at once.
    Halt,
    /// They look for work first.
    Poll,
}

impl IdleMode {
    /// The one with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Halt, Self::Poll]
            .into_iter()
            .find(|mode| mode.name() == name)
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Halt => "halt",
            Self::Poll => "poll",
        }
    }
}

/// What idle CPUs do now.
pub fn idle_mode() -> IdleMode {
    match POLLS.load(Ordering::Relaxed) {
        true => IdleMode::Poll,
        false => IdleMode::Halt,
    }
}

/// What they do from the next time on.
pub fn set_idle_mode(mode: IdleMode) {
    POLLS.store(mode == IdleMode::Poll, Ordering::Relaxed);
}

/// Takes the mode from the command line. Boot CPU.
pub fn choose_idle_mode(boot: &BootInfo) {
    match boot
        .option("idle")
        .map(|name| (name, IdleMode::from_name(name)))
    {
        None => {}
        Some((_, Some(mode))) => set_idle_mode(mode),
        Some((name, None)) => boot_fail!("idle={name} is neither halt nor poll; correct -append"),
    }
}

/// The idle thread of this CPU: runs whatever is ready, else polls or halts. Between two threads it calls `park_if_asked`,
/// interrupts off.
pub fn idle(park_if_asked: fn()) -> ! {
    loop {
        irq::disable();
        park_if_asked();
        let nothing_ready = cpu::this().ready.lock().announce_idle();
        if nothing_ready && idle_mode() == IdleMode::Poll {
            poll();
        }
        if nothing_ready && !percpu::need_resched() {
            // Whoever queues a thread from now on sees the announcement and sends an interrupt,
            // which ends this at once even if it came first.
            irq::wait_for_interrupt();
            irq::disable();
        }
        sched::reschedule_idle();
    }
}

/// Serves requests without interrupts until there is a thread to run, or it has taken too long. Interrupts are off before and
/// after, and on meanwhile.
fn poll() {
    irq::enable();
    let end_ns = time::now_ns() + POLL_NS;
    let goes_on = || !percpu::need_resched() && time::now_ns() < end_ns;
    while goes_on() {
        // Its end serves what has come.
        SHOOTDOWN.poll_idle(|polling| {
            while goes_on() && !polling.has_work() {
                core::hint::spin_loop();
            }
        });
    }
    irq::disable();
}
