//! Fetching threads that wait on other CPUs.
//!
//! A CPU without work takes any thread that waits; one that would run something less urgent takes a real-time thread. It
//! goes into the own queue first, so that there is one place where a CPU decides what it runs.

use shootdown::CpuId;

use crate::task::Priority;
use crate::task::cpu::{self, CpuSched};
use crate::task::queue::{Claim, Place};

/// Fetches a real-time thread that waits elsewhere while this CPU would run something less urgent.
pub(super) fn fetch_urgent(cpu: &CpuSched, me: CpuId, claim: Option<Claim>) {
    let own = cpu.waiting().max(claim.map(|claim| claim.priority));
    let elsewhere = others(me).filter_map(|other| cpu::of(other).waiting());
    if let Some(waiting) = elsewhere.max()
        && waiting.is_real_time()
        && Some(waiting) > own
    {
        fetch(me, waiting);
    }
}

/// Moves a thread into this CPU's queue that waits on another CPU, may run here, and is at least that urgent. False
/// when there is none.
pub(super) fn fetch(me: CpuId, least: Priority) -> bool {
    let found = others(me)
        .filter(|&other| cpu::of(other).waiting() >= Some(least) && cpu::of(other).load() > 1)
        .find_map(|other| {
            let cpu = cpu::of(other);
            let mut ready = cpu.ready.lock();
            let taken = ready.steal_for(me, least);
            cpu.publish(&ready);
            taken
        });
    let Some(thread) = found else { return false };
    // This CPU is about to look.
    let cpu = cpu::of(me);
    let mut ready = cpu.ready.lock();
    thread.set_cpu(me);
    let _looks_anyway = ready.push(thread, Place::First);
    cpu.publish(&ready);
    true
}

fn others(me: CpuId) -> impl Iterator<Item = CpuId> {
    cpu::started().filter(move |&other| other != me)
}
