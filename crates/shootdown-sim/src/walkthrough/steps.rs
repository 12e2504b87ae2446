//! [`Steps`]: hears a run.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::timed::LINE_BYTES;
use crate::walkthrough::{Change, Fact, Key, Step, Subject, Value};

/// No more steps are kept; the last ones matter most.
const MOST_KEPT: usize = 20_000;

/// What one run did, as far as it is kept.
#[derive(Clone, Default, Debug)]
pub struct Steps {
    kept: VecDeque<Step>,
    /// How many were not kept.
    left_out: usize,
    /// What held before the first that is kept.
    start: FxHashMap<Key, Value>,
    /// Whether it knows what held in the beginning.
    has_begun: bool,
    /// What the hardware and the oracle hold now.
    facts: Vec<Fact>,
    lines: Vec<(String, Value)>,
    numbers: FxHashMap<usize, usize>,
    /// What the broken promise was about.
    pub(super) subject: Option<Subject>,
}

impl Steps {
    /// Nothing has happened yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many steps there were before the first that is kept.
    pub fn left_out(&self) -> usize {
        self.left_out
    }

    /// The steps that are kept, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Step> {
        self.kept.iter()
    }

    /// What held before them.
    pub fn start(&self) -> &FxHashMap<Key, Value> {
        &self.start
    }

    /// The name of each line.
    pub fn line_names(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().map(|(name, _)| name.as_str())
    }

    /// The number of the newest step, counted from the first of the run.
    pub(super) fn newest(&self) -> u64 {
        (self.left_out + self.kept.len()).saturating_sub(1) as u64
    }

    pub(super) fn push(&mut self, step: Step) {
        if self.kept.len() == MOST_KEPT
            && let Some(oldest) = self.kept.pop_front()
        {
            self.left_out += 1;
            for (key, value) in oldest.changes {
                set(&mut self.start, key, value);
            }
        }
        self.kept.push_back(step);
    }

    /// Adds to what the newest step has changed.
    pub(super) fn add(&mut self, changes: Vec<Change>) {
        match self.kept.back_mut() {
            Some(newest) => newest.changes.extend(changes),
            None => changes
                .into_iter()
                .for_each(|(key, value)| set(&mut self.start, key, value)),
        }
    }

    /// These hold now; returns what is different, but for the keys that wait.
    pub(super) fn take_changes(
        &mut self,
        mut facts: Vec<Fact>,
        waits: impl Fn(&Key) -> bool,
    ) -> Vec<Change> {
        if facts == self.facts {
            return Vec::new();
        }
        if !self.has_begun {
            self.has_begun = true;
            self.start.extend(facts.iter().copied());
            self.facts = facts;
            return Vec::new();
        }
        facts.retain(|(key, _)| !waits(key));
        facts.extend(self.facts.iter().filter(|(key, _)| waits(key)));
        let before: FxHashMap<Key, Value> = self.facts.drain(..).collect();
        let now: FxHashMap<Key, Value> = facts.iter().copied().collect();
        let ended = before.keys().filter(|key| !now.contains_key(key));
        let mut changes: Vec<Change> = ended.map(|key| (*key, None)).collect();
        let is_new = |it: &&Fact| before.get(&it.0) != Some(&it.1);
        let new = facts.iter().filter(is_new);
        changes.extend(new.map(|(key, value)| (*key, Some(*value))));
        changes.sort_unstable_by_key(|(key, _)| *key);
        changes.dedup();
        self.facts = facts;
        changes
    }

    /// The number of the line at an address, if it has a name.
    pub(super) fn line(
        &mut self,
        address: usize,
        name: impl FnOnce() -> Option<String>,
    ) -> Option<usize> {
        let line = address / LINE_BYTES;
        if let Some(number) = self.numbers.get(&line) {
            return Some(*number);
        }
        let number = self.lines.len();
        let mut name = name()?;
        let with_name = |(known, _): &&(String, Value)| known.split(" #").next() == Some(&name);
        let others = self.lines.iter().filter(with_name).count();
        if others > 0 {
            name = format!("{name} #{}", others + 1);
        }
        self.lines.push((name, Value::Read(0)));
        self.numbers.insert(line, number);
        Some(number)
    }

    /// A CPU accesses a line; its name and who has it now, if that is somebody else than before.
    pub(super) fn accessed(
        &mut self,
        line: usize,
        cpu: usize,
        writes: bool,
    ) -> Option<(&str, Value)> {
        let (name, holders) = &mut self.lines[line];
        let bit = |cpu: usize| 1_u64.checked_shl(cpu as u32).unwrap_or(0);
        let now = match *holders {
            _ if writes => Value::Written(cpu),
            Value::Written(writer) if writer == cpu => *holders,
            Value::Written(writer) => Value::Read(bit(writer) | bit(cpu)),
            Value::Read(readers) => Value::Read(readers | bit(cpu)),
            other => other,
        };
        let before = std::mem::replace(holders, now);
        (before != now).then_some((name.as_str(), now))
    }

    pub(super) fn line_name(&self, line: usize) -> &str {
        &self.lines[line].0
    }
}

/// Applies one change.
pub(super) fn set(facts: &mut FxHashMap<Key, Value>, key: Key, value: Option<Value>) {
    match value {
        Some(value) => facts.insert(key, value),
        None => facts.remove(&key),
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::walkthrough::Sort;

    #[test]
    fn of_a_long_run_the_last_steps_are_kept_and_what_held_before_them() {
        let mut steps = Steps::new();
        for number in 0..MOST_KEPT + 3 {
            steps.push(Step {
                event: number as u64,
                at_ps: 0,
                cpu: Some(0),
                sort: Sort::Program,
                label: String::new(),
                text: String::new(),
                is_told: true,
                changes: vec![(Key::Line(number % 2), Some(Value::Written(number)))],
            });
        }
        assert_eq!((steps.iter().len(), steps.left_out()), (MOST_KEPT, 3));
        assert_eq!(steps.newest(), MOST_KEPT as u64 + 2);
        assert_eq!(steps.start()[&Key::Line(0)], Value::Written(2));
        assert_eq!(steps.start()[&Key::Line(1)], Value::Written(1));
    }

    #[test]
    fn a_line_is_modified_by_its_writer_and_shared_by_readers() {
        let mut steps = Steps::new();
        let line = steps.line(64, || Some("inbox".to_owned())).unwrap();
        assert_eq!(steps.line(127, || None), Some(line), "the same line");
        let mut who = |cpu, writes| steps.accessed(line, cpu, writes).map(|it| it.1);
        assert_eq!(who(1, true), Some(Value::Written(1)));
        assert_eq!(who(1, false), None);
        assert_eq!(who(2, false), Some(Value::Read(0b110)));
        assert_eq!(who(2, false), None);
        assert_eq!(who(2, true), Some(Value::Written(2)));
    }

    #[test]
    fn what_waits_is_different_later() {
        let mut steps = Steps::new();
        let fact = |frame| (Key::Frame(frame), Value::Table(frame));
        assert_eq!(
            steps.take_changes(vec![fact(1)], |_| false),
            [],
            "the start"
        );
        let waits = |key: &Key| *key == Key::Frame(2);
        assert_eq!(
            steps.take_changes(vec![fact(2)], waits),
            [(Key::Frame(1), None)]
        );
        let (key, value) = fact(2);
        let changes = steps.take_changes(vec![fact(2)], |_| false);
        assert_eq!(changes, [(key, Some(value))]);
    }
}
