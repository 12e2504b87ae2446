//! The course of a survey: its benches one after the other, their tables as they come, and the page with all of them.

use std::process::ExitCode;

use serde_json::{Value, json};

use super::facts::Facts;
use super::options::{HELP, Options};
use super::plan::{self, Bench};
use super::run::{self, Findings};
use super::table;
use crate::{args, program, report};

/// The program.
pub fn main() -> ExitCode {
    let parsed = Options::parse(std::env::args_os().skip(1));
    let set_up = |options: Options| {
        let facts = Facts::of_this_machine(args::cpus()?.len());
        Ok((options, facts))
    };
    program::run("survey", HELP, parsed, set_up, |(options, facts)| {
        survey(&options, &facts)
    })
}

fn survey(options: &Options, facts: &Facts) -> ExitCode {
    report::info(&facts.info(options));
    report::say(&facts.headline());
    let benches = plan::benches(options.effort, facts.cpus);
    let mut all: Vec<(&Bench, Findings)> = Vec::new();
    for (index, bench) in benches.iter().enumerate() {
        let (number, count) = (index + 1, benches.len());
        report::say(&format!("{number} of {count}: {} ...", bench.name));
        let findings = run::carry_out(bench.name, &bench.way, &mut tell_time);
        show(bench, &findings);
        all.push((bench, findings));
    }
    let end = Totals::of(&all);
    report::say(&facts.headline());
    for (bench, findings) in &all {
        show(bench, findings);
    }
    report::info(&end.info());
    report::say(&table::cut(&end.verdict()));
    match end.is_well() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// Says how long a program takes, as it says itself.
fn tell_time(info: &Value) {
    if let Some(ms) = info["expected_ms"].as_u64() {
        report::say(&format!("        about {} s", ms.div_ceil(1000)));
    }
}

fn show(bench: &Bench, findings: &Findings) {
    let table = (bench.page)(&findings.rows).to_string();
    report::say(table.trim_end());
    if let Some(failure) = &findings.failure {
        report::say(&table::cut(&format!("{} FAILED: {failure}", bench.name)));
    }
}

/// What the survey comes to.
#[derive(Debug, Default, PartialEq, Eq)]
struct Totals {
    rows: usize,
    wrong: u64,
    failed: Vec<&'static str>,
}

impl Totals {
    fn of(all: &[(&Bench, Findings)]) -> Self {
        let mut totals = Self::default();
        for (bench, findings) in all {
            totals.rows += findings.rows.len();
            totals.wrong += findings.wrong();
            totals
                .failed
                .extend(findings.failure.as_ref().map(|_| bench.name));
        }
        totals
    }

    fn is_well(&self) -> bool {
        self.wrong == 0 && self.failed.is_empty()
    }

    fn info(&self) -> Value {
        json!({
            "program": "survey", "is_done": true, "rows": self.rows, "wrong": self.wrong, "failed": self.failed,
        })
    }

    fn verdict(&self) -> String {
        let (rows, wrong) = (self.rows, self.wrong);
        let verdict = match (wrong, &self.failed[..]) {
            (0, []) => "all right".to_owned(),
            (0, failed) => format!("FAILED: {}", failed.join(", ")),
            (wrong, _) => format!("{wrong} STALE OR WRONG"),
        };
        format!("done: {rows} rows, {verdict}. The machine may be switched off.")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verdict_is_one_line_of_the_screen() {
        let failed = vec!["madvise", "pingpong", "preemptoff", "shoot"];
        for (wrong, failed, words) in [
            (0, vec![], "all right. The machine may be switched off."),
            (0, failed, "FAILED: madvise, "),
            (3, vec![], "3 STALE"),
        ] {
            let rows = 12;
            let totals = Totals {
                rows,
                wrong,
                failed,
            };
            let line = totals.verdict();
            assert!(line.contains(words), "{line}");
            assert_eq!(totals.is_well(), words.starts_with("all"));
        }
    }
}
