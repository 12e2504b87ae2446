//! The course of `bench selected` and `bench shoot`.

use std::io::Write;
use std::path::Path;

use serde_json::{Value, json};
use shootdown_sim::workload::{MAX_CPUS, Peer, bytes_of};

use super::plot::{self, Picture};
use super::{selected, selected_table, shoot, shoot_table, spared_table};
use crate::bench::live;
use crate::bench::report::Report;
use crate::bench::sim::Setup;
use crate::cli_calls::{Calls, CallsBench, CallsMachine};
use crate::failure::{Doing, Failure, Outcome};
use crate::place;

/// Without a choice, on which machines.
const SELECTED_PRESETS: [&str; 1] = ["40-core"];
const SHOOT_PRESETS: [&str; 2] = ["large-server", "40-core"];

type Measure = fn(&Calls, &[Setup]) -> Outcome<Findings>;

/// What a workload makes of its rows.
struct Findings {
    text: String,
    rows: Vec<Value>,
    params: Value,
    pictures: Vec<Picture>,
}

/// Measures, prints the tables and writes what else is wanted.
///
/// # Errors
/// The options make no sense (exit code 2); a file cannot be written; a call was not carried out as it should.
pub fn command(bench: &CallsBench) -> Outcome<()> {
    let (CallsBench::Selected(calls) | CallsBench::Shoot(calls)) = bench;
    match calls.machine {
        None | Some(CallsMachine::Sim) => simulate(bench, calls),
        Some(kind) => {
            check_live(calls)?;
            live::command(bench, kind)
        }
    }
}

fn simulate(bench: &CallsBench, calls: &Calls) -> Outcome<()> {
    check(calls)?;
    if let Some(path) = &calls.json {
        Report::probe(path)?;
    }
    let (name, presets, measure): (_, &[&str], Measure) = match bench {
        CallsBench::Selected(_) => ("selected", &SELECTED_PRESETS, of_selected),
        CallsBench::Shoot(_) => ("shoot", &SHOOT_PRESETS, of_shoot),
    };
    let presets = calls
        .preset
        .as_deref()
        .map_or(presets.to_vec(), |name| vec![name]);
    let setups = presets
        .into_iter()
        .map(|preset| Setup::named(preset, None, &calls.set))
        .collect::<Outcome<Vec<_>>>()?;
    let findings = measure(calls, &setups)?;
    let mut text = findings.text;
    for setup in &setups {
        text.push_str(&setup.render());
    }
    text.push_str(&format!(
        "seed {}; --set NAME=VALUE changes a figure\n",
        calls.seed
    ));
    // A reader that has seen enough may have gone.
    let _ = std::io::stdout().write_all(text.as_bytes());
    if let Some(path) = &calls.json {
        let result = json!({
            "workload": name,
            "machine": CallsMachine::Sim.name(),
            "accel": "virtual time",
            "commit": place::commit(),
            "params": findings.params,
            "rows": findings.rows,
        });
        std::fs::write(path, result.to_string() + "\n")
            .doing(format!("write the result to {}", path.display()))?;
    }
    match &calls.plot {
        Some(directory) => draw(directory, &findings.pictures),
        None => Ok(()),
    }
}

fn of_selected(calls: &Calls, setups: &[Setup]) -> Outcome<Findings> {
    let setup = &setups[0];
    let plan = selected::Plan::new(calls)?;
    let measured = plan.measure(calls, setup)?;
    let objects = measured.iter().flat_map(|one| one.objects(&plan.peers));
    Ok(Findings {
        text: selected_table::render(&plan, &measured, setup),
        rows: objects.collect(),
        params: json!({
            "preset": setup.preset().name, "figures": setup.figures_json(), "seed": calls.seed,
            "calls": plan.calls, "peers": names(&plan.peers),
        }),
        pictures: plot::of_selected(&plan.peers, &measured),
    })
}

fn of_shoot(calls: &Calls, setups: &[Setup]) -> Outcome<Findings> {
    let plan = shoot::Plan::new(calls, setups.len())?;
    let measured = plan.measure(calls, setups)?;
    let figures = setups
        .iter()
        .map(|setup| json!({"preset": setup.preset().name, "figures": setup.figures_json()}));
    let bytes = plan.peers.iter().map(|peer| {
        let sizes = shoot::SIZES.map(|cpus| json!({"cpus": cpus, "bytes": bytes_of(*peer, cpus)}));
        json!({"peer": peer.name(), "sizes": sizes})
    });
    let spared = spared_table::measure(setups);
    Ok(Findings {
        text: shoot_table::render(&plan, &measured, setups) + &spared_table::render(&spared),
        rows: measured
            .iter()
            .flat_map(|one| one.objects(setups))
            .collect(),
        params: json!({
            "machines": figures.collect::<Vec<_>>(), "seed": calls.seed, "peers": names(&plan.peers),
            "memory": bytes.collect::<Vec<_>>(), "spared": spared_table::objects(&spared),
        }),
        pictures: plot::of_shoot(&plan.peers, &measured, setups),
    })
}

fn names(peers: &[Peer]) -> Vec<&'static str> {
    peers.iter().map(|peer| peer.name()).collect()
}

/// What the simulated machine has no use for.
fn check(calls: &Calls) -> Outcome<()> {
    let emulator = &calls.emulator;
    let has_emulator = emulator.qemu.is_some() || emulator.kernel.is_some();
    if calls.rest != "busy" || calls.counts_instructions() || has_emulator {
        return Err(Failure::input(
            "--rest, --accel icount, --qemu and --kernel are about machines that really run",
            "use them with --machine qemu or hosted",
        ));
    }
    Ok(())
}

/// What the others have no use for.
fn check_live(calls: &Calls) -> Outcome<()> {
    if calls.preset.is_some() || !calls.set.is_empty() || calls.plot.is_some() {
        return Err(Failure::input(
            "--preset, --set and --plot are about the simulated machine",
            "use them with --machine sim",
        ));
    }
    Ok(())
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
