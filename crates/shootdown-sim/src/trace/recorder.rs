//! [`Recorder`]: hears what happens, in the order in which it does, and makes spans, instants and flows of it.

use rustc_hash::FxHashMap;
use shootdown::{CpuId, watch::TraceEvent};

use crate::trace::{Flow, Instant, InstantKind, Span, SpanKind, Trace};

/// Name of the span of the engine's own handler, inside the one of the interrupt.
const ENGINE_HANDLER: &str = "handle_ipi";

/// Records one run.
#[derive(Clone, Debug)]
pub struct Recorder {
    lanes: Vec<Lane>,
    /// What the engine calls each CPU.
    numbers: Vec<CpuId>,
    pub(super) open_flows: Vec<OpenFlow>,
    /// What tasks are in that have no CPU.
    parked: FxHashMap<usize, Vec<Open>>,
    pub(super) trace: Trace,
}

/// A span that has begun and not ended.
type Open = (SpanKind, &'static str, u64);

/// One CPU.
#[derive(Clone, Default, Debug)]
struct Lane {
    /// Spans that have begun and not ended, the outermost first.
    open: Vec<Open>,
    /// Requests submitted so far.
    requests: u64,
    /// Acknowledgements of those that have still to come.
    awaited: u32,
    /// Who has acknowledged a request while it was being submitted: found by looking, before the interrupt.
    early: Vec<usize>,
    last_ps: u64,
}

#[derive(Clone, Debug)]
pub(super) struct OpenFlow {
    initiator: usize,
    request: u64,
    target: usize,
    sent_ps: u64,
    taken_ps: Option<u64>,
    pub(super) acknowledged_ps: Option<u64>,
}

impl Recorder {
    /// Nothing has happened on a machine with `cpus` virtual CPUs.
    pub fn new(cpus: usize) -> Self {
        Self {
            lanes: vec![Lane::default(); cpus],
            numbers: (0..cpus as u32).map(CpuId::new).collect(),
            open_flows: Vec::new(),
            parked: FxHashMap::default(),
            trace: Trace {
                cpus,
                ..Trace::default()
            },
        }
    }

    /// For CPUs that the engine calls otherwise.
    #[must_use]
    pub(crate) fn with_numbers(mut self, numbers: &[CpuId]) -> Self {
        self.numbers = numbers.to_vec();
        self
    }

    fn index_of(&self, number: CpuId) -> usize {
        let mut numbers = self.numbers.iter();
        let index = numbers.position(|it| *it == number);
        index.expect("a CPU of the machine")
    }

    /// Ends what has not ended. Flows whose initiator has not seen the acknowledgement are left out.
    pub fn finish(mut self) -> Trace {
        let end_ps = self.lanes.iter().map(|l| l.last_ps).max().unwrap_or(0);
        for cpu in 0..self.lanes.len() {
            while !self.lanes[cpu].open.is_empty() {
                self.end_innermost(cpu, end_ps);
            }
        }
        self.trace.sort();
        self.trace
    }

    /// Interrupts whose initiator has not seen the acknowledgement: initiator, target, when each was sent and taken.
    pub(crate) fn unanswered(&self) -> impl Iterator<Item = (usize, usize, u64, Option<u64>)> {
        let flows = self.open_flows.iter();
        flows.map(|flow| (flow.initiator, flow.target, flow.sent_ps, flow.taken_ps))
    }

    /// `cpu` loses its task, which takes along what it is in.
    pub(crate) fn leaves(&mut self, cpu: usize, now_ps: u64, task: usize) {
        let open = self.lanes[cpu].open.clone();
        while !self.lanes[cpu].open.is_empty() {
            self.end_innermost(cpu, now_ps);
        }
        self.parked.insert(task, open);
    }

    /// A task has got `cpu`, and goes on in what it was in.
    pub(crate) fn arrives(&mut self, cpu: usize, now_ps: u64, task: usize) {
        for (kind, name, _) in self.parked.remove(&task).unwrap_or_default() {
            self.begin(cpu, now_ps, kind, name);
        }
    }

    /// From now on `cpu` executes its program's `name`. Inside an interrupt, a wait or a flush it is not heard.
    pub(crate) fn doing(&mut self, cpu: usize, now_ps: u64, kind: SpanKind, name: &'static str) {
        match self.lanes[cpu].open[..] {
            [] => {}
            [(SpanKind::User | SpanKind::Kernel, ..)] => self.end_innermost(cpu, now_ps),
            _ => return,
        }
        self.begin(cpu, now_ps, kind, name);
    }

    pub(crate) fn mark(&mut self, cpu: usize, now_ps: u64, name: &'static str) {
        self.instant(cpu, now_ps, InstantKind::Mark(name));
    }

    /// `initiator` begins to send an interrupt. Of no interest: one to itself, to go on
    /// serving later, and one to a target that has already acknowledged.
    pub(crate) fn sent(&mut self, initiator: usize, now_ps: u64, target: usize) {
        if initiator == target || self.lanes[initiator].early.contains(&target) {
            return;
        }
        self.open_flows.push(OpenFlow {
            initiator,
            request: self.lanes[initiator].requests,
            target,
            sent_ps: now_ps,
            taken_ps: None,
            acknowledged_ps: None,
        });
    }

    /// `cpu` takes an interrupt, which may stand for several.
    pub(crate) fn taken(&mut self, cpu: usize, now_ps: u64) {
        self.begin(cpu, now_ps, SpanKind::Handler, "interrupt");
        for flow in &mut self.open_flows {
            let awaits = flow.target == cpu && flow.acknowledged_ps.is_none();
            if awaits && flow.taken_ps.is_none() && flow.sent_ps <= now_ps {
                flow.taken_ps = Some(now_ps);
            }
        }
    }

    /// `cpu` goes on with what it was interrupted in.
    pub(crate) fn returned(&mut self, cpu: usize, now_ps: u64) {
        self.end(cpu, now_ps, SpanKind::Handler);
    }

    /// What the engine says.
    pub(crate) fn engine(&mut self, cpu: usize, now_ps: u64, event: TraceEvent) {
        match event {
            TraceEvent::Submitted { targets, .. } => {
                let lane = &mut self.lanes[cpu];
                lane.requests += 1;
                lane.awaited += targets.saturating_sub(lane.early.drain(..).count() as u32);
                self.instant(cpu, now_ps, InstantKind::Submitted);
            }
            TraceEvent::HandlerEntered { .. } => {
                self.begin(cpu, now_ps, SpanKind::Handler, ENGINE_HANDLER)
            }
            TraceEvent::HandlerLeft { .. } => self.end(cpu, now_ps, SpanKind::Handler),
            TraceEvent::FlushStarted { .. } => self.begin(cpu, now_ps, SpanKind::Flush, "flush"),
            TraceEvent::FlushFinished { .. } => self.end(cpu, now_ps, SpanKind::Flush),
            TraceEvent::Acknowledged { initiator, .. } => {
                self.instant(cpu, now_ps, InstantKind::Acknowledged);
                self.acknowledged(self.index_of(initiator), cpu, now_ps);
            }
            TraceEvent::FunctionStarted { .. } => {
                self.begin(cpu, now_ps, SpanKind::Function, "function")
            }
            TraceEvent::FunctionFinished { .. } => self.end(cpu, now_ps, SpanKind::Function),
            TraceEvent::WaitStarted { .. } => self.begin(cpu, now_ps, SpanKind::Wait, "wait"),
            TraceEvent::WaitFinished { .. } => {
                self.seen(cpu, now_ps);
                self.end(cpu, now_ps, SpanKind::Wait);
            }
            TraceEvent::FoundDone { initiator } => self.seen(self.index_of(initiator), now_ps),
            _ => {}
        }
    }

    /// The oldest request of `initiator` that `target` has still to acknowledge is meant; requests that needed no
    /// interrupt have no flow.
    fn acknowledged(&mut self, initiator: usize, target: usize, now_ps: u64) {
        let lane = &mut self.lanes[initiator];
        match lane.awaited.checked_sub(1) {
            Some(left) => lane.awaited = left,
            // It served the request while the interrupts were still being sent.
            None => lane.early.push(target),
        }
        let mut flows = self.open_flows.iter_mut();
        let flow = flows.find(|flow| {
            (flow.initiator, flow.target) == (initiator, target) && flow.acknowledged_ps.is_none()
        });
        if let Some(flow) = flow {
            flow.acknowledged_ps = Some(now_ps);
        }
    }

    /// `initiator` has seen that a request is complete, and with it every one that is.
    fn seen(&mut self, initiator: usize, now_ps: u64) {
        let incomplete: Vec<u64> = self
            .open_flows
            .iter()
            .filter(|flow| flow.initiator == initiator && flow.acknowledged_ps.is_none())
            .map(|flow| flow.request)
            .collect();
        let flows = &mut self.trace.flows;
        self.open_flows.retain(|flow| {
            let Some(acknowledged_ps) = flow.acknowledged_ps else {
                return true;
            };
            if flow.initiator != initiator || incomplete.contains(&flow.request) {
                return true;
            }
            flows.push(Flow {
                initiator,
                target: flow.target,
                sent_ps: flow.sent_ps,
                taken_ps: flow.taken_ps,
                acknowledged_ps,
                seen_ps: now_ps,
            });
            false
        });
    }

    fn instant(&mut self, cpu: usize, at_ps: u64, kind: InstantKind) {
        self.lanes[cpu].last_ps = at_ps;
        self.trace.instants.push(Instant { cpu, kind, at_ps });
    }

    fn begin(&mut self, cpu: usize, now_ps: u64, kind: SpanKind, name: &'static str) {
        self.lanes[cpu].last_ps = now_ps;
        self.lanes[cpu].open.push((kind, name, now_ps));
    }

    /// Ends the innermost span, which is of this kind unless recording began inside it.
    fn end(&mut self, cpu: usize, now_ps: u64, kind: SpanKind) {
        if self.lanes[cpu].open.last().is_some_and(|l| l.0 == kind) {
            self.end_innermost(cpu, now_ps);
        }
    }

    fn end_innermost(&mut self, cpu: usize, now_ps: u64) {
        let lane = &mut self.lanes[cpu];
        lane.last_ps = lane.last_ps.max(now_ps);
        let Some((kind, name, start_ps)) = lane.open.pop() else {
            return;
        };
        let is_program = matches!(kind, SpanKind::User | SpanKind::Kernel);
        if start_ps < now_ps || !is_program {
            self.trace.spans.push(Span {
                cpu,
                kind,
                name,
                depth: lane.open.len(),
                start_ps,
                end_ps: now_ps,
            });
        }
    }
}
