//! Yielding and pinning.

use shootdown::CpuId;

use super::args::Args;
use super::outcome::{Outcome, done};
use crate::boot;
use crate::errno::Errno;
use crate::task::{self, Current, Tid};
use crate::user_memory::UserBytes;
use crate::zerocopy;

/// Bytes of the kernel's CPU mask, as `sched_getaffinity` counts them.
const MASK_BYTES: usize = size_of::<u64>();

pub(super) fn sched_yield() -> Outcome {
    task::yield_now();
    Ok(0)
}

pub(super) fn sched_setaffinity(me: &Current, a: &Args) -> Outcome {
    let given = a.usize(1).min(MASK_BYTES);
    let mut bytes = [0; MASK_BYTES];
    UserBytes::new(a.usize(2), given)?.copy_to(&mut bytes[..given])?;
    // CPUs that are offline count again when they come back.
    let wanted = u64::from_le_bytes(bytes) & boot::info().cpu_bits();
    if wanted & task::usable_cpu_bits() == 0 {
        return Err(Errno::EINVAL);
    }
    let cpus = (0..u64::BITS)
        .filter(|bit| wanted & 1 << bit != 0)
        .map(CpuId::new)
        .collect();
    done(zerocopy::set_affinity(&target(me, a.u32(0))?, &cpus))
}

pub(super) fn sched_getaffinity(me: &Current, a: &Args) -> Outcome {
    let len = a.usize(1);
    if len < MASK_BYTES || !len.is_multiple_of(MASK_BYTES) {
        return Err(Errno::EINVAL);
    }
    let bits = target(me, a.u32(0))?.affinity_bits() & task::usable_cpu_bits();
    UserBytes::new(a.usize(2), MASK_BYTES)?.copy_from(&bits.to_le_bytes())?;
    Ok(MASK_BYTES)
}

/// The thread with that number, 0 for the caller.
pub(super) fn target(me: &Current, tid: u32) -> Result<alloc::sync::Arc<task::Thread>, Errno> {
    match tid {
        0 => Ok(me.to_arc()),
        tid => task::find_thread(Tid::new(tid)).ok_or(Errno::ESRCH),
    }
}

pub(super) fn getcpu(a: &Args) -> Outcome {
    let cpu = crate::arch::percpu::cpu_id().as_u32();
    a.ptr::<u32>(0).write_if_some(cpu)?;
    // One memory node.
    done(a.ptr::<u32>(1).write_if_some(0))
}
