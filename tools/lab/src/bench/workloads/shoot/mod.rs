//! `shoot`: calls at any size, of one CPU or of all at once, and flushes of all at once.
//!
//! * [`plan`]: the lines of the tables;
//! * [`moves`]: which cache lines moved, on demand;
//! * [`spared`]: what is said of targets that need no interrupt;
//! * [`broadcast`]: flushes by an instruction that all CPUs obey.

mod broadcast;
mod moves;
mod plan;
mod spared;

use serde_json::json;
use shootdown_sim::workload::{Callers, Means, Operation, Peer, Volley, VolleyResult, bytes_of};

use self::plan::{Line, Plan};
use crate::bench::columns::{Column, Format, bytes, grid, number, table, time};
use crate::bench::cores::OnCores;
use crate::bench::row::Row;
use crate::bench::sim::{Findings, Setup, all};
use crate::bench::workload::Contest;
use crate::cli::Calls;
use crate::failure::Outcome;

/// The workload.
pub const CONTEST: Contest = Contest {
    name: "shoot",
    about: "One CPU, or all at once, call a function on others; on sim they flush a page as well",
    presets: &["large-server", "40-core"],
    simulate,
    on_cores: OnCores {
        operations: &["calls", "flushes"],
        function_us: 0,
    },
    functions_ns: &[0],
    has_rounds: false,
};

const FIGURES: [Column; 12] = [
    Column::new("peer", "peer", Format::Words),
    Column::new("cpus", "CPUs", Format::Digits(0)),
    Column::new("targets", "targets", Format::Digits(0)),
    Column::new("median_ns", "median us", Format::Micros),
    Column::new("p99_ns", "p99 us", Format::Micros),
    Column::new("sent_median_ns", "sent us", Format::Micros),
    Column::new("busy_median_ns", "busy us", Format::Micros),
    Column::new("handler_ns_per_target", "in handler us", Format::Micros),
    Column::new("ipis_per_target", "IPIs/target", Format::Short),
    Column::new("interrupts_per_target", "taken/target", Format::Short),
    Column::new("register_writes_per_call", "ICR writes/op", Format::Short),
    Column::new("lines_per_target", "lines/target", Format::Short),
];
/// Where all call.
const UNFAIR: Column = Column::new("unfairness", "unfair", Format::Digits(2));
/// Numbers of CPUs for which the memory is told.
const SIZES: [usize; 4] = [64, 256, 1024, 4096];
/// Rows of one table.
const TABLE: [&str; 4] = ["preset", "operation", "function_ns", "callers"];
/// Rows of one line.
const LINE: [&str; 6] = [
    "preset",
    "operation",
    "function_ns",
    "callers",
    "cpus",
    "targets",
];
/// Who calls, in rows.
const ONE: &str = "one";
/// What they do, in rows.
const FLUSH: &str = "flush";

fn simulate(calls: &Calls, setups: &[Setup]) -> Outcome<Findings> {
    let plan = Plan::new(calls, setups.len())?;
    let rows = measure(&plan, calls, setups)?;
    let figures = setups
        .iter()
        .map(|setup| json!({"preset": setup.preset.name, "figures": setup.figures_json()}));
    let memory = plan.peers.iter().map(|peer| {
        let sizes = SIZES.map(|cpus| json!({"cpus": cpus, "bytes": bytes_of(*peer, cpus)}));
        json!({"peer": peer.name(), "sizes": sizes})
    });
    let names = plan.peers.iter().map(|peer| peer.name());
    let spared = spared::measure(setups);
    let broadcasts = broadcast::measure(&plan, calls, setups)?;
    let mut params = json!({
        "machines": figures.collect::<Vec<_>>(), "seed": calls.seed,
        "peers": names.collect::<Vec<_>>(),
        "memory": memory.collect::<Vec<_>>(), "spared": spared,
    });
    let tables = tables(&plan, &rows) + &spared::render(&spared) + &broadcast::render(&broadcasts);
    if !broadcasts.is_empty() {
        params["broadcasts"] = json!(broadcasts);
    }
    Ok(Findings {
        tables: tables + &moves::tables(&rows),
        params,
        rows,
        ..Findings::default()
    })
}

fn measure(plan: &Plan, calls: &Calls, setups: &[Setup]) -> Outcome<Vec<Row>> {
    let what = |line: &Line, peer: Peer| Volley {
        peer,
        ..volley(plan, calls, &setups[line.machine], line)
    };
    let of = |line| plan.peers.iter().map(move |peer| what(line, *peer));
    let simulations: Vec<Volley> = plan.lines.iter().flat_map(of).collect();
    let results = all(&simulations, Volley::run)?;
    let lines = plan.lines.iter().zip(results.chunks(plan.peers.len()));
    let rows = lines.flat_map(|(line, results)| {
        let preset = setups[line.machine].preset.name;
        let peers = plan.peers.iter().zip(results);
        peers.map(move |(peer, result)| {
            let mut row = row(line, preset, *peer, result);
            if calls.lines {
                row.set(moves::KEY, moves::of(result));
            }
            row
        })
    });
    Ok(rows.collect())
}

