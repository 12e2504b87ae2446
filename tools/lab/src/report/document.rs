//! [`Document`]: what one file of results holds.

use std::path::Path;

use serde_json::Value;

use super::survey::{BENCHES, Survey};
use crate::bench::Row;
use crate::failure::{Failure, Outcome};
use crate::protocol::Object;

/// What to give instead of a file that cannot be used.
const REMEDY: &str = "give a file that `./lab bench --json FILE` or `./lab iso --read` wrote";
/// What the whole of a result says for each of its rows.
const INHERITED: [&str; 2] = ["machine", "accel"];

/// What a file holds.
#[derive(Debug)]
pub enum Content {
    /// The result of one bench.
    One(Document),
    /// Those of several.
    Several(Survey),
}

/// A result that a bench wrote.
#[derive(Debug)]
pub struct Document {
    /// The name of its file.
    pub name: String,
    /// What was measured.
    pub workload: String,
    /// Where, by which commit and when, as far as it says so.
    head: Object,
    /// With what.
    pub params: Value,
    /// What came of it.
    pub rows: Vec<Row>,
}

impl Content {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, or holds no result of a bench.
    pub fn read(path: &Path) -> Outcome<Self> {
        let shown = path.display().to_string();
        let text = std::fs::read(path)
            .map_err(|error| Failure::input(format!("cannot read {shown}: {error}"), REMEDY))?;
        let name = path.file_name().map(|name| name.to_string_lossy().into());
        Self::parse(name.unwrap_or_default(), &text)
            .map_err(|cause| Failure::input(format!("{shown} {cause}"), REMEDY))
    }

    /// Reads a text; otherwise says what is wrong with it, as a sentence without its subject.
    pub fn parse(name: String, text: &[u8]) -> Result<Self, String> {
        if text.trim_ascii().is_empty() {
            return Err("is empty".into());
        }
        let result = serde_json::from_slice(text);
        match result.map_err(|error| format!("is not JSON ({error})"))? {
            Value::Object(head) if head.contains_key(BENCHES) => {
                Survey::of(&name, head).map(Self::Several)
            }
            result => Document::of(name, result).map(Self::One),
        }
    }
}

impl Document {
    /// Reads a file that holds one result.
    ///
    /// # Errors
    /// It cannot be read, or holds no result of a bench, or several.
    pub fn read(path: &Path) -> Outcome<Self> {
        match Content::read(path)? {
            Content::One(document) => Ok(document),
            Content::Several(_) => Err(Failure::input(
                format!("{} holds the results of several benches", path.display()),
                "`./lab report FILE` shows it; only results of one bench can be compared",
            )),
        }
    }

    /// Takes a result; otherwise says what is wrong with it, likewise.
    pub fn of(name: String, result: Value) -> Result<Self, String> {
        let Value::Object(mut head) = result else {
            return Err("is no result of a bench: it holds no object".into());
        };
        let workload = head.get("workload").and_then(Value::as_str);
        let workload = workload.ok_or("is no result of a bench: it names no workload")?;
        let workload = workload.to_owned();
        let rows = rows(&mut head);
        let is_row = |row: &Row| row.0.keys().any(|key| key == "policy" || key == "peer");
        match rows.iter().find(|row| !is_row(row)) {
            None if rows.is_empty() => Err("has no rows".into()),
            None => Ok(Self {
                name,
                workload,
                params: head.remove("params").unwrap_or_default(),
                head,
                rows,
            }),
            Some(_) => Err("has a row without a policy and without a peer".into()),
        }
    }

    /// A word of the whole result; `unknown` where it is silent.
    pub fn word(&self, key: &str) -> String {
        match self.head.get(key) {
            Some(Value::String(word)) => word.clone(),
            Some(Value::Number(number)) => number.to_string(),
            _ => "unknown".into(),
        }
    }

    /// When it was measured, for people.
    pub fn date(&self) -> String {
        match self.word("date") {
            date if date == "unknown" && self.is_simulated() => "no date: virtual time".into(),
            date => readable(&date).unwrap_or(date),
        }
    }

    /// Whether no row was measured: nothing disturbs a simulation.
    pub fn is_simulated(&self) -> bool {
        self.rows.iter().all(is_simulated)
    }

    /// All parameters with what the head says beside them.
    pub fn settings(&self) -> Value {
        let mut all = match &self.params {
            Value::Object(params) => params.clone(),
            other => Object::from_iter([("params".to_owned(), other.clone())]),
        };
        for (key, value) in &self.head {
            if !["workload", "commit", "date"].contains(&key.as_str()) {
                all.insert(key.clone(), value.clone());
            }
        }
        Value::Object(all)
    }
}

/// Whether a row has no noise.
pub fn is_simulated(row: &Row) -> bool {
    row.text("machine") == "sim"
}

/// Takes the rows out of a result, with what is said of all of them; the rest of groups stays.
fn rows(head: &mut Object) -> Vec<Row> {
    let whole = head.clone();
    let mut rows = take(head, &[&whole]);
    if let Some(Value::Array(groups)) = head.get_mut("groups") {
        let groups = groups.iter_mut().filter_map(Value::as_object_mut);
        for group in groups {
            let own = group.clone();
            rows.extend(take(group, &[&own, &whole]));
        }
    }
    rows
}

/// The rows of one list. What they lack they get from the first of these that has it.
fn take(from: &mut Object, above: &[&Object]) -> Vec<Row> {
    let Some(Value::Array(rows)) = from.remove("rows") else {
        return Vec::new();
    };
    let mut rows: Vec<Row> = rows.into_iter().map(Row::of).collect();
    for row in &mut rows {
        for key in INHERITED {
            let said = above.iter().find_map(|object| object.get(key));
            if let (false, Some(value)) = (row.0.contains_key(key), said) {
                row.set(key, value.clone());
            }
        }
    }
    rows
}

/// `20260131T120000Z` as people write it.
fn readable(stamp: &str) -> Option<String> {
    let digits = |range| {
        let part: &str = stamp.get(range)?;
        part.bytes().all(|b| b.is_ascii_digit()).then_some(part)
    };
    let [year, month, day] = [digits(0..4)?, digits(4..6)?, digits(6..8)?];
    let [hour, minute, second] = [digits(9..11)?, digits(11..13)?, digits(13..15)?];
    (stamp.len() == 16).then(|| format!("{year}-{month}-{day} {hour}:{minute}:{second} UTC"))
}
