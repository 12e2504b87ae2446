//! Running a bench: its lines go on to the console, its rows are kept.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::plan::Way;
use crate::report;

/// Where plans of calls are written to, and their lines read from.
const CALLS: &str = "/proc/shootdown/calls";

/// What a bench has found.
#[derive(Debug, Default)]
pub struct Findings {
    /// Its rows.
    pub rows: Vec<Value>,
    /// Why it did not end well, if it did not.
    pub failure: Option<String>,
}

/// Carries out a bench; `on_info` is handed what it says of itself.
pub fn carry_out(name: &str, way: &Way, on_info: &mut dyn FnMut(&Value)) -> Findings {
    let mut findings = Findings::default();
    let mut on_line = |line: &str| findings.take(line, on_info);
    let ended = match way {
        Way::Program(arguments) => program(name, arguments, &mut on_line),
        Way::Calls(plan) => calls(name, plan, &mut on_line),
    };
    findings.failure = ended.unwrap_or_else(|error| Some(error.to_string()));
    if findings.rows.is_empty() {
        findings
            .failure
            .get_or_insert("it found nothing".to_owned());
    }
    findings
}

/// Runs the program of that name; why it failed, if it did.
fn program(
    name: &str,
    arguments: &[String],
    on_line: &mut dyn FnMut(&str),
) -> io::Result<Option<String>> {
    let mut command = Command::new(format!("/bin/{name}"));
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut child = command.spawn()?;
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).lines() {
            on_line(&line?);
        }
    }
    let status = child.wait()?;
    Ok((!status.success()).then(|| format!("it ended with {status}")))
}

/// Has the kernel measure calls.
fn calls(name: &str, plan: &str, on_line: &mut dyn FnMut(&str)) -> io::Result<Option<String>> {
    let info = json!({"program": name, "plan": plan});
    on_line(&format!("@info {info}"));
    fs::write(CALLS, plan)?;
    let lines = fs::read_to_string(CALLS)?;
    lines.lines().for_each(on_line);
    Ok(None)
}

impl Findings {
    /// Passes a line on, and keeps it if it is a row.
    fn take(&mut self, line: &str, on_info: &mut dyn FnMut(&Value)) {
        report::say(line);
        let json = |text| serde_json::from_str::<Value>(text);
        match line.split_once(' ') {
            Some(("@row", text)) => match json(text) {
                Ok(row) => self.rows.push(row),
                Err(error) => self.failure = Some(format!("a row cannot be read: {error}")),
            },
            Some(("@info", text)) => {
                if let Ok(info) = json(text) {
                    on_info(&info);
                }
            }
            _ => {}
        }
    }

    /// Reads that saw what they must not, and calls that were not carried out.
    pub fn wrong(&self) -> u64 {
        let counts = |key| self.rows.iter().filter_map(move |row| row[key].as_u64());
        counts("stale").chain(counts("wrong")).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_kept_and_added_up() {
        let mut findings = Findings::default();
        let mut infos = 0;
        for line in [
            r#"@info {"program": "x"}"#,
            "@progress 1 2 x",
            r#"@row {"stale": 2}"#,
            r#"@row {"wrong": 1}"#,
        ] {
            findings.take(line, &mut |_| infos += 1);
        }
        assert_eq!((findings.rows.len(), findings.wrong(), infos), (2, 3, 1));
    }

    #[test]
    fn a_program_that_is_not_there_is_told() {
        let way = Way::Program(Vec::new());
        let findings = carry_out("no such program", &way, &mut |_| ());
        assert!(findings.failure.is_some());
    }
}
