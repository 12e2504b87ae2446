//! What the machine says to [`Steps`](super::steps::Steps). Each of these costs one look at an empty option where nobody listens.

use std::sync::atomic::AtomicU64;

use shootdown::sim::Operation;
use shootdown::{LocalFlush, watch::TraceEvent};

use crate::machine::{Context, Failure, Model, State};
use crate::trace::Recorder;
use crate::walkthrough::{Change, Fact, Key, Sort, Step, Value, label};

impl Context<'_> {
    /// Adds a step that the story does not tell. No event; heard only where a run is recorded step by step.
    pub fn hear(self, sort: Sort, label: &'static str) {
        self.with(|state| state.hear(sort, || label.to_owned()));
    }

    /// This CPU has accessed an atomic word and found `value`.
    pub(crate) fn heard_access(self, cell: &AtomicU64, operation: Operation, value: u64) {
        if self.machine().line_names.is_some() {
            let newest = cell.load(std::sync::atomic::Ordering::Relaxed);
            let is_old = operation == Operation::Load && value != newest;
            self.heard_line(cell.as_ptr().addr(), operation.writes(), is_old);
        }
    }

    /// This CPU has accessed a line, and perhaps found what is no longer there.
    pub(crate) fn heard_line(self, address: usize, writes: bool, is_old: bool) {
        let Some(namer) = self.machine().line_names.as_deref() else {
            return;
        };
        self.with(|state| state.heard_line(address, || namer(address), writes, is_old));
    }
}

impl State {
    /// When a recorder hears of something: on the CPU's clock, or as the newest step.
    fn heard_at(&self) -> u64 {
        match (&self.model, &self.steps) {
            (Model::Explore(_), Some(steps)) => steps.newest(),
            _ => self.processors[self.running].now_ps,
        }
    }

    /// Tells the recorder, if there is one, who runs and when it is.
    pub(crate) fn record(&mut self, tell: impl FnOnce(&mut Recorder, usize, u64)) {
        let (running, now) = (self.running, self.heard_at());
        if let Some(recorder) = &mut self.recorder {
            tell(recorder, running, now);
        }
    }

    /// The engine tells what happened; the story has it as it is printed for debugging.
    pub(crate) fn tell_engine(&mut self, event: TraceEvent) {
        self.tell_as(|| {
            let (sort, label) = label::of_engine(&event);
            (sort, label, format!("{event:?}"))
        });
    }

    /// The same of translations that the running CPU drops now.
    pub(crate) fn tell_flush(&mut self, operation: LocalFlush) {
        self.tell_as(|| {
            let label = label::of_flush(operation);
            (Sort::Flush, label, format!("drops {operation:?}"))
        });
    }

    /// Adds to the story and to the steps, as far as they are wanted.
    pub(crate) fn tell_as(&mut self, what: impl FnOnce() -> (Sort, String, String)) {
        if self.story.is_none() && self.steps.is_none() {
            return;
        }
        let (sort, label, text) = what();
        let running = self.running;
        if let Some(story) = &mut self.story {
            story.push(format!("{:>6} cpu{running} {text}", self.events));
        }
        self.settle(true);
        self.push_step(Some(running), sort, label, (text, true));
        self.attach();
    }

    /// Adds a step that the story does not tell.
    pub(crate) fn hear(&mut self, sort: Sort, label: impl FnOnce() -> String) {
        if self.steps.is_some() {
            let label = label();
            self.settle(true);
            self.push_step(Some(self.running), sort, label.clone(), (label, false));
        }
    }

    /// What the hardware has just done by itself, and whatever has changed without a word.
    pub(crate) fn tell_last_act(&mut self) {
        if self.story.is_none() && self.steps.is_none() {
            return;
        }
        let act = self.explore().and_then(|it| it.hardware.last_act());
        if let (Some(story), Some(act)) = (&mut self.story, &act) {
            story.push(format!("{:>6} {act}", self.events));
        }
        self.hear_hardware(act.as_deref());
    }

    /// The hardware has done something by itself, which the story tells without a CPU.
    pub(crate) fn hear_hardware(&mut self, told: Option<&str>) {
        if self.steps.is_none() {
            return;
        }
        let Some(text) = told else {
            return self.settle(false);
        };
        let changes = self.take_changes(|_| false);
        let cpu = changes.first().and_then(|(key, _)| key.cpu());
        let label = changes.first().map_or_else(|| text.to_owned(), describe);
        self.push_step(cpu, Sort::Hardware, label, (text.to_owned(), true));
        self.add(changes);
    }

