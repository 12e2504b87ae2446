//! What the published algorithms do badly besides being unfair, each as a scenario on the timed machine, and that the engine does
//! not. `fairness.rs` has the unfairness; `peers.rs` shows that their memory orders are right.

use std::cell::Cell;

use shootdown::{CpuId, CpuMask, Cpus, Platform};
use shootdown_sim::machine::Context;
use shootdown_sim::timed::{Costs, Preset, Timed};
use shootdown_sim::workload::{
    Built, Callers, Means, Operation, Peer, Volley, VolleyResult, bytes_of,
};
use shootdown_sim::{Failure, FailureKind, Machine, PLATFORM, Program};

const N: usize = 8;
/// All CPUs are online.
const SETTLE_PS: u64 = 1_000_000;
/// Longer than anything else.
const LONG_PS: u64 = 100_000_000;

fn costs() -> Costs {
    Preset::named("40-core").unwrap().costs()
}

/// Runs `program` on each of `cpus` CPUs once all are online.
fn run(peer: Peer, cpus: usize, program: impl Fn(Context<'_>, &Built<Cpus<N>>)) -> Option<Failure> {
    let calls = Built::<Cpus<N>>::new(peer, cpus);
    let timed = Timed::new(cpus, costs()).without_idle_turns();
    let machine = Machine::timed(timed, || calls.calls().handle_ipi());
    let programs = (0..cpus).map(|_| -> Program<'_> {
        let (calls, program) = (&calls, &program);
        Box::new(move |context| {
            calls.online();
            context.work(SETTLE_PS - context.now_ps());
            program(context, calls);
        })
    });
    machine.run(programs.collect()).1
}

fn mask(cpus: &[u32]) -> CpuMask<Cpus<N>> {
    cpus.iter().copied().map(CpuId::new).collect()
}

/// Counts how often it ran where.
#[derive(Default)]
struct Runs([Cell<u64>; N]);

// SAFETY: the virtual CPUs are coroutines of one thread.
unsafe impl Sync for Runs {}

impl Runs {
    fn add(&self, cpu: CpuId) {
        let runs = &self.0[cpu.index()];
        runs.set(runs.get() + 1);
    }

    fn on(&self, cpu: usize) -> u64 {
        self.0[cpu].get()
    }
}

/// Two CPUs that have interrupts off call each other.
fn call_each_other_with_interrupts_off(peer: Peer) -> Option<Failure> {
    let runs = Runs::default();
    run(peer, 2, |context, calls| {
        let other = mask(&[1 - context.cpu() as u32]);
        let state = PLATFORM.irq_save();
        calls.calls().call(&other, &|cpu| runs.add(cpu));
        // SAFETY: 1. saved above.
        unsafe { PLATFORM.irq_restore(state) };
    })
}

#[test]
fn calls_with_interrupts_off_wait_for_each_other_for_ever() {
    for peer in Peer::ALL {
        let failure = call_each_other_with_interrupts_off(peer).map(|failure| failure.kind);
        let expected = (peer != Peer::Shootdown).then_some(FailureKind::NoProgress);
        assert_eq!(failure, expected, "{peer}");
    }
}

/// CPU 0 calls CPU 1 and CPU 2, which has interrupts off for long; meanwhile CPU 3 interrupts CPU 1 for nothing. How often the function
/// had run on both when the call returned, and in the end.
fn disturbed_call(peer: Peer) -> ([u64; 2], [u64; 2]) {
    let (runs, returned) = (Runs::default(), Cell::new([0; 2]));
    let failure = run(peer, 4, |context, calls| match context.cpu() {
        0 => {
            let targets = mask(&[1, 2]);
            calls.calls().call(&targets, &|cpu| runs.add(cpu));
            returned.set([runs.on(1), runs.on(2)]);
            // The function is ours to lend until all have run it.
            context.work(2 * LONG_PS);
        }
        2 => {
            let state = PLATFORM.irq_save();
            context.work(LONG_PS);
            // SAFETY: 1. saved above.
            unsafe { PLATFORM.irq_restore(state) };
        }
        3 => {
            context.work(LONG_PS / 10);
            PLATFORM.send_ipi(CpuId::new(1)).unwrap();
        }
        _ => {}
    });
    assert_eq!(failure, None, "{peer}");
    (returned.get(), [runs.on(1), runs.on(2)])
}

/// It counts interrupts, whoever sent them: the call returns although CPU 2 has not run the function, which ran twice on CPU 1.
#[test]
fn an_interrupt_that_nobody_asked_for_ends_a_mailbox_s_call() {
    for peer in Peer::ALL {
        let expected = match peer {
            Peer::Mailbox => ([2, 0], [2, 1]),
            _ => ([1, 1], [1, 1]),
        };
        assert_eq!(disturbed_call(peer), expected, "{peer}");
    }
}

/// Few enough targets for inboxes: a broadcast interrupts all that it names.
fn all_call_all(peer: Peer) -> VolleyResult {
    let row = Volley {
        peer,
        callers: Callers::All,
        operation: Operation::Call,
        means: Means::Interrupts,
        targets: 8,
        cpus: 16,
        function_ps: 0,
        calls: 20,
        costs: costs(),
        seed: 1,
        names_lines: false,
    };
    row.run()
}

/// An interrupt that is on its way serves whoever calls meanwhile.
#[test]
fn some_interrupt_targets_that_are_being_interrupted() {
    for peer in Peer::ALL {
        let result = all_call_all(peer);
        let share = result.per_target(result.activity.ipis_sent);
        match peer {
            Peer::CallQueues => assert!(share < 0.5, "{peer}: {share}"),
            Peer::Shootdown => assert!(share < 0.7, "{peer}: {share}"),
            _ => assert_eq!(share, 1.0, "{peer}"),
        }
    }
}

#[test]
fn some_take_memory_for_each_pair_of_cpus() {
    for peer in Peer::ALL {
        let growth = bytes_of(peer, 4096) as f64 / bytes_of(peer, 1024) as f64;
        let is_square = matches!(peer, Peer::CallQueues | Peer::Scoreboard);
        assert_eq!(growth > 15.0, is_square, "{peer}: {growth}");
    }
}
