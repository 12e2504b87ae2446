//! Checks of the lab itself, started as a user starts it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::fleet::Fleet;
use super::tally::Tally;
use crate::cargo;
use crate::cli::Test;
use crate::failure::{Doing, Failure, Outcome};
use crate::figures;
use crate::machine::{Child, host_cores};

const DEADLINE: Duration = Duration::from_secs(180);
/// Three policies, three numbers of threads, three numbers of pages.
const BENCH_ROWS: usize = 27;
const RESULT_KEYS: &str = "workload machine accel cpus commit params rows";
const ROW_KEYS: &str = "policy threads pages median_ns p99_ns ratio ipis_per_op stale samples";

/// Runs them all.
pub fn check(test: &Test, fleet: &Fleet, tally: &mut Tally) {
    tally.check("lab: run hands over output and exit status", || run(fleet));
    let name = "lab: a machine that does not end shows its processors";
    tally.check(name, || endless(fleet));
    let name = "lab: figures of the documents";
    match test.fast {
        true => tally.skip(name, "left out by --fast"),
        false => tally.check(name, || {
            figures::check_quick_records().map(|()| String::new())
        }),
    }
    tally.check("lab: bench shoot on real cores", || cores(fleet));
    let name = "lab: bench --quick prints every row and writes JSON";
    match test.fast {
        true => tally.skip(name, "left out by --fast"),
        false => tally.check(name, || bench(fleet)),
    }
}

fn lab(fleet: &Fleet, arguments: &[&str]) -> Outcome<Child> {
    let mut command = Command::new(std::env::current_exe().doing("find the lab itself")?);
    command.args(arguments).env("SHOOTDOWN_QEMU", fleet.qemu());
    Child::run(&mut command, DEADLINE, &mut |_| ()).doing("start the lab")
}

fn path_of(programs: &BTreeMap<String, PathBuf>, name: &str) -> Outcome<String> {
    let path = programs.get(name);
    let path = path.ok_or_else(|| Failure::work(format!("no program {name}")))?;
    Ok(path.to_string_lossy().into())
}

fn run(fleet: &Fleet) -> Outcome<String> {
    let programs = cargo::build_user()?;
    for (name, status, output, errors) in [
        ("hello", 0, "added up to", ""),
        ("badcalls", 0, "badcalls: OK", ""),
        ("wild", 139, "wild: reading", "SIGSEGV"),
    ] {
        let child = lab(fleet, &["run", &path_of(&programs, name)?])?;
        let is_as_due = child.status.and_then(|it| it.code()) == Some(status)
            && child.output.contains(output)
            && child.errors.contains(errors)
            && !child.output.contains("] c0 ");
        if !is_as_due {
            return Err(Failure::work(format!(
                "{name}: status {status} was due, but {child:?}"
            )));
        }
    }
    Ok(String::new())
}

fn endless(fleet: &Fleet) -> Outcome<String> {
    let program = path_of(&cargo::build_user()?, "tlbtorture")?;
    let child = lab(
        fleet,
        &["run", "--deadline", "10", &program, "--seconds=60"],
    )?;
    let kept = child
        .errors
        .lines()
        .find_map(|line| line.split_once("console kept in "));
    let (_, kept) = kept.ok_or_else(|| Failure::work(format!("no console is kept: {child:?}")))?;
    let console = std::fs::read_to_string(kept).doing("read the console")?;
    let is_there = |part| child.errors.contains(part) || console.contains(part);
    match ["still running", "CPU#1", "RIP="].into_iter().all(is_there) {
        true => Ok(String::new()),
        false => Err(Failure::work(format!("no registers: {child:?}; {console}"))),
    }
}

/// What `bench` writes with these words.
fn bench_result(fleet: &Fleet, words: &[&str]) -> Outcome<Value> {
    let file = tempfile::NamedTempFile::new().doing("make a temporary file")?;
    let path = file.path().to_string_lossy();
    let words = [&["bench"], words, &["--json", &path]].concat();
    let Child { status, errors, .. } = lab(fleet, &words)?;
    if !status.is_some_and(|status| status.success()) {
        return Err(Failure::work(format!("status {status:?}: {errors}")));
    }
    let text = std::fs::read_to_string(file.path()).doing("read the result")?;
    serde_json::from_str(&text).doing("read the result as JSON")
}

/// Every contender does every operation that the host's cores can do, at the placements that the host gives.
fn cores(fleet: &Fleet) -> Outcome<String> {
    if !cfg!(target_arch = "x86_64") || host_cores() < 2 {
        return Ok("left out: not two cores of x86-64".into());
    }
    let words = ["shoot", "--machine", "cores", "--quick", "--calls", "200"];
    let result = bench_result(fleet, &words)?;
    let rows = result["rows"].as_array().map_or(&[][..], Vec::as_slice);
    let count = |key: &str| {
        let words = rows.iter().map(|row| row[key].to_string());
        words.collect::<BTreeSet<String>>().len()
    };
    let shapes = ["placement", "interrupt_cycles", "operation", "peer"].map(count);
    let [placements, ..] = shapes;
    match rows.len() * 2 >= shapes.iter().product::<usize>() && placements > 0 {
        true => Ok(format!("{} rows", rows.len())),
        false => Err(Failure::work(format!("{} rows of {shapes:?}", rows.len()))),
    }
}

fn bench(fleet: &Fleet) -> Outcome<String> {
    let result = bench_result(fleet, &["--quick", "--machine", "qemu"])?;
    let lacks = |value: &Value, keys: &'static str| {
        let mut keys = keys.split(' ');
        keys.find(|key| value.get(key).is_none())
    };
    if let Some(key) = lacks(&result, RESULT_KEYS) {
        return Err(Failure::work(format!("the result lacks {key:?}")));
    }
    let rows = result["rows"].as_array().map_or(&[][..], Vec::as_slice);
    let is_whole = |row: &&Value| lacks(row, ROW_KEYS).is_none() && row["stale"] == 0;
    match rows.iter().find(|row| !is_whole(row)) {
        Some(row) => Err(Failure::work(format!(
            "a row lacks something or saw stale accesses: {row}"
        ))),
        None if rows.len() != BENCH_ROWS => Err(Failure::work(format!(
            "{} rows instead of {BENCH_ROWS}",
            rows.len()
        ))),
        None => Ok(format!("{BENCH_ROWS} rows, no stale access")),
    }
}
