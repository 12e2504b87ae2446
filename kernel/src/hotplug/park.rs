//! The CPU's own part: leaving, waiting, returning.

use crate::arch::{apic, percpu, steal, timer};
use crate::cpu_stage::{self as stage, Stage};
use crate::irq;
use crate::latency;
use crate::mm::frames;
use crate::platform::SHOOTDOWN;
use crate::task;
use crate::vm;

/// If this CPU is to go offline and has nothing left to pass on, goes, and returns when it is online again. For the idle thread;
/// interrupts are off, before and after.
pub fn park_if_asked() {
    let me = percpu::cpu_id();
    if !stage::is(me, Stage::Leaving) || !task::vacate() {
        return;
    }
    frames::drain();
    vm::cpu_left(me);
    timer::stop();
    SHOOTDOWN.offline();
    steal::unregister();
    apic::MAP.set_offline(me.index());
    stage::set(me, Stage::Parked);
    // What came for this CPU before it was offline and found interrupts off is delivered when it is back, and harmless.
    latency::irqs_on();
    while !stage::is(me, Stage::Returning) {
        irq::wait_for_nmi();
    }
    latency::irqs_off();
    apic::MAP.set_online(me.index());
    steal::register(me);
    SHOOTDOWN.online();
    timer::start();
    task::reopen_cpu();
    stage::set(me, Stage::Running);
}
