//! What programs of virtual CPUs do besides calling the engine.

use shootdown::calls::CallData;
use shootdown::{CpuId, Platform, Shootdown};
use shootdown_sim::PLATFORM;

pub fn turn_on(interrupts: bool) {
    // SAFETY: 1. what `irq_save` returned on this CPU, which has done nothing else with interrupts since.
    unsafe { PLATFORM.irq_restore(interrupts) };
}

pub fn spin_while(is_so: impl Fn() -> bool) {
    while is_so() {
        PLATFORM.relax();
    }
}

pub fn post<P: Platform, F: Fn(CpuId) + Sync + 'static>(
    engine: &Shootdown<P>,
    target: CpuId,
    data: &CallData<F>,
) -> bool {
    // SAFETY: it outlives the run, after which no CPU of this engine does anything.
    let data: &'static CallData<F> = unsafe { &*std::ptr::from_ref(data) };
    engine.post_data(target, data).is_ok()
}
