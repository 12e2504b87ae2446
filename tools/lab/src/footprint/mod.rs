//! `lab footprint`: the instructions of a call, and what each promise of the engine adds to them.
//!
//! A file of `verify/promises` takes one promise out of the engine, in the copy of the workspace that mutants use. What is left need not be right: it
//! is counted, not run by anybody.
//!
//! * [`mechanisms`]: what each mechanism takes, and what is lost without it.

mod mechanisms;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::str::FromStr;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::bench::{grid, report};
use crate::cargo;
use crate::cli::Footprint;
use crate::failure::{Doing, Failure, Outcome};
use crate::machine::Child;
use crate::mutants::{Copy, Edit, Scratch, read_files};
use crate::place;
use crate::progress::Progress;

/// What the engine promises, and what would go if it did not.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Promise {
    /// What a host could not do without it.
    pub gives_up: String,
    /// The changes that take it out.
    pub edits: Vec<Edit>,
}

/// Instructions by operation or peer, as the example `instructions` prints them.
type Counts = BTreeMap<String, i64>;

/// What is printed of [`Counts`]: a call with a mask, as the benches make it, one without, and a flush.
const OPERATIONS: [&str; 3] = ["best", "call_one", "flush"];

/// All promises, by name.
pub fn read_promises() -> Outcome<Vec<(String, Promise)>> {
    read_files("verify/promises")
}

/// Counts the engine as it is, without each promise, and without any.
///
/// # Errors
/// An edit does not apply, or what is left does not build.
pub fn command(arguments: &Footprint) -> Outcome<ExitCode> {
    report::probe(arguments.json.as_deref(), "--json")?;
    if arguments.mechanisms {
        return mechanisms::command(arguments);
    }
    if arguments.lines {
        return mechanisms::lines(arguments);
    }
    let mut promises = read_promises()?;
    let mut progress = Progress::new();
    let scratch = Scratch::open()?;
    let copy = scratch.copy(0)?;
    let total = promises.len() as u64 + 2;
    progress.step(0, total, "as it is");
    let whole = count_edited(&copy, &[])?;
    let mut rows = vec![row("(as it is)", &whole, &Counts::new(), "")];
    let mut result = vec![json_row("", &whole, &whole, "")];
    for (done, (name, promise)) in promises.iter().enumerate() {
        progress.step(done as u64 + 1, total, name);
        let counts = count_edited(&copy, &promise.edits)?;
        rows.push(row(name, &counts, &whole, &promise.gives_up));
        result.push(json_row(name, &counts, &whole, &promise.gives_up));
    }
    progress.step(total - 1, total, "without any");
    let edits: Vec<Edit> = promises.drain(..).flat_map(|(_, it)| it.edits).collect();
    let bare = count_edited(&copy, &edits)?;
    rows.push(row("all of them", &bare, &whole, ""));
    result.push(json_row("all of them", &bare, &whole, ""));
    let result = json!({ "workload": "footprint", "commit": place::commit(), "rows": result });
    report::write(arguments.json.as_deref(), &result)?;
    drop(progress);
    let heading = ["without", "call", "call_one", "flush", "gives up"];
    let has_words = |column| [0, 4].contains(&column);
    println!("instructions of both CPUs, 64 CPUs; without a promise: how many fewer");
    println!("{}", grid(heading, rows, has_words));
    println!("a call by other kernels' algorithms:");
    for (peer, instructions) in &whole {
        if !OPERATIONS.contains(&peer.as_str()) {
            println!("{peer:>12} {instructions}");
        }
    }
    scratch.remove().map(|()| ExitCode::SUCCESS)
}

/// A row of the table: counts less those of `than`, where it has any.
fn row(name: &str, counts: &Counts, than: &Counts, gives_up: &str) -> Vec<String> {
    let cell = |operation: &str| match than.get(operation) {
        None => counts[operation].to_string(),
        Some(than) => format!("{:+}", counts[operation] - than),
    };
    let [call, call_one, flush] = OPERATIONS.map(cell);
    vec![name.to_owned(), call, call_one, flush, gives_up.to_owned()]
}

/// The same in the result that is written: counts, and by how much they differ from those of the whole engine.
fn json_row(without: &str, counts: &Counts, whole: &Counts, gives_up: &str) -> Value {
    let mut row = json!(counts);
    for operation in OPERATIONS {
        row[format!("{operation}_change")] = (counts[operation] - whole[operation]).into();
    }
    row["without"] = without.into();
    row["gives_up"] = gives_up.into();
    row
}

/// Counts the copy with these edits.
fn count_edited(copy: &Copy, edits: &[Edit]) -> Outcome<Counts> {
    copy.with_edits(edits, || count(copy))
}

/// Builds and runs the example in a copy.
fn count(copy: &Copy) -> Outcome<Counts> {
    let program = build(copy, "-p shootdown-hosted --example instructions")?;
    let child = Child::succeed(&mut Command::new(program), cargo::BUILD_DEADLINE)?;
    parse(&child.output)
}

/// Builds the one program of the copy that these arguments of cargo name.
fn build(copy: &Copy, words: &str) -> Outcome<PathBuf> {
    let mut build = cargo::command(&format!("build --release {words}"));
    build
        .current_dir(copy.tree())
        .env("CARGO_TARGET_DIR", copy.path.join("target-footprint"))
        .env("CARGO_PROFILE_RELEASE_DEBUG", "0");
    let built = cargo::executables(&mut build)?;
    let built = built.map_err(|errors| Failure::work(format!("does not build\n{errors}")))?;
    let program = built.into_iter().next();
    program.ok_or_else(|| Failure::work(format!("cargo built nothing of {words}")))
}

/// Instructions, of all that is printed of them.
fn parse(output: &str) -> Outcome<Counts> {
    let counts: Counts = numbers(output)?;
    match OPERATIONS.iter().all(|name| counts.contains_key(*name)) {
        true => Ok(counts),
        false => Err(Failure::work(format!("not counts: {output:?}"))),
    }
    .doing("read what the example instructions prints")
}

/// Lines of a name and a number, as examples print them.
fn numbers<T: FromStr>(output: &str) -> Outcome<BTreeMap<String, T>> {
    let number = |line: &str| {
        let (name, number) = line.rsplit_once(' ')?;
        Some((name.to_owned(), number.parse().ok()?))
    };
    let numbers: Option<_> = output.lines().map(number).collect();
    numbers.ok_or_else(|| Failure::work(format!("not names and numbers: {output:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each alone, and all together.
    #[test]
    fn every_promise_can_be_taken_out() {
        let promises = read_promises().unwrap();
        let mut texts = BTreeMap::new();
        for (name, promise) in &promises {
            for edit in &promise.edits {
                let path = place::root().join(&edit.file);
                let text = std::fs::read_to_string(path).unwrap();
                let changed = edit
                    .apply(&text)
                    .unwrap_or_else(|it| panic!("{name}: {it}"));
                assert_ne!(changed, text, "{name} changes nothing");
                let together = texts.entry(&edit.file).or_insert(text);
                *together = edit.apply(together).unwrap();
            }
        }
        assert!(!texts.is_empty());
    }

    #[test]
    fn counts_that_are_not_whole_are_refused() {
        assert_eq!(parse("best 3\ncall_one 2\nflush 4\n").unwrap()["flush"], 4);
        assert!(parse("best 3\nflush x\n").is_err());
    }
}
