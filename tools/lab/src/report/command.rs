//! The command: files in, one page out.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::axes::Layout;
use super::brief::brief;
use super::compare::Comparison;
use super::document::{Content, Document};
use super::{page, summary::headline};
use crate::cli::Report;
use crate::failure::{Failure, Outcome};

/// Reads one result or two, and writes the page.
///
/// # Errors
/// A file is no result, two results have nothing in common, or the page cannot be written (exit code 2).
pub fn command(report: &Report) -> Outcome<()> {
    let out = destination(report)?;
    let page = match &report.other {
        None => match Content::read(&report.file)? {
            Content::One(document) => page::of_one(&document)?,
            Content::Several(survey) => page::of_survey(&survey)?,
        },
        Some(other) => {
            let (first, second) = (Document::read(&report.file)?, Document::read(other)?);
            page::of_two(&Comparison::new(&first, &second)?)?
        }
    };
    std::fs::write(&out, page).map_err(|error| {
        Failure::input(
            format!("cannot write {}: {error}", out.display()),
            "give -o a file that can be written",
        )
    })?;
    println!("report: {}", out.display());
    Ok(())
}

/// The main result of what a bench has found, in one sentence and one small table; none where it has no rows.
pub fn summary(result: &Value) -> Option<String> {
    let document = Document::of(String::new(), result.clone()).ok()?;
    let layout = Layout::new(&document.rows);
    let table = brief(&layout).unwrap_or_default();
    Some(format!("{}\n\n{table}", headline(&layout)))
}

/// Where the page goes: never over what it is made from.
fn destination(report: &Report) -> Outcome<PathBuf> {
    let out = match &report.out {
        Some(out) => out.clone(),
        None => report.file.with_extension("html"),
    };
    let is_source = |path: &Path| match (path.canonicalize(), out.canonicalize()) {
        (Ok(path), Ok(out)) => path == out,
        _ => false,
    };
    if is_source(&report.file) || report.other.as_deref().is_some_and(is_source) {
        return Err(Failure::input(
            format!("the page would replace {}", out.display()),
            "give -o another file",
        ));
    }
    Ok(out)
}
