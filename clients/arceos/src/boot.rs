//! The engine beside ArceOS: interrupt, locks, CPUs.
//!
//! ArceOS calls no code of ours while it boots, and needs none: a CPU is no target before it is online, and `online` drops what it has cached.

use core::sync::atomic::{AtomicUsize, Ordering};

use axhal::irq::{self, IPI_IRQ};
use axstd::println;
use shootdown::CallTargets;

use crate::arch;
use crate::options::{Mistake, Options};
use crate::platform::{self, CPUS, SHOOTDOWN};
use crate::{threads, torture};

/// Rounds of the first test.
const CALLS: usize = 10_000;

/// Brings all CPUs online. Once, in the first thread.
pub fn start(options: &Options) {
    platform::prepare(options.mistake == Mistake::NoFlush);
    if options.mistake != Mistake::NoPoll {
        kspin::set_poll(|| {
            SHOOTDOWN.poll();
        });
    }
    // On RISC-V the one bit that says that there is an interrupt is cleared between a handler and the hook, so the engine must look afterwards; a handler must
    // be there all the same.
    let is_first = irq::register(IPI_IRQ, || ()) && irq::register_irq_hook(on_irq);
    if !is_first {
        println!("arceos: somebody else has the interrupt {IPI_IRQ:#x}, or the hook");
        arch::end(false);
    }
    threads::on_each_cpu(|| {
        let irq_state = kernel_guard::IrqSave::new();
        arch::prepare_cpu(axhal::percpu::this_cpu_id());
        // A GIC has a bit for it on each CPU, and `register` has set one.
        irq::set_enable(IPI_IRQ, true);
        SHOOTDOWN.online();
        drop(irq_state);
    });
    threads::stay_on(0);
}

/// After each interrupt, with interrupts off and preemption disabled.
fn on_irq(number: usize) {
    if number == IPI_IRQ {
        arch::acknowledge();
        SHOOTDOWN.handle_ipi();
    } else if number == axhal::time::irq_num() {
        torture::tick();
    }
    platform::settle();
}

/// Calls all CPUs, again and again.
pub fn check_calls() {
    static HITS: [AtomicUsize; CPUS] = [const { AtomicUsize::new(0) }; CPUS];
    for _ in 0..CALLS {
        SHOOTDOWN.call_many(CallTargets::Online, &|cpu| {
            HITS[cpu.index()].fetch_add(1, Ordering::Relaxed);
        });
    }
    let ran: usize = HITS.iter().map(|hits| hits.load(Ordering::Relaxed)).sum();
    println!("arceos: {ran} functions ran in {CALLS} calls of {CPUS} CPUs");
    if ran != CALLS * CPUS {
        arch::end(false);
    }
}
