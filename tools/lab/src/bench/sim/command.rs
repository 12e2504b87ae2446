//! The course of one `bench --machine sim`.

use serde_json::{Map, Value, json};
use shootdown_sim::workload::{Load, on_large_stack};

use super::run::{Findings, Run};
use super::setup::Setup;
use crate::bench::program::{Axes, distinct};
use crate::bench::report::{self, Printed, Summary};
use crate::bench::workload::{DEFERS, Program};
use crate::cli::{Bench, CallsBench, ContestMachine, MachineKind};
use crate::failure::{Failure, Outcome};
use crate::machine::{self, QEMU_INSTALL};
use crate::{place, session};

/// Whether the simulated machine is what to measure on: it was named, an option is about it, or there is nothing
/// else. Says so in the last case.
///
/// # Errors
/// It was named together with others.
pub fn is_meant(bench: &Bench) -> Outcome<bool> {
    if let Some(CallsBench { calls, .. }) = bench.calls() {
        return Ok(matches!(calls.machine, None | Some(ContestMachine::Sim)));
    }
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

/// Measures, prints the main result, the tables if they are wanted, and what the machine is, and writes the result.
///
/// # Errors
/// The options make no sense (exit code 2); an access was stale.
pub fn command(bench: &Bench, summary: Summary) -> Outcome<()> {
    let (name, cpus, setups, findings, closing) = match bench.calls() {
        None => program(bench)?,
        Some(calls) => contest(calls)?,
    };
    let shows_figures = bench.shows_figures();
    let machines = setups.iter().map(|setup| setup.render(shows_figures));
    let rest = machines.collect::<String>() + &closing;
    let mut result = Map::new();
    result.insert("workload".into(), name.into());
    result.insert("machine".into(), MachineKind::Sim.name().into());
    result.insert("accel".into(), "virtual time".into());
    result.extend(cpus.map(|cpus| ("cpus".into(), cpus.into())));
    result.insert("commit".into(), place::commit().into());
    result.insert("params".into(), findings.params);
    result.insert("rows".into(), json!(findings.rows));
    let result = result.into();
    report::write(bench.result(), &result)?;
    report::print(Printed {
        summary: summary(&result),
        tables: &findings.tables,
        shows_tables: bench.shows_tables(),
        rest: &rest,
        ..Printed::default()
    });
    report::judge(report::verdict(findings.stale.unwrap_or(0)).as_ref())
}

/// Its name, its CPUs if they are the same everywhere, its machines, what it has found, and what stands below everything.
type Simulation = (&'static str, Option<usize>, Vec<Setup>, Findings, String);

fn program(bench: &Bench) -> Outcome<Simulation> {
    let axes = Axes::new(bench)?;
    let mut policies = bench.policies.iter();
    if let Some(policy) = policies.find(|policy| policy.ends_with(DEFERS)) {
        return Err(Failure::input(
            format!("{policy} is about system calls, and the simulated machine has none"),
            "use it with --machine qemu",
        ));
    }
    let Program {
        name, simulated, ..
    } = bench.workload;
    let simulated = match simulated {
        Ok(simulated) => simulated,
        Err((cause, remedy)) => return Err(Failure::input(cause, remedy)),
    };
    if bench.emulator.isolation && !simulated.isolates {
        return Err(Failure::input(
            format!("{name} is not simulated with page-table isolation"),
            "use --isolation with pingpong, or with --machine qemu",
        ));
    }
    let preset = bench.preset.as_deref().unwrap_or(simulated.preset);
    let load = simulated.has_load.then(Load::default);
    let setup = Setup::new(preset, load, &bench.set)?;
    let run = Run {
        bench,
        setup: &setup,
        is_published: setup.preset.name == simulated.preset,
        shapes: (simulated.shapes)(bench, &axes)?,
    };
    let mut findings = on_large_stack(|| (simulated.measure)(&run));
    findings.params = params(&run, &findings);
    let mut closing = format!("seed {}   {}\n", bench.seed, setup.fitted());
    closing += findings.sensitivity.as_deref().unwrap_or(
        "what this hangs on: --sweep halves and doubles every figure; --set NAME=VALUE changes one\n",
    );
    if let Some(stale) = findings.stale {
        closing += &format!("stale accesses: {stale}\n");
    }
    let cpus = run.shapes.cpus;
    Ok((name, Some(cpus), vec![setup], findings, closing))
}

fn params(run: &Run<'_>, findings: &Findings) -> Value {
    let (bench, actors) = (run.bench, run.bench.workload.actors);
    let values = |key: &str| -> Vec<u32> {
        let rows = findings.rows.iter();
        distinct(
            &rows
                .filter_map(|row| row.0.get(key)?.as_u64())
                .map(|n| n as u32)
                .collect::<Vec<_>>(),
        )
    };
    let mut params = json!({
        "preset": run.setup.preset.name,
        "figures": run.setup.figures_json(),
        "seed": bench.seed,
        actors: values(actors),
        "pages": values("pages"),
        "policies": bench.policies,
    });
    if bench.emulator.isolation {
        params["isolation"] = true.into();
    }
    params
}

fn contest(CallsBench { contest, calls }: &CallsBench) -> Outcome<Simulation> {
    let (emulator, preset) = (&calls.emulator, calls.preset.as_deref());
    let has_emulator = emulator.qemu.is_some() || emulator.kernel.is_some();
    if calls.rest != "busy" || calls.counts_instructions() || has_emulator {
        return Err(Failure::input(
            "--rest, --accel icount, --qemu and --kernel are about machines that really run",
            "use them with --machine qemu or hosted",
        ));
    }
    let presets = preset.map_or(contest.presets.to_vec(), |name| vec![name]);
    let setup = |preset| Setup::new(preset, None, &calls.set);
    let setups = presets
        .into_iter()
        .map(setup)
        .collect::<Outcome<Vec<_>>>()?;
    let findings = (contest.simulate)(calls, &setups)?;
    let closing = format!("seed {}; --set NAME=VALUE changes a figure\n", calls.seed);
    Ok((contest.name, None, setups, findings, closing))
}
