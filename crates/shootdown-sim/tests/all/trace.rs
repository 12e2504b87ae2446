//! Traces: what the file says is well formed and in the order that the engine promises.

use std::collections::BTreeMap;

use serde_json::Value;
use shootdown::{AddressSpace, CallTargets, CpuId, FlushRange, FreedTables, PageSize, Policy};
use shootdown_sim::timed::Timed;
use shootdown_sim::trace::{Recorder, SpanKind, Trace, chrome, scene};
use shootdown_sim::{Engine, Machine, kernel_root_at, root_at};

const CPUS: usize = 5;

/// Every CPU flushes a shared space and calls all others, at the same time. Returns the trace, if one was wanted,
/// and what the clocks say in the end.
fn everybody_at_once(policy: Policy, traced: bool) -> (Trace, Vec<u64>) {
    let engine = Engine::<shootdown::Cpus<CPUS>>::new(CPUS);
    engine.set_policy(policy);
    let space = AddressSpace::new(&engine, root_at(1));
    let timed = Timed::new(CPUS, scene::costs());
    let mut machine = Machine::timed(timed, || engine.handle_ipi());
    if traced {
        machine.record(Recorder::new(CPUS));
    }
    let mut state = machine.run_each(policy.name(), |me, context| {
        context.doing(SpanKind::Kernel, "kernel");
        engine.online();
        engine.switch_to(None, &space);
        while engine.ready_cpus().len() < CPUS {
            context.work(50_000);
        }
        for turn in 0..6 {
            context.doing(SpanKind::User, "user");
            context.work(100_000 * (me as u64 + 1));
            context.doing(SpanKind::Kernel, "kernel");
            let page = FlushRange::pages((me + turn) << 12, 1, PageSize::SIZE_4K);
            engine.flush(&space, page, FreedTables::No);
            engine.call_many(CallTargets::Online, &|_: CpuId| {
                shootdown_sim::machine::context().work(turn as u64 * 9_000)
            });
        }
        engine.switch_away(&space, kernel_root_at(0));
    });
    let trace = state.recorder.take().map(|recorder| recorder.finish());
    let clocks = state.processors.iter().map(|cpu| cpu.now_ps).collect();
    (trace.unwrap_or_default(), clocks)
}

fn scenes() -> Vec<(&'static str, Trace)> {
    scene::POLICIES
        .into_iter()
        .map(|(name, policy)| (name, scene::steady_iteration(policy)))
        .collect()
}