/// A line as the engine runs it, by interrupts.
fn volley(plan: &Plan, calls: &Calls, setup: &Setup, line: &Line) -> Volley {
    Volley {
        peer: Peer::Shootdown,
        callers: line.callers,
        operation: line.operation,
        means: Means::Interrupts,
        targets: line.targets,
        cpus: line.cpus,
        function_ps: line.function_ps,
        calls: plan.calls_of(line),
        costs: setup.costs.clone(),
        seed: calls.seed,
        names_lines: calls.lines,
    }
}

fn row(line: &Line, preset: &str, peer: Peer, result: &VolleyResult) -> Row {
    let activity = &result.activity;
    Row::of(json!({
        "machine": "sim", "accel": "virtual time", "preset": preset,
        "peer": peer.name(), "callers": if line.callers == Callers::One { ONE } else { "all" },
        "operation": if line.operation == Operation::Flush { FLUSH } else { "call" },
        "cpus": line.cpus, "targets": line.targets,
        "function_ns": line.function_ps as f64 / 1000.0,
        "calls": result.calls.len(),
        "median_ns": result.quantile_ns(500, |called| called.whole_ps),
        "p99_ns": result.quantile_ns(990, |called| called.whole_ps),
        "sent_median_ns": result.quantile_ns(500, |called| called.sent_ps),
        "busy_median_ns": result.quantile_ns(500, |called| called.busy_ps),
        "unfairness": result.unfairness(),
        "handler_ns_per_target": result.per_target(activity.handler_ps) / 1000.0,
        "ipis_per_target": result.per_target(activity.ipis_sent),
        "interrupts_per_target": result.per_target(activity.ipis_taken),
        "register_writes_per_call": result.per_call(activity.register_writes),
        "lines_per_target": result.per_target(result.lines),
    }))
}

/// A table for each machine and each number of callers, what is not ahead, and the memory.
fn tables(plan: &Plan, rows: &[Row]) -> String {
    let mut text = String::new();
    for rows in rows.chunk_by(|one, other| one.agrees(other, &TABLE)) {
        let first = &rows[0];
        let functions = format!("functions of {} us", number(first.us("function_ns")));
        let what = match (first.text("callers"), first.text("operation")) {
            (ONE, _) => format!("one CPU calls all others of an idle machine, {functions}"),
            (_, FLUSH) => "all CPUs flush a page at once, again and again, each of a space that it shares with its targets".into(),
            _ => format!("all CPUs call others at once, again and again, {functions}"),
        };
        let mut columns = FIGURES.to_vec();
        if first.text("callers") != ONE {
            columns.push(UNFAIR);
        }
        text.push_str(&format!(
            "\nshoot on the simulated machine {}: {what}\n{}\n",
            first.text("preset"),
            table(&columns, rows),
        ));
    }
    text.push_str(
        "sent: until the last interrupt was sent; busy: the initiator's own work, without PAUSE and without interrupts that it took\n\
         in handler: a target's time in the interrupt, with entry and exit; IPIs, interrupts taken, lines: for each execution of the\n\
         function, or flush, on a target; ICR writes: for each call; unfair: p99 of the slowest initiator by the fastest's\n",
    );
    text + &behind(rows) + &memory(plan)
}

/// Where another kernel's algorithm is faster than the engine.
fn behind(rows: &[Row]) -> String {
    let is_ours = |row: &&Row| row.text("peer") == Peer::Shootdown.name();
    let mut text = String::new();
    for rows in rows.chunk_by(|one, other| one.agrees(other, &LINE)) {
        let Some(ours) = rows.iter().find(is_ours) else {
            continue;
        };
        for (name, key) in [("median", "median_ns"), ("p99", "p99_ns")] {
            let figure = |row: &Row| row.number(key).unwrap_or(0.0);
            let others = rows.iter().filter(|row| !is_ours(row));
            let fastest = others.min_by(|one, other| figure(one).total_cmp(&figure(other)));
            if let Some(other) = fastest.filter(|row| figure(row) < figure(ours)) {
                text.push_str(&format!(
                    "behind {}: {} of {}: {name} {} against {}\n",
                    other.text("peer"),
                    shape(ours),
                    ours.text("preset"),
                    time(figure(ours)),
                    time(figure(other))
                ));
            }
        }
    }
    match text.is_empty() {
        true => "best is ahead of all others, or level with them, in every row\n".into(),
        false => text,
    }
}

fn shape(row: &Row) -> String {
    let (cpus, targets) = (row.count("cpus"), row.count("targets"));
    match (row.text("callers"), row.text("operation")) {
        (ONE, _) => format!("one to {targets}"),
        (_, FLUSH) => format!("{cpus} flush on {targets} each"),
        _ => format!("{cpus} to {targets} each"),
    }
}

fn memory(plan: &Plan) -> String {
    let sizes = SIZES.map(|cpus| cpus.to_string());
    let heading = ["memory for CPUs".into()].into_iter().chain(sizes);
    let row = |peer: &Peer| {
        let mut cells = vec![peer.name().to_owned()];
        cells.extend(SIZES.map(|cpus| bytes(bytes_of(*peer, cpus))));
        cells
    };
    let rows = plan.peers.iter().map(row).collect();
    format!("\n{}\n", grid(heading, rows, |index| index == 0))
}
