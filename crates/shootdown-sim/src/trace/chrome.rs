//! The trace format of Chrome and Perfetto: JSON, one process for each trace, one thread for each CPU.
//!
//! Format: "Trace Event Format" (Google, 2016). `ts` and `dur` are microseconds; ours have three decimals.

use std::cmp::Reverse;

use serde_json::{Value, json};

use crate::trace::{Flow, Trace};

/// The JSON text of several traces, each a process with its name. The same traces give the same bytes.
///
/// Every trace starts at its own first moment, so that they lie side by side.
pub fn text(traces: &[(&str, &Trace)]) -> String {
    let mut events: Vec<Value> = Vec::new();
    let mut flows_before = 0;
    for (index, (name, trace)) in traces.iter().enumerate() {
        let process = Process {
            id: index + 1,
            origin_ns: ns(first_ps(trace)),
        };
        events.extend(process.names(name, trace.cpus));
        events.extend(process.events(trace, flows_before));
        flows_before += trace.flows.len();
    }
    let lines: Vec<String> = events.iter().map(Value::to_string).collect();
    format!(
        "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n{}\n]}}\n",
        lines.join(",\n")
    )
}

fn first_ps(trace: &Trace) -> u64 {
    let spans = trace.spans.iter().map(|span| span.start_ps);
    let instants = trace.instants.iter().map(|instant| instant.at_ps);
    spans.chain(instants).min().unwrap_or(0)
}

/// Rounded, the same way everywhere, so that spans which nest in picoseconds nest in nanoseconds.
fn ns(time_ps: u64) -> u64 {
    (time_ps + 500) / 1000
}

fn microseconds(time_ns: u64) -> f64 {
    time_ns as f64 / 1000.0
}

struct Process {
    id: usize,
    origin_ns: u64,
}

/// Where an event comes in the file: by time, spans before what happens in them, the outer ones first.
type Place = (u64, u8, Reverse<u64>, usize, usize);

impl Process {
    fn names(&self, name: &str, cpus: usize) -> Vec<Value> {
        let about = |what: &str, thread: usize, args: Value| json!({"ph": "M", "pid": self.id, "tid": thread, "name": what, "args": args});
        let mut names = vec![
            about("process_name", 0, json!({"name": name})),
            about("process_sort_index", 0, json!({"sort_index": self.id})),
        ];
        for cpu in 0..cpus {
            let thread_name = format!("CPU {cpu}");
            names.push(about("thread_name", cpu, json!({"name": thread_name})));
            names.push(about("thread_sort_index", cpu, json!({"sort_index": cpu})));
        }
        names
    }

    fn events(&self, trace: &Trace, flows_before: usize) -> impl Iterator<Item = Value> {
        let mut placed: Vec<(Place, Value)> = Vec::new();
        for span in &trace.spans {
            let (start_ns, end_ns) = (ns(span.start_ps), ns(span.end_ps));
            let dur_ns = end_ns - start_ns;
            placed.push((
                (start_ns, 0, Reverse(dur_ns), span.cpu, span.depth),
                json!({
                    "ph": "X", "pid": self.id, "tid": span.cpu, "ts": self.ts(start_ns),
                    "dur": microseconds(dur_ns), "cat": span.kind.word(), "name": span.name,
                }),
            ));
        }
        for instant in &trace.instants {
            let at_ns = ns(instant.at_ps);
            placed.push((
                (at_ns, 1, Reverse(0), instant.cpu, 0),
                json!({
                    "ph": "i", "s": "t", "pid": self.id, "tid": instant.cpu,
                    "ts": self.ts(at_ns), "cat": "instant", "name": instant.kind.word(),
                }),
            ));
        }
        for (index, flow) in trace.flows.iter().enumerate() {
            placed.extend(self.flow(flow, flows_before + index + 1));
        }
        placed.sort_by_key(|(place, _)| *place);
        placed.into_iter().map(|(_, event)| event)
    }

    /// Sending, taking, acknowledging and seeing, as far as they happened; each belongs to the innermost span
    /// around it (`bp`: enclosing).
    fn flow(&self, flow: &Flow, id: usize) -> impl Iterator<Item = (Place, Value)> {
        let points = [
            Some(("s", flow.initiator, flow.sent_ps)),
            flow.taken_ps.map(|at_ps| ("t", flow.target, at_ps)),
            Some(("t", flow.target, flow.acknowledged_ps)),
            Some(("f", flow.initiator, flow.seen_ps)),
        ];
        points
            .into_iter()
            .flatten()
            .enumerate()
            .map(move |(step, (phase, cpu, at_ps))| {
                let at_ns = ns(at_ps);
                let event = json!({
                    "ph": phase, "id": id, "pid": self.id, "tid": cpu, "ts": self.ts(at_ns),
                    "bp": "e", "cat": "ipi", "name": "ipi",
                });
                ((at_ns, 2, Reverse(0), id, step), event)
            })
    }

    fn ts(&self, at_ns: u64) -> f64 {
        microseconds(at_ns - self.origin_ns)
    }
}
