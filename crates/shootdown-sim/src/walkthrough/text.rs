//! [`Places`]: where facts are, and how they are written.

use rustc_hash::FxHashMap;

use crate::walkthrough::{Change, Key, Value};

/// The number of a place, the fact's name there, and what it becomes; nothing if it ends.
pub type ChangeText = (usize, String, Option<String>);

/// What stands behind the TLBs.
const SHARED: [&str; 4] = [
    "page tables",
    "promises (the oracle's)",
    "frames",
    "cache lines",
];

/// The TLB of each CPU, then what all share.
#[derive(Debug)]
pub(super) struct Places {
    cpus: Vec<String>,
    lines: Vec<String>,
}

impl Places {
    pub(super) fn new<'a>(cpus: &[String], lines: impl Iterator<Item = &'a str>) -> Self {
        Self {
            cpus: cpus.to_vec(),
            lines: lines.map(str::to_owned).collect(),
        }
    }

    pub(super) fn names(&self) -> Vec<String> {
        let tlbs = self.cpus.iter().map(|cpu| format!("TLB of {cpu}"));
        tlbs.chain(SHARED.map(str::to_owned)).collect()
    }

    pub(super) fn change(&self, (key, value): &Change) -> ChangeText {
        let name = match *key {
            Key::Line(line) => self.lines[line].clone(),
            _ => key.to_string(),
        };
        let value = value.as_ref().map(|value| text_of(key, value));
        (self.place(*key), name, value)
    }

    /// All facts, in the order of their keys.
    pub(super) fn all(&self, facts: &FxHashMap<Key, Value>) -> Vec<ChangeText> {
        let mut facts: Vec<Change> = facts.iter().map(|it| (*it.0, Some(*it.1))).collect();
        facts.sort_unstable_by_key(|(key, _)| *key);
        facts.iter().map(|it| self.change(it)).collect()
    }

    fn place(&self, key: Key) -> usize {
        let shared = match key {
            Key::Entry(..) => 0,
            Key::Promise(..) => 1,
            Key::Frame(_) => 2,
            _ => 3,
        };
        key.cpu().unwrap_or(self.cpus.len() + shared)
    }
}

/// A promise's key says the frame.
fn text_of(key: &Key, value: &Value) -> String {
    match (key, value) {
        (Key::Promise(..), Value::Frame { writable: true, .. }) => "writable".to_owned(),
        (Key::Promise(..), Value::Frame { .. }) => "read-only".to_owned(),
        _ => value.to_string(),
    }
}
