//! Cross-CPU calls of a second engine and of its peers, measured on a machine.

use std::fmt;
use std::time::Duration;

use shootdown::{CallTargets, Capacity, CpuId, Cpus, LocalFlush, Platform};
use shootdown_callbench::{Bench, Engines, Host, Plan, Tallies, Verdict};

use crate::machine::Machine;
use crate::second::{Relax, SecondPlatform};

/// Longer than a halted CPU may sleep.
const NAP: Duration = Duration::from_millis(1);

type Measured<const N: usize> = Engines<SecondPlatform<N>, N>;

/// A machine, as the bench asks for it.
struct Threads<const N: usize>
where
    Cpus<N>: Capacity,
{
    machine: &'static Machine<N>,
    measured: &'static Measured<N>,
    relax: Relax,
    print: fn(fmt::Arguments<'_>),
}

impl<const N: usize> Host for Threads<N>
where
    Cpus<N>: Capacity,
{
    fn cpus(&self) -> usize {
        self.machine.cpus()
    }

    fn current_cpu(&self) -> CpuId {
        self.machine.engine().platform().current_cpu()
    }

    fn now_ns(&self) -> u64 {
        self.machine.engine().platform().now_ns()
    }

    fn pause(&self) {
        self.relax.turn();
    }

    /// A signal ends the nap; one that comes just before it does not.
    fn halt(&self) {
        std::thread::sleep(NAP);
    }

    /// A CPU takes the second engine's interrupts before it answers the first one.
    fn drain(&self) {
        self.machine
            .engine()
            .call_many(CallTargets::Online, &|_| ());
    }

    fn forget_page(&self) {
        let platform = self.machine.engine().platform();
        platform.local_flush(LocalFlush::Space);
    }

    fn online(&self) {
        self.measured.online();
    }

    fn print(&self, line: fmt::Arguments<'_>) {
        (self.print)(line);
    }
}

/// Carries out `plan` on `machine`, whose CPUs are numbered without a gap, all online, and have nothing else to do, and hands each line to `print`. Once
/// a machine: what it makes for it stays for ever.
///
/// # Panics
/// On a CPU of the machine.
pub fn measure<const N: usize>(
    machine: &'static Machine<N>,
    plan: Plan,
    print: fn(fmt::Arguments<'_>),
) -> Verdict
where
    Cpus<N>: Capacity,
{
    let relax = Relax::for_cpus(machine.cpus());
    let tallies: &Tallies<N> = Box::leak(Box::new(Tallies::new()));
    let engines = Engines::new(SecondPlatform::new(machine, relax), tallies);
    let measured: &Measured<N> = Box::leak(Box::new(engines));
    measured.attach(machine.cpus());
    let threads = Box::leak(Box::new(Threads {
        machine,
        measured,
        relax,
        print,
    }));
    let bench = &*Box::leak(Box::new(Bench::new(threads, plan, tallies, measured)));
    machine.on_second(Box::leak(Box::new(|_| bench.handle_ipi())));
    let verdict = std::thread::scope(|scope| {
        for cpu in 1..machine.cpus() {
            scope.spawn(move || machine.run_on(CpuId::new(cpu as u32), || bench.work()));
        }
        machine.run_on(CpuId::new(0), || bench.lead())
    });
    verdict.expect("CPU 0 is online")
}
