//! Which steps led to a broken promise.

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::machine::{Failure, FailureKind};
use crate::walkthrough::steps::set;
use crate::walkthrough::{Change, Key, Steps, Subject, Value};

/// One of them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Cause {
    /// Its number among those that are shown.
    pub step: usize,
    /// What it has to do with it.
    pub why: String,
}

/// A broken promise.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Violation {
    /// The step where it broke, among those that are shown.
    pub step: usize,
    /// The CPU that noticed.
    pub cpu: usize,
    /// Its kind.
    pub kind: String,
    /// What had been promised.
    pub promise: &'static str,
    /// What happened instead.
    pub message: String,
    /// What led to it, in order.
    pub causes: Vec<Cause>,
}

/// What the oracle found, and where.
pub(super) fn violation(failure: &Failure, steps: &Steps) -> Violation {
    let mut causes = Search::through(steps, failure.cpu).causes();
    causes.sort_by_key(|cause| cause.step);
    Violation {
        step: steps.iter().len().saturating_sub(1),
        cpu: failure.cpu,
        kind: failure.kind.to_string(),
        promise: promise_of(failure.kind),
        message: failure.message.clone(),
        causes,
    }
}

/// What the engine had promised.
fn promise_of(kind: FailureKind) -> &'static str {
    match kind {
        FailureKind::StaleAccess => {
            "once a flush has been waited for, no access uses what it dropped"
        }
        FailureKind::FreedTable => {
            "once a flush with freed tables has been waited for, no CPU walks them"
        }
        FailureKind::EarlyReturn => "a wait ends when what it waits for has happened",
        FailureKind::NoProgress | FailureKind::OutOfEvents => "every wait ends",
        FailureKind::WrongCall => "a function runs once where its call says, with its argument",
        FailureKind::DataRace => {
            "what a protocol hands over is accessed by one CPU after the other"
        }
        FailureKind::LostStore => "every store is in the log of what was written",
        FailureKind::Unmapped => "all that is lent to other CPUs is mapped under every root",
        FailureKind::Panic => "nothing panics",
        FailureKind::Other => "a promise of the virtual kernel",
    }
}

/// Goes through the changes once and keeps the last that has to do with each question.
struct Search {
    subject: Option<Subject>,
    cpu: usize,
    facts: FxHashMap<Key, Value>,
    /// Where each entry of a TLB that leads to the frame was cached.
    cached: FxHashMap<Key, usize>,
    unlinked: Option<(usize, String)>,
    withdrawn: Option<(usize, String)>,
    reused: Option<(usize, String)>,
}

impl Search {
    fn through(steps: &Steps, cpu: usize) -> Self {
        let mut search = Self {
            subject: steps.subject,
            cpu,
            facts: steps.start().clone(),
            cached: FxHashMap::default(),
            unlinked: None,
            withdrawn: None,
            reused: None,
        };
        for (index, step) in steps.iter().enumerate() {
            for change in &step.changes {
                search.look(index, change);
            }
        }
        search
    }

    fn frame(&self) -> Option<u16> {
        self.subject.map(|subject| match subject {
            Subject::Page { frame, .. } | Subject::Table(frame) => frame,
        })
    }

    fn look(&mut self, step: usize, change: &Change) {
        let (key, value) = *change;
        let before = self.facts.get(&key).copied();
        set(&mut self.facts, key, value);
        let Some(frame) = self.frame() else {
            return;
        };
        let leads = |value: Option<Value>| value.and_then(Value::frame) == Some(frame.into());
        match key {
            Key::Entry(..) if leads(before) => {
                let now = value.map_or_else(|| "empty".to_owned(), |value| value.to_string());
                self.unlinked = Some((
                    step,
                    format!("{key} led to frame {frame}, and is {now} now"),
                ));
            }
            Key::Promise(_, page, of) if of == frame && self.is_about(page) => {
                let why = match value {
                    None => format!("{key} is promised no longer: the flush is taken to be over"),
                    Some(_) => format!("{key} is promised otherwise from here on"),
                };
                self.withdrawn = Some((step, why));
            }
            Key::Frame(of) if of == frame => {
                let use_now = value.map_or_else(|| "free".to_owned(), |value| value.to_string());
                self.reused = Some((step, format!("{key} is {use_now} from here on")));
            }
            _ if key.cpu().is_some() && leads(value) => {
                self.cached.insert(key, step);
            }
            _ if key.cpu().is_some() => {
                self.cached.remove(&key);
            }
            _ => {}
        }
    }

    fn is_about(&self, page: usize) -> bool {
        !matches!(self.subject, Some(Subject::Page { page: about, .. }) if about != page)
    }

    /// Whether a TLB's entry may be the one that was used: of this CPU where a program did, of any where a walk did.
    fn is_used(&self, key: Key) -> bool {
        match (self.subject, key) {
            (Some(Subject::Page { page, .. }), Key::Leaf(cpu, of, _)) => {
                cpu == self.cpu && of == page as u64
            }
            (Some(Subject::Table(_)), Key::Leaf(..)) => false,
            (Some(Subject::Table(_)), _) => true,
            _ => false,
        }
    }

    fn causes(&self) -> Vec<Cause> {
        let changes = [&self.unlinked, &self.withdrawn, &self.reused];
        let changes = changes.into_iter().flatten();
        let changes = changes.map(|(step, why)| Cause {
            step: *step,
            why: why.clone(),
        });
        let cached = self.cached.iter().filter(|(key, _)| self.is_used(**key));
        let cached = cached.map(|(key, step)| Cause {
            step: *step,
            why: format!(
                "the TLB of cpu{} has {key} from here on, and keeps it",
                key.cpu().unwrap_or(self.cpu)
            ),
        });
        changes.chain(cached).collect()
    }
}
