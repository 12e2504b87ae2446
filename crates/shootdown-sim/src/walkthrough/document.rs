//! [`Walkthrough`]: the document of one run.

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::machine::{Failure, State};
use crate::trace::Trace;
use crate::walkthrough::causes::{self, Violation};
use crate::walkthrough::steps::set;
use crate::walkthrough::text::{ChangeText, Places};
use crate::walkthrough::{Key, Sort, Step, Steps, Value};

/// What lies on the axis of a run.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Debug)]
#[serde(rename_all = "lowercase")]
pub enum Axis {
    /// Steps, one beside the other: an explored machine has no clock.
    Steps,
    /// Nanoseconds of the timed machine.
    Ns,
}

/// What stands above a run.
#[derive(Clone, Copy, Debug)]
pub struct Titles<'a> {
    /// What is shown.
    pub title: &'a str,
    /// How to see it again.
    pub command: &'a str,
}

/// One step, as it is shown.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ShownStep {
    /// Where on the axis.
    pub at: f64,
    /// Of how many events the machine had had.
    pub event: u64,
    /// Where it happened, if that is known.
    pub cpu: Option<usize>,
    /// What kind of thing it is.
    pub sort: Sort,
    /// A few words.
    pub label: String,
    /// The rest of them.
    pub text: String,
    /// Whether the story tells it.
    pub told: bool,
    /// What it made different.
    pub changes: Vec<ChangeText>,
}

/// A stretch of one CPU's time.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Bar {
    /// Where.
    pub cpu: usize,
    /// Of which kind.
    pub kind: &'static str,
    /// What exactly.
    pub name: &'static str,
    /// How many it is inside of.
    pub depth: usize,
    /// Its ends.
    pub span: (f64, f64),
}

/// An interrupt on its way, and the acknowledgement on its way back.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Arrow {
    /// Who sent it, and when.
    pub sent: (usize, f64),
    /// Who is to take it, and when that did.
    pub taken: (usize, Option<f64>),
    /// When the target acknowledged the request, and when the initiator saw that all had.
    pub answer: Option<(f64, f64)>,
}

/// One run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Walkthrough {
    /// What is shown.
    pub title: String,
    /// How to see it again.
    pub command: String,
    /// What lies on its axis.
    pub axis: Axis,
    /// One track each.
    pub cpus: Vec<String>,
    /// What holds something, by the number that changes name.
    pub places: Vec<String>,
    /// How many steps came before the first that is shown.
    pub left_out: usize,
    /// What held before it.
    pub start: Vec<ChangeText>,
    /// What happened, in order.
    pub steps: Vec<ShownStep>,
    /// The innermost last.
    pub bars: Vec<Bar>,
    /// Interrupts.
    pub arrows: Vec<Arrow>,
    /// The promise that was broken.
    pub violation: Option<Violation>,
}

/// What was recorded of a run, taken out of its state.
#[derive(Debug)]
pub struct Recorded {
    steps: Steps,
    trace: Trace,
    unanswered: Vec<Arrow>,
    cpus: Vec<String>,
}

impl Recorded {
    /// `None` if the machine was not built with
    /// [`with_steps`](crate::Machine::with_steps).
    pub fn of(state: &mut State) -> Option<Self> {
        let (steps, recorder) = (state.steps.take()?, state.recorder.take()?);
        let named = state.numbers.iter().enumerate();
        let cpus = named.map(|(index, number)| match number.index() == index {
            true => format!("cpu{index}"),
            false => format!("cpu{index} ({number})"),
        });
        let unanswered = recorder.unanswered().map(|it| Arrow {
            sent: (it.0, it.2 as f64),
            taken: (it.1, it.3.map(|at| at as f64)),
            answer: None,
        });
        Some(Self {
            unanswered: unanswered.collect(),
            cpus: cpus.collect(),
            steps: *steps,
            trace: recorder.finish(),
        })
    }

