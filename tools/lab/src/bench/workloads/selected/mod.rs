//! `selected`, table T5: a few CPUs call functions on sets of others.
//!
//! * [`plan`]: the lines of the tables;
//! * [`goals`]: what the engine is to reach.

mod goals;
mod plan;

use serde_json::json;
use shootdown_sim::workload::{PUBLISHED_SELECTED, Peer, Selected, SelectedResult};

use self::plan::{FUNCTIONS_PS, Line, Plan};
use crate::bench::columns::{Column, Format, number};
use crate::bench::contest::{AXES, Axis, LIMIT, LIMIT_NOTE, by_peer};
use crate::bench::cores::OnCores;
use crate::bench::row::Row;
use crate::bench::sim::{Findings, Setup, all};
use crate::bench::workload::Contest;
use crate::cli::Calls;
use crate::failure::Outcome;

/// The workload.
pub const CONTEST: Contest = Contest {
    name: "selected",
    about: "A few initiators call functions on sets of CPUs, again and again (table T5)",
    presets: &["40-core"],
    simulate,
    on_cores: OnCores {
        operations: &["plain-calls"],
        function_us: 5,
    },
    functions_ns: &[0, 500_000],
    has_rounds: true,
};

/// The algorithm that all percentages refer to.
const REFERENCE: Peer = Peer::OneLock;
/// Rows of one table.
const TABLE: [&str; 3] = ["cpus", "function_ns", "masks"];

fn simulate(calls: &Calls, setups: &[Setup]) -> Outcome<Findings> {
    let setup = &setups[0];
    let plan = Plan::new(calls)?;
    let rows = measure(&plan, calls, setup)?;
    let names: Vec<&str> = plan.peers.iter().map(|peer| peer.name()).collect();
    Ok(Findings {
        tables: tables(&plan, &rows, setup),
        params: json!({
            "preset": setup.preset.name, "figures": setup.figures_json(), "seed": calls.seed,
            "calls": plan.calls, "peers": names,
        }),
        rows,
        ..Findings::default()
    })
}

fn measure(plan: &Plan, calls: &Calls, setup: &Setup) -> Outcome<Vec<Row>> {
    // The reference is measured in any case.
    let mut peers = plan.peers.clone();
    if !peers.contains(&REFERENCE) {
        peers.push(REFERENCE);
    }
    let what = |line: &Line, peer: Peer| Selected {
        peer,
        initiators: line.initiators,
        size: line.targets,
        masks: line.masks,
        cpus: line.cpus,
        function_ps: line.function_ps,
        calls: plan.calls,
        costs: setup.costs.clone(),
        seed: calls.seed,
    };
    let of = |line| peers.iter().map(move |peer| what(line, *peer));
    let simulations: Vec<Selected> = plan.lines.iter().flat_map(of).collect();
    let results = all(&simulations, Selected::run)?;
    let reference = peers.iter().position(|peer| *peer == REFERENCE);
    let lines = plan.lines.iter().zip(results.chunks(peers.len()));
    let rows = lines.flat_map(|(line, results)| {
        let base_ps = results[reference.unwrap_or(0)].whole_ps;
        let asked = plan.peers.iter().zip(results);
        asked.map(move |(peer, result)| row(line, *peer, result, base_ps))
    });
    Ok(rows.collect())
}

fn row(line: &Line, peer: Peer, result: &SelectedResult, base_ps: u64) -> Row {
    let change = |whole_ps: u64| 100.0 * (whole_ps as f64 / base_ps as f64 - 1.0);
    // Where the limit means anything.
    let has_limit = line.function_ps > 0;
    Row::of(json!({
        "machine": "sim", "accel": "virtual time", "peer": peer.name(), "cpus": line.cpus,
        "function_ns": line.function_ps as f64 / 1000.0, "masks": line.masks.name(),
        "initiators": line.initiators, "targets": line.targets,
        "change_percent": change(result.whole_ps),
        "limit_percent": has_limit.then(|| change(result.limit_ps)),
        "published_percent": published(line),
        "whole_ns": result.whole_ps as f64 / 1000.0,
        "median_ns": result.quantile_ns(500), "p99_ns": result.quantile_ns(990),
        "unfairness": result.unfairness(),
        "runs": result.runs, "lines": result.lines,
    }))
}

/// What the authors of T5 measured, in percent; they do not say how their masks were drawn.
fn published(line: &Line) -> Option<f64> {
    let column = [1, 2, 4].iter().position(|n| *n == line.initiators)?;
    if line.function_ps != FUNCTIONS_PS[0] {
        return None;
    }
    let mut rows = PUBLISHED_SELECTED.iter();
    let row = rows.find(|(size, _)| *size == line.targets);
    row.map(|(_, percents)| percents[column])
}

/// The change against [`REFERENCE`].
const CHANGE: Column = Column::new(
    "change_percent",
    "the time of all calls, in % against xen-before",
    Format::Change,
);
/// What a table has of each row, below its heading.
const FIGURES: [Column; 4] = [
    CHANGE,
    Column::new(
        "unfairness",
        "the 99th percentile of the slowest initiator by that of the fastest",
        Format::Digits(1),
    ),
    Column::new("median_ns", "one call, median ns", Format::Digits(0)),
    Column::new("p99_ns", "one call, p99 ns", Format::Digits(0)),
];
/// What stands beside [`CHANGE`] and [`LIMIT`].
const PUBLISHED: Column = Column::new("published_percent", "T5's own", Format::Change);
/// Below the tables.
const OWN: &str =
    "T5's own: what its authors measured on silicon; they do not say how they drew the masks\n";

/// Four tables for each machine, function and way to draw masks.
fn tables(plan: &Plan, rows: &[Row], setup: &Setup) -> String {
    let mut text = String::new();
    for rows in rows.chunk_by(|one, other| one.agrees(other, &TABLE)) {
        text.push_str(&format!(
            "\nselected on the simulated machine {} with {} CPUs: {} masks, functions of {} us, {} calls an initiator\n",
            setup.preset.name,
            rows[0].count("cpus"),
            rows[0].text("masks"),
            number(rows[0].us("function_ns")),
            plan.calls,
        ));
        for figure in &FIGURES {
            let heading = figure.heading;
            text.push_str(&format!("{heading}\n{}\n", table(plan, rows, figure)));
        }
    }
    text + LIMIT_NOTE + OWN + &goals::verdict(rows, plan.calls)
}

fn table(plan: &Plan, rows: &[Row], figure: &Column) -> String {
    let is_change = figure.key == CHANGE.key;
    let [limit, published] = [&LIMIT, &PUBLISHED].map(|column| |row: &Row| column.cell(row));
    let limits: [Axis<'_>; 2] = [(LIMIT.heading, &limit), (PUBLISHED.heading, &published)];
    let further = if is_change { &limits[..] } else { &[] };
    // The reference's own change is nothing.
    let is_shown = |peer: &&Peer| !is_change || **peer != REFERENCE;
    let peers = plan.peers.iter().filter(is_shown).map(|peer| peer.name());
    by_peer(rows, peers, &[&AXES[..], further].concat(), |row| {
        figure.cell(row)
    })
}
