//! Table T3 on the timed machine: what holds whatever the figures of the machine are, and that nobody waits for another
//! task's request.

use std::cell::{Cell, RefCell};

use shootdown::{
    CpuId, CpuMask, FlushRange, FlushScope, FreedTables, PageSize, Policy, Shootdown, calls::Wait,
};
use shootdown_sim::Engine;
use shootdown_sim::machine::{Context, Host, Machine, PLATFORM, SimPlatform};
use shootdown_sim::timed::{Costs, Preset, Timed};
use shootdown_sim::workload::{Findings, Load, Preemptoff, System};

fn costs() -> Costs {
    Preset::named("16-core").unwrap().costs()
}

/// A smaller machine, whose waits are counted in coarser turns.
fn run(system: System, tail_least_us: f64) -> Findings {
    let load = Load {
        spin_turn_ns: 10_000.0,
        fifo_period_us: 20_000.0,
        tail_least_us,
        ..Load::default()
    };
    Preemptoff {
        cpus: 6,
        system,
        load,
        costs: costs(),
        seed: 1,
        intervals: 40,
    }
    .run()
}

fn longest_ns(findings: &Findings) -> f64 {
    findings.quantile_ns(1000, |maxima| maxima.initiator_ps)
}

#[test]
fn only_systems_that_hold_the_cpu_while_they_wait_have_spans_as_long_as_sections() {
    let [before, best] = [System::Before, System::Best].map(|system| run(system, 250.0));
    assert!(best.counts.flushes > 0 && best.counts.kernel_flushes > 0 && best.counts.calls > 0);
    assert!(longest_ns(&before) > 1_000_000.0, "{}", longest_ns(&before));
    assert!(longest_ns(&best) < 10_000.0, "{}", longest_ns(&best));
    assert_eq!(before.counts.waiters_preempted, 0);
    assert!(best.counts.waiters_preempted > 0 && best.counts.waiters_moved > 0);
}

/// With sections ten times as long, the systems that wait with preemption off have longer spans; ours has the same.
#[test]
fn spans_do_not_grow_with_the_time_that_targets_take() {
    let grown = |system: System| {
        let [usual, longer] = [250.0, 2500.0]
            .map(|least_us| run(system, least_us).quantile_ns(900, |maxima| maxima.initiator_ps));
        longer / usual
    };
    assert!(grown(System::Before) > 5.0);
    assert!(grown(System::Best) < 1.2);
}

#[test]
fn the_same_seed_measures_the_same() {
    let [one, other] = [(); 2].map(|()| run(System::Published, 250.0));
    assert_eq!(one.maxima, other.maxima);
    assert_eq!(one.counts, other.counts);
}

/// Two tasks on CPU 0: a device takes the CPU from the first while it waits.
struct TwoTasks<'a> {
    engine: &'a Shootdown<SimPlatform<shootdown::Cpus<4>>>,
    /// When CPU 0 is interrupted.
    interrupt_ps: Cell<u64>,
    switches: Cell<bool>,
    told: RefCell<Vec<&'static str>>,
}

const FIRST: usize = 3;
const SECOND: usize = 4;
const SECTION_PS: u64 = 50_000_000_000;

impl Host for &TwoTasks<'_> {
    fn interrupts_at_ps(&self, cpu: usize) -> u64 {
        match cpu {
            0 => self.interrupt_ps.get(),
            _ => u64::MAX,
        }
    }

    fn interrupt(&self, _: Context<'_>) {
        self.interrupt_ps.set(u64::MAX);
        self.switches.set(true);
    }

    fn preempts(&self, context: Context<'_>) -> Option<usize> {
        let is_due = context.task() == FIRST && self.switches.replace(false);
        is_due.then_some(SECOND)
    }
}

impl TwoTasks<'_> {
    fn tell(&self, what: &'static str) {
        self.told.borrow_mut().push(what);
    }

    /// What each task does; CPU 1 keeps interrupts off for long, CPU 2 does nothing.
    fn run(&self, context: Context<'_>, task: usize) {
        let cpu = |number| CpuMask::only(CpuId::new(number));
        match task {
            0 => {
                self.engine.online();
                context.work(1_000_000_000);
                // Back here when the second is over, and then when the first is.
                context.switch_task(FIRST);
                context.switch_task(FIRST);
            }
            1 => {
                self.engine.online();
                context.work(1_000_000_000);
                let state = shootdown::Platform::irq_save(&PLATFORM);
                context.work(SECTION_PS);
                // SAFETY: 1. saved above.
                unsafe { shootdown::Platform::irq_restore(&PLATFORM, state) };
            }
            2 => self.engine.online(),
            FIRST => {
                context.work(1_000_000_000);
                self.tell("first sends");
                let range = FlushRange::pages(0, 1, PageSize::SIZE_4K);
                self.engine
                    .flush(FlushScope::Kernel, range, FreedTables::No);
                self.tell("first is done");
            }
            _ => {
                let ticket = self.engine.submit(&cpu(2), |_| (), Wait::Done);
                self.tell("second sends");
                let _ = ticket.wait();
                self.tell("second is done");
                self.engine.call_one(CpuId::new(2), &|_| ()).unwrap();
                self.tell("second is done again");
            }
        }
    }
}

/// The second task's requests take other slots: they are over before the first one's, whose target does not answer.
#[test]
fn a_second_task_does_not_wait_for_the_first_one_s_request() {
    for policy in [Policy::PUBLISHED, Policy::BEST] {
        let engine = Engine::new(3);
        engine.set_policy(policy);
        let host = TwoTasks {
            engine: &engine,
            // In the middle of the first one's wait.
            interrupt_ps: Cell::new(5_000_000_000),
            switches: Cell::new(false),
            told: RefCell::default(),
        };
        let machine = Machine::timed(Timed::new(3, costs()), || engine.handle_ipi());
        let machine = machine.with_host(&host, 2);
        machine.run_each(policy.name(), |task, context| host.run(context, task));
        let told = host.told.into_inner();
        let order = [
            "first sends",
            "second sends",
            "second is done",
            "second is done again",
            "first is done",
        ];
        assert_eq!(told, order, "{policy:?}");
        assert_eq!(engine.watch().total_stats().slots_exhausted, 0);
    }
}