    /// The steps.
    pub fn steps(&self) -> &Steps {
        &self.steps
    }

    /// The spans and interrupts, on an explored machine by the numbers of steps.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// All of an explored run, which may have failed.
    pub fn explored(self, titles: Titles<'_>, failure: Option<&Failure>) -> Walkthrough {
        let first = self.steps.left_out() as u64;
        let trace = self.trace.window(first, u64::MAX);
        let steps: Vec<&Step> = self.steps.iter().collect();
        let places = Places::new(&self.cpus, self.steps.line_names());
        let numbered = steps.iter().enumerate();
        let shown =
            numbered.map(|(index, step)| shown(step, (first + index as u64) as f64, &places));
        let arrows = trace.flows.iter().map(|flow| arrow(flow, &|at| at as f64));
        let unanswered = (self.unanswered.iter()).filter(|it| it.sent.1 >= first as f64);
        Walkthrough {
            title: titles.title.to_owned(),
            command: titles.command.to_owned(),
            axis: Axis::Steps,
            left_out: self.steps.left_out(),
            start: places.all(self.steps.start()),
            steps: shown.collect(),
            bars: bars(&trace, &|at| at as f64),
            arrows: arrows.chain(unanswered.cloned()).collect(),
            violation: failure.map(|it| causes::violation(it, &self.steps)),
            places: places.names(),
            cpus: self.cpus,
        }
    }

    /// A stretch of a timed run.
    pub fn timed(self, titles: Titles<'_>, from_ps: u64, to_ps: u64) -> Walkthrough {
        let ns = |at_ps: u64| at_ps.saturating_sub(from_ps) as f64 / 1000.0;
        let trace = self.trace.window(from_ps, to_ps);
        let places = Places::new(&self.cpus, self.steps.line_names());
        let mut steps: Vec<&Step> = self.steps.iter().collect();
        steps.sort_by_key(|step| step.at_ps);
        let mut start = self.steps.start().clone();
        let before = steps.partition_point(|step| step.at_ps < from_ps);
        let after = steps.partition_point(|step| step.at_ps <= to_ps);
        apply(&mut start, &steps[..before]);
        let shown = steps[before..after]
            .iter()
            .map(|step| shown(step, ns(step.at_ps), &places));
        Walkthrough {
            title: titles.title.to_owned(),
            command: titles.command.to_owned(),
            axis: Axis::Ns,
            left_out: 0,
            start: places.all(&start),
            steps: shown.collect(),
            bars: bars(&trace, &ns),
            arrows: trace.flows.iter().map(|flow| arrow(flow, &ns)).collect(),
            violation: None,
            places: places.names(),
            cpus: self.cpus,
        }
    }
}

fn apply(facts: &mut FxHashMap<Key, Value>, steps: &[&Step]) {
    for (key, value) in steps.iter().flat_map(|step| &step.changes) {
        set(facts, *key, *value);
    }
}

fn shown(step: &Step, at: f64, places: &Places) -> ShownStep {
    ShownStep {
        at,
        event: step.event,
        cpu: step.cpu,
        sort: step.sort,
        label: step.label.clone(),
        text: step.text.clone(),
        told: step.is_told,
        changes: step.changes.iter().map(|it| places.change(it)).collect(),
    }
}

fn bars(trace: &Trace, at: &impl Fn(u64) -> f64) -> Vec<Bar> {
    let spans = trace.spans.iter().map(|span| Bar {
        cpu: span.cpu,
        kind: span.kind.word(),
        name: span.name,
        depth: span.depth,
        span: (at(span.start_ps), at(span.end_ps)),
    });
    spans.collect()
}

fn arrow(flow: &crate::trace::Flow, at: &impl Fn(u64) -> f64) -> Arrow {
    Arrow {
        sent: (flow.initiator, at(flow.sent_ps)),
        taken: (flow.target, flow.taken_ps.map(at)),
        answer: Some((at(flow.acknowledged_ps), at(flow.seen_ps))),
    }
}
