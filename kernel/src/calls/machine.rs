//! The running machine, as the bench asks for it.

use core::fmt;

use shootdown::{CallTargets, CpuId};
use shootdown_callbench::{Engines, Host, Tallies};

use super::lines;
use super::platform::CallsPlatform;
use crate::arch::{percpu, tlb};
use crate::cpus::MAX_CPUS;
use crate::irq;
use crate::platform::SHOOTDOWN;
use crate::{boot, time};

pub(super) static TALLIES: Tallies<MAX_CPUS> = Tallies::new();

/// The engines that are measured.
pub(super) static MEASURED: Engines<CallsPlatform, MAX_CPUS> =
    Engines::new(CallsPlatform, &TALLIES);

/// A word of the kernel's, whose translation is dropped again and again.
static PAGE: u64 = 0;

/// The machine.
#[derive(Debug)]
pub(super) struct Machine;

impl Host for Machine {
    fn cpus(&self) -> usize {
        boot::info().cpus
    }

    fn current_cpu(&self) -> CpuId {
        percpu::cpu_id()
    }

    fn now_ns(&self) -> u64 {
        time::now_ns()
    }

    fn halt(&self) {
        irq::disable();
        // What came before this is old news; the tick ends it at the latest.
        irq::wait_for_interrupt();
    }

    /// The engine's vector is below the one that is measured, so whoever has answered has taken what came before. Nobody answers
    /// by polling: the other workers rest.
    fn drain(&self) {
        SHOOTDOWN.call_many(CallTargets::Online, &|_| ());
    }

    fn forget_page(&self) {
        tlb::local().flush_page((&raw const PAGE).addr());
    }

    fn online(&self) {
        MEASURED.online();
    }

    fn print(&self, line: fmt::Arguments<'_>) {
        lines::add(line);
    }
}