    /// The run is over before its end.
    pub(crate) fn hear_failure(&mut self, failure: &Failure) {
        if self.steps.is_none() {
            return;
        }
        self.settle(false);
        let label = failure.kind.to_string();
        let text = (failure.message.clone(), false);
        self.push_step(Some(failure.cpu), Sort::Violation, label, text);
        let subject = self.explore().and_then(|it| it.hardware.subject());
        if let Some(steps) = &mut self.steps {
            steps.subject = subject;
        }
    }

    /// What has changed belongs to the newest step.
    pub(crate) fn attach(&mut self) {
        let changes = self.take_changes(|_| false);
        self.add(changes);
    }

    /// Whatever has changed since the newest step gets a step of its own, or belongs to that one if its CPU has just told it. What this CPU has
    /// cached waits where it `tells` something next: it did that for it.
    fn settle(&mut self, tells: bool) {
        let running = self.running;
        let mut changes = self.take_changes(|key| tells && key.cpu() == Some(running));
        let of_memory: Vec<_> = changes.extract_if(.., |it| it.0.cpu().is_none()).collect();
        if self.has_just_told(running) {
            self.add(of_memory);
        } else {
            self.push_changes(running, of_memory);
        }
        for cpu in 0..self.processors.len() {
            let own = changes.extract_if(.., |it| it.0.cpu() == Some(cpu));
            let own = own.collect();
            self.push_changes(cpu, own);
        }
    }

    fn push_changes(&mut self, cpu: usize, changes: Vec<Change>) {
        let Some(first) = changes.first() else {
            return;
        };
        let sort = match first.0 {
            Key::Promise(..) => Sort::Oracle,
            Key::Entry(..) | Key::Frame(_) => Sort::Program,
            _ => Sort::Hardware,
        };
        let words: Vec<String> = changes.iter().map(describe).collect();
        self.push_step(Some(cpu), sort, describe(first), (words.join("; "), false));
        self.add(changes);
    }

    fn has_just_told(&self, cpu: usize) -> bool {
        let newest = self.steps.as_ref().and_then(|steps| steps.iter().last());
        newest.is_some_and(|step| step.cpu == Some(cpu) && step.is_told)
    }

    fn heard_line(
        &mut self,
        address: usize,
        name: impl FnOnce() -> Option<String>,
        writes: bool,
        is_old: bool,
    ) {
        let running = self.running;
        let Some(steps) = &mut self.steps else {
            return;
        };
        let Some(line) = steps.line(address, name) else {
            return;
        };
        let moved = steps.accessed(line, running, writes);
        let value = moved.map(|(_, value)| value);
        let verb = match (writes, is_old) {
            (true, _) => "writes",
            (false, true) => "reads an older value of",
            (false, false) => "reads",
        };
        if value.is_none() && !is_old {
            return;
        }
        let text = format!("{verb} {}", steps.line_name(line));
        self.settle(true);
        self.push_step(Some(running), Sort::Access, text.clone(), (text, false));
        let change = value.map(|value| (Key::Line(line), Some(value)));
        self.add(change.into_iter().collect());
    }

    fn push_step(
        &mut self,
        cpu: Option<usize>,
        sort: Sort,
        label: String,
        (text, is_told): (String, bool),
    ) {
        let step = Step {
            event: self.events,
            at_ps: self.processors[self.running].now_ps,
            cpu,
            sort,
            label,
            text,
            is_told,
            changes: Vec::new(),
        };
        if let Some(steps) = &mut self.steps {
            steps.push(step);
        }
    }
}

impl State {
    fn facts(&self) -> Vec<Fact> {
        match &self.model {
            Model::Explore(explore) => explore.hardware.facts(),
            Model::Timed(timed) => timed.facts(),
        }
    }

    /// What is different now, but for the keys that wait.
    fn take_changes(&mut self, waits: impl Fn(&Key) -> bool) -> Vec<Change> {
        if self.steps.is_none() {
            return Vec::new();
        }
        let facts = self.facts();
        let steps = self.steps.as_mut();
        steps.map_or_else(Vec::new, |steps| steps.take_changes(facts, waits))
    }

    fn add(&mut self, changes: Vec<Change>) {
        if let Some(steps) = &mut self.steps {
            steps.add(changes);
        }
    }
}

/// One change in words.
fn describe((key, value): &Change) -> String {
    match (key, value) {
        (Key::Promise(..), Some(_)) => format!("promises {key}"),
        (Key::Promise(..), None) => format!("no longer promises {key}"),
        (Key::Frame(_), None) => format!("{key} is free"),
        (Key::Frame(_), Some(Value::Used(kind))) => {
            format!("{key} becomes {kind:?}").to_lowercase()
        }
        (Key::Entry(..), None) => format!("empties {key}"),
        (Key::Entry(..), Some(value)) => format!("writes {key}: {value}"),
        (_, None) => format!("TLB drops {key}"),
        (_, Some(value)) => format!("TLB caches {key}: {value}"),
    }
}
