//! What becomes of results: printed, written, kept, judged.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::plan::Plan;
use super::row::{Row, stale};
use crate::cli::Bench;
use crate::failure::{Doing, Failure, Outcome};
use crate::machine::{self, host_cores};
use crate::place;
use crate::protocol::Object;
use crate::session::Session;

/// Above this, times of two threads on two cores are no longer those of the machine alone.
const NOISE_CORES: f64 = 0.1;

/// What the rows of booted machines say, with the parameters that they were measured with: the same shape for every program.
pub fn result(
    bench: &Bench,
    session: &Session,
    plan: &Plan,
    rows: &[Row],
    program: Option<&Object>,
    others: Option<f64>,
) -> Value {
    let base = &plan.groups[0];
    let machines: Vec<&str> = plan.machines.iter().map(|kind| kind.name()).collect();
    let (axes, actors) = (&plan.axes, bench.workload.actors.name());
    let groups: Vec<Value> = plan
        .groups
        .iter()
        .map(|group| {
            json!({
                "cpus": group.cpus, "accel": group.accel.to_string(),
                "crowded": group.is_crowded, "effort": group.effort, actors: group.actors,
            })
        })
        .collect();
    json!({
        "workload": bench.workload.name,
        "machine": machines.join(","),
        "accel": base.accel.to_string(),
        "cpus": base.cpus,
        "commit": place::commit(),
        "date": place::timestamp(),
        "params": {
            "pages": axes.pages, "policies": bench.policies,
            "seed": bench.seed, "quick": bench.quick, "host_cores": host_cores(),
            "qemu": machine::qemu_version(&session.qemu),
            "linux": session.linux.as_deref().and_then(machine::linux_version),
            "busy_cores_of_others": others, "groups": groups, "program": program,
            actors: axes.actors,
        },
        "rows": rows,
    })
}

/// Prints tables. A reader that has seen enough may have gone.
pub fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
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
pub fn keep(result: &Value) -> Outcome<PathBuf> {
    let word = |key: &str| result[key].as_str().unwrap_or_default().to_owned();
    let name = format!("{}-{}.json", word("date"), word("workload"));
    let path = place::keep("runs")?.join(name);
    write(Some(&path), result)?;
    Ok(path)
}

/// Finds out before measuring whether the result can be written.
pub fn probe(path: Option<&Path>) -> Outcome<()> {
    let Some(path) = path else {
        return Ok(());
    };
    let file = OpenOptions::new().create(true).append(true).open(path);
    file.map(drop).map_err(|error| {
        Failure::input(
            format!("cannot write {}: {error}", path.display()),
            "give --json a file that can be written",
        )
    })
}

/// What stands below the tables of machines that others disturbed, and of those that were measured for a look.
pub fn remarks(others: Option<f64>, quick: Option<&str>) -> String {
    let others = others.filter(|&cores| cores > NOISE_CORES).map(|cores| {
        format!(
            "other work kept {cores:.1} host cores busy meanwhile: take figures again when the host is quiet\n"
        )
    });
    let quick = quick.map(|what| format!("--quick: {what}, for a look; take figures without it\n"));
    others.into_iter().chain(quick).collect()
}

/// Fails if an access was stale.
pub fn verdict(stale: u64) -> Outcome<()> {
    match stale {
        0 => Ok(()),
        _ => Err(Failure::work(format!(
            "{stale} stale accesses: a flush was lost or came late"
        ))),
    }
}

/// Prints, keeps, writes and judges what booted machines have found in so many seconds.
pub fn finish(
    bench: &Bench,
    tables: &str,
    result: &Value,
    rows: &[Row],
    seconds: f64,
) -> Outcome<()> {
    print(tables);
    let raw = keep(result)?;
    write(bench.json.as_deref(), result)?;
    let stale = stale(rows);
    println!(
        "stale accesses: {stale}   raw samples: {}   took {seconds:.0} s",
        raw.display()
    );
    verdict(stale)
}
