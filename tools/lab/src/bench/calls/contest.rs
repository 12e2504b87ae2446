//! [`Contest`]: what describes a contest, and its course on the simulated machine.

use std::path::Path;

use serde_json::{Value, json};
use shootdown_sim::workload::MAX_CPUS;

use super::plot::Picture;
use crate::bench::row::Row;
use crate::bench::sim::Setup;
use crate::bench::{live, report};
use crate::cli_calls::{Calls, CallsBench, CallsMachine};
use crate::failure::{Doing, Failure, Outcome};
use crate::place;

/// Calls of the engine and of other kernels' algorithms.
#[derive(Debug)]
pub struct Contest {
    /// Of the command line, of plans, and of results.
    pub name: &'static str,
    /// For the help.
    pub about: &'static str,
    /// Without a choice, on which simulated machines.
    pub presets: &'static [&'static str],
    /// Runs it on simulated machines.
    pub simulate: fn(&Calls, &[Setup]) -> Outcome<Findings>,
    /// Without a choice, how long functions take where CPUs are real.
    pub functions_ns: &'static [u64],
    /// Whether a round as a whole says something.
    pub has_rounds: bool,
}

/// What a contest makes of its rows.
pub struct Findings {
    /// The tables.
    pub tables: String,
    /// The rows of the result.
    pub rows: Vec<Row>,
    /// What they were measured with.
    pub params: Value,
    /// The tables as pictures.
    pub pictures: Vec<Picture>,
}

/// Measures, prints the tables and writes what else is wanted.
///
/// # Errors
/// The options make no sense (exit code 2); a file cannot be written; a call was not carried out as it should.
pub fn command(bench: &CallsBench) -> Outcome<()> {
    let CallsBench { contest, calls } = bench;
    match calls.machine {
        None | Some(CallsMachine::Sim) => simulate(contest, calls),
        Some(kind) => {
            if calls.preset.is_some() || !calls.set.is_empty() || calls.plot.is_some() {
                return Err(Failure::input(
                    "--preset, --set and --plot are about the simulated machine",
                    "use them with --machine sim",
                ));
            }
            live::command(contest, calls, kind)
        }
    }
}

fn simulate(contest: &Contest, calls: &Calls) -> Outcome<()> {
    let emulator = &calls.emulator;
    let has_emulator = emulator.qemu.is_some() || emulator.kernel.is_some();
    if calls.rest != "busy" || calls.counts_instructions() || has_emulator {
        return Err(Failure::input(
            "--rest, --accel icount, --qemu and --kernel are about machines that really run",
            "use them with --machine qemu or hosted",
        ));
    }
    report::probe(calls.json.as_deref())?;
    let preset = calls.preset.as_deref();
    let presets = preset.map_or(contest.presets.to_vec(), |name| vec![name]);
    let setups = presets
        .into_iter()
        .map(|preset| Setup::named(preset, None, &calls.set))
        .collect::<Outcome<Vec<_>>>()?;
    let findings = (contest.simulate)(calls, &setups)?;
    let mut text = findings.tables;
    for setup in &setups {
        text.push_str(&setup.render());
    }
    text.push_str(&format!(
        "seed {}; --set NAME=VALUE changes a figure\n",
        calls.seed
    ));
    report::print(&text);
    let result = json!({
        "workload": contest.name,
        "machine": CallsMachine::Sim.name(),
        "accel": "virtual time",
        "commit": place::commit(),
        "params": findings.params,
        "rows": findings.rows,
    });
    report::write(calls.json.as_deref(), &result)?;
    match &calls.plot {
        Some(directory) => draw(directory, &findings.pictures),
        None => Ok(()),
    }
}

/// How many CPUs the caller asks for.
///
/// # Errors
/// Too few for a call, or more than can be simulated.
pub fn machine_size(cpus: i64) -> Outcome<usize> {
    let size = usize::try_from(cpus).ok();
    size.filter(|cpus| (2..=MAX_CPUS).contains(cpus))
        .ok_or_else(|| {
            Failure::input(
                format!("calls on {cpus} CPUs cannot be simulated"),
                format!("--cpus takes 2 to {MAX_CPUS} here"),
            )
        })
}

fn draw(directory: &Path, pictures: &[Picture]) -> Outcome<()> {
    std::fs::create_dir_all(directory).map_err(|error| {
        Failure::input(
            format!("cannot make the directory {}: {error}", directory.display()),
            "give --plot a directory that can be written",
        )
    })?;
    for picture in pictures {
        let path = directory.join(&picture.name);
        std::fs::write(&path, picture.svg()?)
            .doing(format!("write the picture {}", path.display()))?;
        println!("picture: {}", path.display());
    }
    Ok(())
}
