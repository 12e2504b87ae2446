//! [`Recorder`]: flows and nesting.

use shootdown::{CpuId, watch::TraceEvent};

use crate::trace::{Recorder, SpanKind};

fn acknowledged(cpu: u32) -> TraceEvent {
    TraceEvent::Acknowledged {
        cpu: CpuId::new(cpu),
        initiator: CpuId::new(0),
    }
}

fn submitted(targets: u32) -> TraceEvent {
    TraceEvent::Submitted {
        cpu: CpuId::new(0),
        targets,
        ipis: targets,
    }
}

#[test]
fn an_interrupt_that_comes_after_the_acknowledgement_has_no_flow() {
    let mut recorder = Recorder::new(2);
    recorder.engine(1, 5, acknowledged(1));
    recorder.sent(0, 10, 1);
    recorder.engine(0, 15, submitted(1));
    assert!(recorder.open_flows.is_empty());
    recorder.sent(0, 20, 1);
    recorder.engine(0, 25, submitted(1));
    recorder.engine(1, 30, acknowledged(1));
    assert_eq!(recorder.open_flows[0].acknowledged_ps, Some(30));
}

#[test]
fn a_flow_ends_only_when_every_target_of_its_request_has_acknowledged() {
    let found = TraceEvent::FoundDone {
        initiator: CpuId::new(0),
    };
    let mut recorder = Recorder::new(3);
    recorder.sent(0, 10, 1);
    recorder.sent(0, 10, 2);
    recorder.engine(0, 15, submitted(2));
    recorder.taken(1, 20);
    recorder.engine(1, 25, acknowledged(1));
    recorder.engine(0, 30, found);
    assert!(recorder.trace.flows.is_empty());
    recorder.engine(2, 40, acknowledged(2));
    recorder.engine(0, 50, found);
    let trace = recorder.finish();
    let flows: Vec<_> = trace
        .flows
        .iter()
        .map(|flow| {
            (
                flow.target,
                flow.taken_ps,
                flow.acknowledged_ps,
                flow.seen_ps,
            )
        })
        .collect();
    assert_eq!(flows, [(1, Some(20), 25, 50), (2, None, 40, 50)]);
}

#[test]
fn what_a_program_says_inside_an_interrupt_does_not_break_nesting() {
    let mut recorder = Recorder::new(1);
    recorder.doing(0, 0, SpanKind::User, "user");
    recorder.taken(0, 10);
    recorder.doing(0, 15, SpanKind::Kernel, "kernel");
    recorder.returned(0, 20);
    recorder.doing(0, 30, SpanKind::Kernel, "kernel");
    let spans: Vec<_> = recorder
        .finish()
        .spans
        .iter()
        .map(|span| (span.name, span.depth, span.start_ps, span.end_ps))
        .collect();
    assert_eq!(spans, [("user", 0, 0, 30), ("interrupt", 1, 10, 20)]);
}
