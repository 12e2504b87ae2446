//! The results that figures are made of: run once for all that need them, and kept in part.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::DIRECTORY;
use super::figure::Figure;
use crate::cargo;
use crate::failure::{Doing, Outcome};
use crate::machine::Child;
use crate::place;
use crate::progress::Progress;

/// The longest bench takes a few minutes.
const DEADLINE: Duration = Duration::from_secs(3600);
/// How the commands of studies begin, which are examples of a crate.
const CARGO: &str = "cargo ";

/// Results by command.
pub struct Results {
    done: BTreeMap<String, Value>,
    total: usize,
    progress: Progress,
}

impl Results {
    /// None yet of those that these figures need.
    pub fn new(figures: &[(&String, &Figure)]) -> Self {
        let commands = figures.iter().map(|(_, figure)| &figure.command);
        Self {
            done: BTreeMap::new(),
            total: commands.collect::<std::collections::BTreeSet<_>>().len(),
            progress: Progress::new(),
        }
    }

    /// The result of a bench, which is run if no figure needed it before.
    ///
    /// # Errors
    /// The bench fails.
    pub fn of(&mut self, command: &str) -> Outcome<&Value> {
        if !self.done.contains_key(command) {
            let (done, total) = (self.done.len() as u64, self.total as u64);
            self.progress.begin_step(done, total, &typed(command));
            self.done.insert(command.to_owned(), result(command)?);
        }
        Ok(&self.done[command])
    }
}

/// The lab itself, with these words, as a user starts it.
pub fn lab(words: &str) -> Outcome<Command> {
    let mut lab = Command::new(std::env::current_exe().doing("find the lab itself")?);
    lab.args(words.split_whitespace());
    Ok(lab)
}

/// Waits for its end, which must be a good one.
pub fn run(lab: &mut Command) -> Outcome<()> {
    Child::succeed(lab, DEADLINE).map(drop)
}

/// What a user types for it.
pub fn typed(command: &str) -> String {
    match command.starts_with(CARGO) {
        true => command.to_owned(),
        false => format!("./lab {command}"),
    }
}

fn result(command: &str) -> Outcome<Value> {
    let file = tempfile::NamedTempFile::new().doing("make a temporary file")?;
    let mut started = match command.strip_prefix(CARGO) {
        Some(words) => cargo::command(&format!("{words} --")),
        None => lab(command)?,
    };
    run(started.arg("--json").arg(file.path()))?;
    let text = std::fs::read_to_string(file.path()).doing("read the result")?;
    serde_json::from_str(&text).doing("understand the result")
}

/// Where the record of that figure is.
pub fn path(name: &str) -> PathBuf {
    place::root().join(DIRECTORY).join(format!("{name}.json"))
}

/// What is kept of a result.
///
/// # Errors
/// Nothing is: the figure was never made.
pub fn read(name: &str) -> Outcome<Value> {
    let text = std::fs::read_to_string(path(name));
    let text = text.doing(format!(
        "read {DIRECTORY}/{name}.json; make it with  ./lab figures {name}"
    ))?;
    serde_json::from_str(&text).doing(format!("understand {DIRECTORY}/{name}.json"))
}

/// Keeps it: one row a line, so that changes can be read.
pub fn write(name: &str, record: &Value) -> Outcome<()> {
    let mut text = String::from("{");
    let empty = serde_json::Map::new();
    for (key, value) in record.as_object().unwrap_or(&empty) {
        if key != "rows" {
            text += &format!("{}:{value},\n", Value::from(key.as_str()));
        }
    }
    let rows = record["rows"].as_array().into_iter().flatten();
    let rows: Vec<String> = rows.map(Value::to_string).collect();
    text += &format!("\"rows\":[\n{}\n]}}\n", rows.join(",\n"));
    std::fs::write(path(name), text).doing(format!("write {DIRECTORY}/{name}.json"))
}
