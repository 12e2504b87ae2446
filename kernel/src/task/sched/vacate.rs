//! A CPU without threads: closing it, emptying it, and opening it again.
//!
//! A closed CPU takes no thread; [`pick`](super::switch) passes on what it has, the running one included, so that it comes to
//! its idle thread, which calls [`vacate`]. What sleeps with a deadline sleeps on: CPU 0 has the deadlines from then on.

use shootdown::CpuId;

use super::place::request_resched;
use crate::arch::percpu;
use crate::irq;
use crate::task::cpu;
use crate::zerocopy;

/// Takes over the timers of CPUs that go offline. It never does so itself.
pub(super) const HEIR: CpuId = CpuId::new(0);

/// Sends the threads of that CPU to others, soon, and places none there any more.
pub fn close_cpu(cpu: CpuId) {
    cpu::of(cpu).close();
    request_resched(cpu);
}

/// Places threads on this CPU again.
pub fn reopen_cpu() {
    cpu::this().reopen();
}

/// Rids this CPU, which is closed and runs its idle thread, of what is left: deadlines and the address space. False when
/// threads still wait to be passed on; then the idle loop has to go round once more. Interrupts are off.
#[must_use]
pub fn vacate() -> bool {
    debug_assert!(!irq::enabled());
    let me = percpu::cpu_id();
    let cpu = cpu::of(me);
    {
        let ready = cpu.ready.lock();
        if ready.count() > 0 {
            return false;
        }
        cpu.publish(&ready);
    }
    {
        // The only place that holds two of these locks.
        let mut own = cpu.timers.lock();
        cpu::of(HEIR).timers.lock().adopt(&mut own);
    }
    request_resched(HEIR);
    let space = cpu.with_local(|local| {
        assert!(local.current.is_idle(), "{me} is vacated by a thread");
        local.space.take().inspect(|space| space.deactivate())
    });
    zerocopy::cpu_left(me);
    // As after a switch: at most the rest of a dead space.
    drop(space);
    true
}