fn text(traces: &[(&'static str, Trace)]) -> String {
    let borrowed: Vec<_> = traces.iter().map(|(name, trace)| (*name, trace)).collect();
    chrome::text(&borrowed)
}

fn all() -> Vec<(&'static str, Trace)> {
    let mut traces = scenes();
    for (name, policy) in scene::POLICIES {
        traces.push((name, everybody_at_once(policy, true).0));
    }
    traces
}

fn events(json: &str) -> Vec<Value> {
    let whole: Value = serde_json::from_str(json).expect("JSON");
    whole["traceEvents"].as_array().expect("a list").clone()
}

/// Microseconds with three decimals, as whole nanoseconds.
fn ns(value: &Value) -> u64 {
    let ns = value.as_f64().expect("a number") * 1000.0;
    assert!(
        (ns - ns.round()).abs() < 1e-3,
        "{value} is no whole number of nanoseconds"
    );
    ns.round() as u64
}

fn track(event: &Value) -> (u64, u64) {
    (
        event["pid"].as_u64().unwrap(),
        event["tid"].as_u64().unwrap(),
    )
}

/// The spans of each track, in the file's order.
fn spans(events: &[Value]) -> BTreeMap<(u64, u64), Vec<(u64, u64)>> {
    let mut tracks: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for event in events.iter().filter(|event| event["ph"] == "X") {
        let start = ns(&event["ts"]);
        tracks
            .entry(track(event))
            .or_default()
            .push((start, start + ns(&event["dur"])));
    }
    tracks
}

#[test]
fn the_file_is_sorted_and_spans_of_a_track_nest() {
    let events = events(&text(&all()));
    let mut last = (0, 0);
    for event in events.iter().filter(|event| event["ph"] != "M") {
        let place = (track(event).0, ns(&event["ts"]));
        assert!(place >= last, "{event} comes after {last:?}");
        last = place;
    }
    let tracks = spans(&events);
    assert_eq!(tracks.len(), 3 * (scene::CPUS + CPUS));
    for (track, spans) in tracks {
        let mut open: Vec<u64> = Vec::new();
        for (start, end) in spans {
            open.retain(|outer| *outer > start);
            assert!(
                open.last().is_none_or(|outer| end <= *outer),
                "{start}..{end} on {track:?} crosses the end of what it is in"
            );
            open.push(end);
        }
    }
}

#[test]
fn every_track_has_its_name() {
    let traces = scenes();
    let events = events(&text(&traces));
    let named: Vec<_> = events
        .iter()
        .filter(|event| event["name"] == "thread_name")
        .map(|event| (track(event), event["args"]["name"].clone()))
        .collect();
    assert_eq!(named.len(), traces.len() * scene::CPUS);
    for ((_, cpu), name) in named {
        assert_eq!(name, format!("CPU {cpu}"));
    }
}

#[test]
fn every_flow_starts_once_ends_once_and_touches_spans() {
    let events = events(&text(&all()));
    let tracks = spans(&events);
    let mut phases: BTreeMap<u64, String> = BTreeMap::new();
    for event in &events {
        let phase = event["ph"].as_str().unwrap();
        if !matches!(phase, "s" | "t" | "f") {
            continue;
        }
        phases
            .entry(event["id"].as_u64().unwrap())
            .or_default()
            .push_str(phase);
        let at = ns(&event["ts"]);
        let spans = &tracks[&track(event)];
        assert!(
            spans
                .iter()
                .any(|(start, end)| (*start..=*end).contains(&at)),
            "{event} is bound to nothing"
        );
    }
    assert!(phases.len() >= 3 * (scene::CPUS - 1));
    for (id, phases) in phases {
        assert!(
            ["stf", "sttf"].contains(&phases.as_str()),
            "flow {id}: {phases}"
        );
    }
}

#[test]
fn one_shootdown_has_one_flow_for_each_target() {
    for (name, trace) in scenes() {
        let mut targets: Vec<_> = trace.flows.iter().map(|flow| flow.target).collect();
        targets.sort_unstable();
        assert_eq!(targets, [1, 2, 3], "{name}");
        assert!(
            trace.flows.iter().all(|flow| flow.taken_ps.is_some()),
            "{name}"
        );
    }
}

#[test]
fn sending_comes_before_handling_before_acknowledging_before_the_end_of_the_wait() {
    for (name, trace) in all() {
        assert!(!trace.flows.is_empty());
        for flow in &trace.flows {
            // Who polls may find it just as the interrupt is sent.
            assert!(flow.sent_ps <= flow.acknowledged_ps, "{name}: {flow:?}");
            if let Some(taken_ps) = flow.taken_ps {
                assert!(flow.sent_ps < taken_ps && taken_ps <= flow.acknowledged_ps);
            }
            assert!(flow.acknowledged_ps < flow.seen_ps, "{name}: {flow:?}");
            let waits = trace.spans.iter().filter(|span| {
                span.kind == SpanKind::Wait
                    && span.cpu == flow.initiator
                    && (span.start_ps..span.end_ps).contains(&flow.acknowledged_ps)
            });
            for wait in waits {
                assert!(flow.seen_ps <= wait.end_ps, "{name}: {flow:?} {wait:?}");
            }
        }
    }
}

#[test]
fn the_policies_differ_in_what_comes_first() {
    for (name, trace) in scenes() {
        let flush_at = |cpu| {
            let mut flushes = trace.spans.iter().filter(|s| s.kind == SpanKind::Flush);
            flushes
                .find(|span| span.cpu == cpu)
                .expect("everybody flushes")
                .start_ps
        };
        for flow in &trace.flows {
            let flushed_first = flush_at(flow.target) < flow.acknowledged_ps;
            assert_eq!(flushed_first, name == "before", "{name}: {flow:?}");
            let waited_first = flow.seen_ps <= flush_at(flow.initiator);
            assert_eq!(waited_first, name == "before", "{name}: {flow:?}");
        }
    }
}

#[test]
fn the_same_run_gives_the_same_bytes() {
    assert_eq!(text(&all()), text(&all()));
    assert_eq!(scene::picture(), scene::picture());
}

#[test]
fn recording_takes_no_virtual_time() {
    for (_, policy) in scene::POLICIES {
        let (untraced, silent) = everybody_at_once(policy, false);
        assert_eq!(untraced, Trace::default());
        assert_eq!(everybody_at_once(policy, true).1, silent);
    }
}

#[test]
fn called_functions_are_spans_inside_a_handler_or_a_wait() {
    let (trace, _) = everybody_at_once(Policy::BEST, true);
    let functions: Vec<_> = trace
        .spans
        .iter()
        .filter(|s| s.name == "function")
        .collect();
    assert!(!functions.is_empty());
    for function in functions {
        assert_eq!(function.kind, SpanKind::Function);
        assert!(function.depth > 0, "{function:?}");
    }
}

#[test]
fn the_picture_of_the_readme_is_what_the_command_draws() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/shootdown.svg");
    let committed = std::fs::read_to_string(path).expect("docs/shootdown.svg");
    assert!(
        committed == scene::picture(),
        "docs/shootdown.svg is out of date: ./lab bench madvise --picture docs/shootdown.svg"
    );
}
