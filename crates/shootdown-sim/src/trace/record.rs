//! [`Trace`]: what a recorder has found. Times are in picoseconds of the machine's clock.

use std::cmp::Reverse;

/// What a CPU does during a [`Span`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum SpanKind {
    /// User code, or idle.
    User,
    /// A system call or a fault.
    Kernel,
    /// An interrupt, from when it is taken until the interrupted code goes on; inside it, the engine's handler.
    Handler,
    /// Dropping translations.
    Flush,
    /// Waiting for other CPUs.
    Wait,
    /// A function that another CPU called.
    Function,
}

impl SpanKind {
    /// One word.
    pub fn word(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Kernel => "kernel",
            Self::Handler => "handler",
            Self::Flush => "flush",
            Self::Wait => "wait",
            Self::Function => "function",
        }
    }
}

/// A stretch of one CPU's time. Spans of one CPU nest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// Where.
    pub cpu: usize,
    /// Of which kind.
    pub kind: SpanKind,
    /// What exactly.
    pub name: &'static str,
    /// How many spans it is inside of.
    pub depth: usize,
    /// First moment.
    pub start_ps: u64,
    /// First moment after it.
    pub end_ps: u64,
}

/// What happens at an [`Instant`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum InstantKind {
    /// An initiator has published a request and sent its interrupts.
    Submitted,
    /// A target has acknowledged a request.
    Acknowledged,
    /// A program has reached a point that it calls so.
    Mark(&'static str),
}

impl InstantKind {
    /// What to call it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Submitted => "submit",
            Self::Acknowledged => "acknowledge",
            Self::Mark(name) => name,
        }
    }
}

/// A moment on one CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Instant {
    /// Where.
    pub cpu: usize,
    /// What.
    pub kind: InstantKind,
    /// When.
    pub at_ps: u64,
}

/// One interrupt on its way from the initiator to a target, and the acknowledgement on its way back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flow {
    /// Who sent it.
    pub initiator: usize,
    /// To whom.
    pub target: usize,
    /// When the initiator began to write the interrupt command register.
    pub sent_ps: u64,
    /// When the target took the interrupt; `None` if it had served the request before by looking at its inbox.
    pub taken_ps: Option<u64>,
    /// When the target acknowledged the request.
    pub acknowledged_ps: u64,
    /// When the initiator saw that all targets had.
    pub seen_ps: u64,
}

/// What happened on a machine.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Trace {
    /// How many virtual CPUs the machine has.
    pub cpus: usize,
    /// By CPU, then by start, the outer before the inner.
    pub spans: Vec<Span>,
    /// By time.
    pub instants: Vec<Instant>,
    /// By the time of sending.
    pub flows: Vec<Flow>,
}

impl Trace {
    /// The part between two moments: spans are cut at its ends, flows that leave it are left out.
    pub fn window(&self, from_ps: u64, to_ps: u64) -> Self {
        let inside = |at_ps: u64| (from_ps..=to_ps).contains(&at_ps);
        let spans = self
            .spans
            .iter()
            .filter(|span| span.end_ps > from_ps && span.start_ps < to_ps)
            .map(|span| Span {
                start_ps: span.start_ps.max(from_ps),
                end_ps: span.end_ps.min(to_ps),
                ..*span
            });
        let flows = self.flows.iter().copied().filter(|flow| {
            inside(flow.sent_ps) && inside(flow.acknowledged_ps) && inside(flow.seen_ps)
        });
        let instants = self.instants.iter().copied().filter(|i| inside(i.at_ps));
        let mut window = Self {
            cpus: self.cpus,
            spans: spans.collect(),
            instants: instants.collect(),
            flows: flows.collect(),
        };
        window.sort();
        window
    }

    /// When CPU `cpu` came to the point `name`, in order.
    pub fn marks(&self, cpu: usize, name: &str) -> Vec<u64> {
        self.instants
            .iter()
            .filter(|i| i.cpu == cpu && matches!(i.kind, InstantKind::Mark(at) if at == name))
            .map(|instant| instant.at_ps)
            .collect()
    }

    pub(crate) fn sort(&mut self) {
        self.spans
            .sort_by_key(|span| (span.cpu, span.start_ps, Reverse(span.end_ps), span.depth));
        self.instants.sort_by_key(|i| (i.at_ps, i.cpu, i.kind));
        self.flows
            .sort_by_key(|flow| (flow.sent_ps, flow.initiator, flow.target));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_cuts_spans_and_leaves_out_flows_that_cross_its_ends() {
        let span = |start_ps, end_ps| Span {
            cpu: 0,
            kind: SpanKind::User,
            name: "user",
            depth: 0,
            start_ps,
            end_ps,
        };
        let flow = |sent_ps, seen_ps| Flow {
            initiator: 0,
            target: 1,
            sent_ps,
            taken_ps: None,
            acknowledged_ps: seen_ps,
            seen_ps,
        };
        let trace = Trace {
            cpus: 1,
            spans: vec![span(0, 10), span(10, 20), span(20, 30), span(30, 40)],
            instants: Vec::new(),
            flows: vec![flow(5, 15), flow(15, 18), flow(18, 26)],
        };
        let window = trace.window(12, 25);
        assert_eq!(window.spans, [span(12, 20), span(20, 25)]);
        assert_eq!(window.flows, [flow(15, 18)]);
    }
}
