//! The course of one `bench --machine sim`.

use serde_json::{Map, Value, json};
use shootdown_sim::workload::on_large_stack;

use super::run::Run;
use super::setup::Setup;
use crate::bench::report;
use crate::bench::row::Row;
use crate::bench::workload::{Axes, DEFERS};
use crate::cli::{Bench, MachineKind};
use crate::failure::{Failure, Outcome};
use crate::machine::{self, QEMU_INSTALL};
use crate::{place, session};

/// Whether the simulated machine is what to measure on: it was named, an option is about it, or there is nothing
/// else. Says so in the last case.
///
/// # Errors
/// It was named together with others.
pub fn is_meant(bench: &Bench) -> Outcome<bool> {
    let is_named = bench.machine.contains(&MachineKind::Sim);
    let is_alone = bench.machine.iter().all(|kind| *kind == MachineKind::Sim);
    let has_options = bench.preset.is_some() || !bench.set.is_empty() || bench.sweep;
    if !is_alone && (is_named || has_options) {
        return Err(Failure::input(
            "the simulated machine is measured alone",
            "use --machine sim, without qemu and linux",
        ));
    }
    if is_named || has_options {
        return Ok(true);
    }
    let names_emulator =
        session::qemu_name(&bench.emulator).is_some() || bench.emulator.kernel.is_some();
    if bench.workload.is_simulated_first && bench.machine.is_empty() {
        return Ok(true);
    }
    if !bench.machine.is_empty() || names_emulator || machine::find_qemu(None)?.is_some() {
        return Ok(false);
    }
    println!(
        "no QEMU here: this is the built-in simulated machine; for the reference kernel:  {QEMU_INSTALL}"
    );
    Ok(true)
}

/// Measures, prints the table and the figures of the machine, and writes the result.
///
/// # Errors
/// The options make no sense (exit code 2); an access was stale.
pub fn command(bench: &Bench) -> Outcome<()> {
    let axes = Axes::new(bench)?;
    if let Some(policy) = bench
        .policies
        .iter()
        .find(|policy| policy.ends_with(DEFERS))
    {
        return Err(Failure::input(
            format!("{policy} is about system calls, and the simulated machine has none"),
            "use it with --machine qemu",
        ));
    }
    let simulated = match &bench.workload.simulated {
        Ok(simulated) => simulated,
        Err((cause, remedy)) => return Err(Failure::input(cause, remedy)),
    };
    let setup = Setup::new(bench, simulated)?;
    let run = Run {
        bench,
        setup: &setup,
        is_published: setup.preset().name == simulated.preset,
        shapes: (simulated.shapes)(bench, &axes)?,
    };
    let findings = on_large_stack(|| (simulated.measure)(&run));
    let mut text = findings.tables;
    text.push_str(&setup.render());
    text.push_str(&format!("seed {}   {}\n", bench.seed, setup.fitted()));
    text.push_str(&findings.sensitivity.unwrap_or_else(|| {
        "what this hangs on: --sweep halves and doubles every figure; --set NAME=VALUE changes one\n"
            .into()
    }));
    if let Some(stale) = findings.stale {
        text.push_str(&format!("stale accesses: {stale}\n"));
    }
    report::print(&text);
    report::write(bench.json.as_deref(), &result(&run, &findings.rows))?;
    report::verdict(findings.stale.unwrap_or(0))
}

fn result(run: &Run<'_>, rows: &[Row]) -> Value {
    let (bench, actors) = (run.bench, run.bench.workload.actors.name());
    let distinct = |key: &str| -> Vec<u64> {
        let mut values: Vec<u64> = rows
            .iter()
            .filter_map(|row| row.0.get(key)?.as_u64())
            .collect();
        values.sort_unstable();
        values.dedup();
        values
    };
    let mut params = Map::new();
    params.insert("preset".into(), run.setup.preset().name.into());
    params.insert("figures".into(), run.setup.figures_json());
    params.insert("seed".into(), bench.seed.into());
    params.insert(actors.into(), distinct(actors).into());
    params.insert("pages".into(), distinct("pages").into());
    params.insert("policies".into(), json!(bench.policies));
    json!({
        "workload": bench.workload.name,
        "machine": MachineKind::Sim.name(),
        "accel": "virtual time",
        "cpus": run.shapes.cpus,
        "commit": place::commit(),
        "params": params,
        "rows": rows,
    })
}
