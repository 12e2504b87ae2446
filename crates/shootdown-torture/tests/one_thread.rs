//! The torture itself: a right machine passes, wrong ones do not, and a seed repeats.

mod puppet;

use shootdown::Platform;

use puppet::{CPUS, Fault, Machine};
use shootdown_torture::{
    Context, Mix, Operation, PAGES, Plan, Promise, Summary, Torture, WorkerId,
};

const STEPS: usize = 20_000;

/// On one stack an initiator lies below the CPUs that it gathered, and cannot go on before they return.
const MIX: Mix = Mix::USUAL.with(Operation::Rendezvous, 0);

fn plan(seed: u64) -> Plan {
    Plan {
        mix: MIX,
        ..Plan::new(seed)
    }
}

fn run(fault: Fault, plan: &Plan) -> Summary {
    run_with_pages(fault, PAGES, plan)
}

fn run_with_pages(fault: Fault, pages: usize, plan: &Plan) -> Summary {
    let machine = Machine::boot(fault, pages);
    let torture: &'static Torture<CPUS> = Box::leak(Box::default());
    torture.begin(machine, plan);
    for step in 0..STEPS {
        machine.step(torture, step % CPUS);
    }
    torture.finish(machine);
    torture.summary(machine, 1)
}

#[test]
fn a_right_machine_keeps_every_promise_and_does_every_operation() {
    let summary = run(Fault::None, &plan(1));
    assert_eq!(summary.violations(), 0, "{summary}");
    // Some come while another CPU's worker is preempted.
    assert!(summary.steps() > STEPS as u64);
    for operation in Operation::ALL {
        use Operation::*;
        // This machine has neither tables with names nor windows, and no CPU leaves or is gathered.
        let is_left_out = matches!(
            operation,
            ChangeTable | Walk | ChangeWindow | Churn | Rendezvous
        );
        assert_eq!(summary.done(*operation) > 0, !is_left_out, "{operation:?}");
    }
}

#[test]
fn a_machine_that_does_not_flush_is_found_out() {
    let summary = run(Fault::NoFlush, &plan(1));
    assert!(summary.broken(Promise::Fresh) + summary.broken(Promise::NotReused) > 0);
    assert!(summary.first().is_some());
}

/// Few pages and few operations, so that what comes back early meets its next user.
#[test]
fn addresses_and_frames_are_withheld_until_their_flush_is_over() {
    let mut mix = Mix::USUAL;
    for operation in Operation::ALL {
        use Operation::*;
        let is_wanted = matches!(operation, Unmap | Change | ChangeKernel | Access | Enter);
        mix = mix.with(*operation, u16::from(is_wanted));
    }
    let plan = Plan { mix, ..plan(8) };
    let summary = run_with_pages(Fault::None, 2, &plan);
    assert_eq!(summary.violations(), 0, "{summary}");
    assert!(summary.done(Operation::Unmap) > 1000);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let text = |seed| run(Fault::None, &plan(seed)).protocol().to_string();
    assert_eq!(text(3), text(3));
    assert_ne!(text(3), text(4));
}

#[test]
fn what_the_mix_leaves_out_is_not_done() {
    let plan = Plan {
        mix: MIX.with(Operation::Post, 0),
        ..plan(5)
    };
    let summary = run(Fault::None, &plan);
    assert_eq!(summary.done(Operation::Post), 0);
    assert!(summary.done(Operation::TryPost) > 0);
}

#[test]
fn interrupts_do_nothing_after_the_end() {
    let machine = Machine::boot(Fault::None, PAGES);
    let torture: &'static Torture<CPUS> = Box::leak(Box::default());
    torture.begin(machine, &plan(7));
    let worker = WorkerId::interrupts_of(machine.engine.platform().current_cpu());
    let step = || torture.step(machine, worker, Context::Interrupt);
    while !step().done {}
    let steps = torture.steps(worker);
    torture.finish(machine);
    assert!((0..100).all(|_| !step().done));
    assert_eq!(torture.steps(worker), steps);
}

#[test]
fn the_protocol_ends_with_the_verdict() {
    let summary = run(Fault::None, &plan(6));
    let (text, steps) = (summary.protocol().to_string(), summary.steps());
    assert!(text.lines().all(|line| line.starts_with("torture: ")));
    let last = text.lines().last().unwrap();
    assert_eq!(
        last,
        format!("torture: done violations=0 steps={steps} seed=6 ns=1")
    );
}
