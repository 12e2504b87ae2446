//! The course of one `bench --machine sim`.

use std::io::Write;

use serde_json::{Map, Value, json};
use shootdown_sim::workload::on_large_stack;

use super::setup::Setup;
use super::{madvise, pingpong, preemptoff, zerocopy};
use crate::bench::rows::machine_name;
use crate::bench::workload::{Axes, DEFERS};
use crate::cli::{Bench, MachineKind, Workload};
use crate::failure::{Doing, Failure, Outcome};
use crate::machine::{self, QEMU_INSTALL};
use crate::{place, session};

/// What a workload makes of its rows.
pub struct Findings {
    /// The tables.
    pub tables: String,
    /// What they hang on, if that was asked for.
    pub sensitivity: Option<String>,
    /// The rows of the result.
    pub rows: Vec<Value>,
    /// Accesses through a translation that had to be gone; `None` where the workload accesses nothing.
    pub stale: Option<u64>,
}

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
    if bench.workload == Workload::Zerocopy && bench.machine.is_empty() {
        // Its table has more threads than any emulator CPUs.
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
    let setup = Setup::new(bench)?;
    let (cpus, findings) = match bench.workload {
        Workload::Madvise => {
            let shapes = madvise::Shapes::new(bench, &axes)?;
            let findings = on_large_stack(|| shapes.measure(bench, &setup));
            (shapes.cpus(), findings)
        }
        Workload::Dirtysync => {
            return Err(Failure::input(
                "the simulated machine has no files: dirtysync cannot be measured there",
                "use --machine qemu",
            ));
        }
        Workload::Pingpong => {
            let shapes = pingpong::Shapes::new(bench, &axes)?;
            let findings = on_large_stack(|| shapes.measure(bench, &setup));
            (1, findings)
        }
        Workload::Preemptoff => {
            let shapes = preemptoff::Shapes::new(bench, &axes)?;
            let findings = on_large_stack(|| shapes.measure(bench, &setup));
            (shapes.cpus(), findings)
        }
        Workload::Zerocopy => {
            let shapes = zerocopy::Shapes::new(bench, &axes)?;
            let findings = on_large_stack(|| shapes.measure(bench, &setup));
            (shapes.cpus(), findings)
        }
    };
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
    // A reader that has seen enough may have gone.
    let _ = std::io::stdout().write_all(text.as_bytes());
    if let Some(path) = &bench.json {
        let text = json(bench, &axes, &setup, cpus, findings.rows).to_string();
        std::fs::write(path, text + "\n")
            .doing(format!("write the result to {}", path.display()))?;
    }
    match findings.stale.unwrap_or(0) {
        0 => Ok(()),
        stale => Err(Failure::work(format!(
            "{stale} stale accesses: a flush was lost or came late"
        ))),
    }
}

fn json(bench: &Bench, axes: &Axes, setup: &Setup, cpus: usize, rows: Vec<Value>) -> Value {
    let actors = axes.workload.actors();
    let distinct = |key: &str| -> Vec<u64> {
        let mut values: Vec<u64> = rows.iter().filter_map(|row| row[key].as_u64()).collect();
        values.sort_unstable();
        values.dedup();
        values
    };
    let mut params = Map::new();
    params.insert("preset".into(), setup.preset().name.into());
    params.insert("figures".into(), setup.figures_json());
    params.insert("seed".into(), bench.seed.into());
    params.insert(actors.into(), distinct(actors).into());
    params.insert("pages".into(), distinct("pages").into());
    params.insert("policies".into(), json!(bench.policies));
    json!({
        "workload": axes.workload.name(),
        "machine": machine_name(MachineKind::Sim),
        "accel": "virtual time",
        "cpus": cpus,
        "commit": place::commit(),
        "params": params,
        "rows": rows,
    })
}
