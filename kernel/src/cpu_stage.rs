//! Where each CPU stands between running threads and being gone: written by [`hotplug`](crate::hotplug), read by all.

use core::sync::atomic::{AtomicU8, Ordering};

use shootdown::CpuId;

use crate::cpus::MAX_CPUS;

/// The stages, see [`hotplug`](crate::hotplug).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Stage {
    Running,
    Leaving,
    Parked,
    Returning,
}

static STAGES: [AtomicU8; MAX_CPUS] = [const { AtomicU8::new(Stage::Running as u8) }; MAX_CPUS];

pub fn set(cpu: CpuId, stage: Stage) {
    // ORDERING: publishes what the one side did before it hands the CPU to the other; pairs with the acquire in `is`.
    STAGES[cpu.index()].store(stage as u8, Ordering::Release);
}

pub fn is(cpu: CpuId, stage: Stage) -> bool {
    // ORDERING: pairs with the release in `set`.
    STAGES[cpu.index()].load(Ordering::Acquire) == stage as u8
}

/// Whether the CPU runs threads. Any context; may be old news when the answer comes.
pub fn is_online(cpu: CpuId) -> bool {
    is(cpu, Stage::Running)
}

/// Whether the CPU is offline and waits to be woken. As [`is_online`].
pub fn is_parked(cpu: CpuId) -> bool {
    is(cpu, Stage::Parked)
}
