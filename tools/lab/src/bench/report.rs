//! What becomes of results: printed, written, kept, judged.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::plan::View;
use super::row::Row;
use crate::cli::Bench;
use crate::colours;
use crate::failure::{Doing, Failure, Outcome};
use crate::place;

/// Above this, times of two threads on two cores are no longer those of the machine alone.
const NOISE_CORES: f64 = 0.1;
/// Above this, two machines that ran one after the other did not have the same host.
const BUSY_CORES: f64 = 0.5;

/// Says the main result in one sentence and one small table, if there is one.
pub type Summary = fn(&Value) -> Option<String>;

/// What a bench prints, from above.
#[derive(Debug, Default)]
pub struct Printed<'a> {
    /// The main result.
    pub summary: Option<String>,
    /// What makes it worth less.
    pub remarks: &'a str,
    /// All tables, which are printed where there is no main result, too.
    pub tables: &'a str,
    /// Whether they are wanted beside it.
    pub shows_tables: bool,
    /// The rest.
    pub rest: &'a str,
}

/// Prints it; what is kept has been written before, for the reader may go.
pub fn print(printed: Printed<'_>) {
    let tables = match &printed.summary {
        Some(_) if !printed.shows_tables => {
            "--tables shows all tables; --json FILE writes all figures\n"
        }
        _ => printed.tables,
    };
    let summary = printed.summary.unwrap_or_default();
    let text = summary + printed.remarks + tables + printed.rest;
    let _ = std::io::stdout().write_all(colours::tables(&text).as_bytes());
}

/// Writes the result where the caller wants it, if he does.
pub fn write(path: Option<&Path>, result: &Value) -> Outcome<()> {
    let Some(path) = path else {
        return Ok(());
    };
    std::fs::write(path, result.to_string() + "\n")
        .doing(format!("write the result to {}", path.display()))
}

/// Keeps a dated result with its raw samples; returns where.
fn keep(result: &Value) -> Outcome<PathBuf> {
    let word = |key: &str| result[key].as_str().unwrap_or_default().to_owned();
    let name = format!("{}-{}.json", word("date"), word("workload"));
    let path = place::keep("runs")?.join(name);
    write(Some(&path), result)?;
    Ok(path)
}

/// Finds out before measuring whether the result can be written.
pub fn probe(path: Option<&Path>, option: &str) -> Outcome<()> {
    let Some(path) = path else {
        return Ok(());
    };
    match OpenOptions::new().write(true).create_new(true).open(path) {
        // An empty file would look like a result if the measurement ends early.
        Ok(_) => std::fs::remove_file(path).doing(format!("remove {}", path.display())),
        Err(_) => OpenOptions::new()
            .append(true)
            .open(path)
            .map(drop)
            .map_err(|error| unwritable(path, &error, option)),
    }
}

/// The caller has named a file that cannot be written.
pub fn unwritable(path: &Path, error: &std::io::Error, option: &str) -> Failure {
    Failure::input(
        format!("cannot write {}: {error}", path.display()),
        format!("give {option} a file that can be written"),
    )
}

/// Whether others kept the host too busy to compare what ran at different times.
pub fn is_busy(others: Option<f64>) -> bool {
    others.is_some_and(|cores| cores > BUSY_CORES)
}

/// What is said of results that others disturbed, and of those that were measured for a look: below the headline, for it hangs on that too.
pub fn remarks(others: Option<f64>, quick: Option<&str>) -> String {
    let others = others.filter(|&cores| cores > NOISE_CORES).map(|cores| {
        format!(
            "other work kept {cores:.1} host cores busy meanwhile: times and ratios scatter; take figures again when the host is quiet\n"
        )
    });
    let quick = quick.map(|what| format!("--quick: {what}, for a look; take figures without it\n"));
    others.into_iter().chain(quick).collect()
}

/// What is said where the host was too small for a row.
pub fn crowded<'a>(rows: impl IntoIterator<Item = &'a Row>) -> &'static str {
    match rows.into_iter().any(Row::is_crowded) {
        true => {
            "* more busy virtual CPUs than host cores: times show the host's scheduler, too; counts hold on any host\n"
        }
        false => "",
    }
}

/// Says that accesses were stale, if there were any.
pub fn verdict(stale: u64) -> Option<String> {
    (stale > 0).then(|| format!("{stale} stale accesses: a flush was lost or came late"))
}

/// Prints, keeps, writes and judges what machines with real CPUs have found.
pub fn finish(view: &View, summary: Summary, bench: &Bench) -> Outcome<()> {
    let raw = keep(&view.result)?;
    write(bench.result(), &view.result)?;
    let [before, behind] = &view.closing;
    let rest = format!("{before}{}{behind}\n", raw.display());
    print(Printed {
        summary: summary(&view.result),
        remarks: &view.remarks,
        tables: &view.tables,
        shows_tables: bench.shows_tables(),
        rest: &rest,
    });
    judge(view.failure.as_ref())
}

/// Fails if something was wrong.
pub fn judge(failure: Option<&String>) -> Outcome<()> {
    failure.map_or(Ok(()), |failure| Err(Failure::work(failure)))
}
