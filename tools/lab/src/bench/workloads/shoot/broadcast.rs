//! What `shoot` says of flushes by an instruction that all CPUs obey (INVLPGB, TLBSYNC), beside flushes by interrupts.
//!
//! No source says what the instruction costs. So the crossover is looked for at several costs, and the other way round: the cost at which
//! both take as long.

use serde::Serialize;
use serde_json::json;
use shootdown_sim::timed::Fabric;
use shootdown_sim::workload::{Callers, Means, Volley, VolleyResult};

use super::plan::{Line, Plan, flushes};
use super::volley;
use crate::bench::columns::{Column, Format, number, table};
use crate::bench::row::Row;
use crate::bench::sim::{Setup, all};
use crate::cli::Calls;
use crate::failure::Outcome;

const BROADCASTS: Means = Means::Broadcasts(Fabric::Parallel);
/// Who all flush at once: the second and the third are two ends.
const AT_ONCE: [Means; 3] = [
    Means::Interrupts,
    BROADCASTS,
    Means::Broadcasts(Fabric::Serial),
];
/// Costs of the instruction at which the crossover is looked for.
const COSTS_PS: [u64; 5] = [250_000, 500_000, 1_000_000, 2_000_000, 4_000_000];
/// Up to so many targets, so many at a time.
const MOST_TARGETS: usize = 512;
const AT_A_TIME: usize = 32;

const LONE: [Column; 10] = [
    Column::new("targets", "targets", Format::Digits(0)),
    Column::new("interrupts_ns", "by interrupts us", Format::Micros),
    Column::new("handlers_ns", "in handlers us", Format::Micros),
    Column::new("interrupts_lines", "lines/op", Format::Digits(0)),
    Column::new("broadcast_ns", "by broadcast us", Format::Micros),
    Column::new("broadcast_lines", "lines/op", Format::Digits(0)),
    Column::new("level_ns", "level at us", Format::Micros),
    Column::new("first_ns", "first flush us", Format::Micros),
    Column::new("tagging_ns", "gives the tag us", Format::Micros),
    Column::new("settling_ns", "first broadcast us", Format::Micros),
];
const CROSSOVER: [Column; 5] = [
    Column::new("cost_ns", "the instruction takes us", Format::Micros),
    Column::new("targets", "faster from", Format::Digits(0)),
    Column::new("interrupts_ns", "by interrupts us", Format::Micros),
    Column::new("broadcast_ns", "by broadcast us", Format::Micros),
    Column::new("less_time_targets", "less CPU time from", Format::Digits(0)),
];
const ALL: [Column; 7] = [
    Column::new("cpus", "CPUs", Format::Digits(0)),
    Column::new("interrupts_ns", "by interrupts us", Format::Micros),
    Column::new("interrupts_p99_ns", "p99 us", Format::Micros),
    Column::new("parallel_ns", "broadcasts in parallel us", Format::Micros),
    Column::new("parallel_p99_ns", "p99 us", Format::Micros),
    Column::new("serial_ns", "one at a time us", Format::Micros),
    Column::new("serial_p99_ns", "p99 us", Format::Micros),
];
const BELOW: &str = "\
the instruction: INVLPGB and TLBSYNC together; in handlers: the time of all targets together; lines: that moved, a flush; level at: the cost of the\n\
instruction at which both take as long; first flush: by interrupts, all lines are elsewhere; gives the tag: the same, and each CPU loads the space\n\
again; first broadcast: its initiator looks at all CPUs; faster from: the least number of targets; less CPU time: of initiator and targets together\n";

/// The tables of one machine.
#[derive(Debug, Serialize)]
pub struct Broadcasts {
    preset: &'static str,
    cost_ns: f64,
    lone: Vec<Row>,
    crossover: Vec<Row>,
    all: Vec<Row>,
}

/// Those of the machines that have the instruction.
///
/// # Errors
/// This host starts no threads.
pub fn measure(plan: &Plan, calls: &Calls, setups: &[Setup]) -> Outcome<Vec<Broadcasts>> {
    let machines = setups.iter().enumerate();
    let machines = machines.filter(|(_, setup)| setup.costs.has_broadcasts());
    let of = |(machine, setup): (usize, &Setup)| {
        let lone: Vec<Line> = flushes(&plan.shapes, machine, Callers::One).collect();
        let at_once = flushes(&plan.shapes, machine, Callers::All);
        let at_once: Vec<Line> = at_once.filter(|it| it.targets + 1 == it.cpus).collect();
        let what = |line: &Line, means| Volley {
            means,
            names_lines: false,
            ..volley(plan, calls, setup, line)
        };
        Ok(Broadcasts {
            preset: setup.preset.name,
            cost_ns: setup.costs.broadcast_ps as f64 / 1000.0,
            crossover: crossover(&lone, what)?,
            lone: by_means(&lone, [Means::Interrupts, BROADCASTS], what, lone_row)?,
            all: by_means(&at_once, AT_ONCE, what, row_of_all)?,
        })
    };
    machines.map(of).collect()
}

/// A row for each line, made of its runs.
fn by_means<const N: usize>(
    lines: &[Line],
    means: [Means; N],
    what: impl Fn(&Line, Means) -> Volley,
    row: fn(&Volley, &[VolleyResult; N]) -> Row,
) -> Outcome<Vec<Row>> {
    let of = |line| means.map(|means| what(line, means));
    let runs: Vec<Volley> = lines.iter().flat_map(of).collect();
    let results = all(&runs, Volley::run)?;
    let rows = runs.chunks(N).zip(results.as_chunks().0);
    Ok(rows.map(|(runs, results)| row(&runs[0], results)).collect())
}

fn median_ns(result: &VolleyResult) -> f64 {
    result.quantile_ns(500, |it| it.whole_ps)
}

fn p99_ns(result: &VolleyResult) -> f64 {
    result.quantile_ns(990, |it| it.whole_ps)
}

/// Of all targets together, a flush.
fn handlers_ns(result: &VolleyResult) -> f64 {
    result.per_call(result.activity.handler_ps) / 1000.0
}

fn lone_row(what: &Volley, [interrupts, broadcast]: &[VolleyResult; 2]) -> Row {
    let cost_ns = what.costs.broadcast_ps as f64 / 1000.0;
    let warm_up_ns = |of: &VolleyResult, index: usize| of.warm_up[index].whole_ps as f64 / 1000.0;
    Row::of(json!({
        "cpus": what.cpus, "targets": what.targets,
        "interrupts_ns": median_ns(interrupts), "handlers_ns": handlers_ns(interrupts),
        "interrupts_lines": interrupts.per_call(interrupts.lines),
        "ipis": interrupts.per_call(interrupts.activity.ipis_sent),
        "broadcast_ns": median_ns(broadcast),
        "broadcast_lines": broadcast.per_call(broadcast.lines),
        "broadcast_ipis": broadcast.per_call(broadcast.activity.ipis_sent),
        // What a lone broadcast costs is added to its flush.
        "level_ns": median_ns(interrupts) - median_ns(broadcast) + cost_ns,
        "first_ns": warm_up_ns(interrupts, 0),
        "tagging_ns": warm_up_ns(broadcast, 0), "settling_ns": warm_up_ns(broadcast, 1),
    }))
}

fn row_of_all(what: &Volley, [interrupts, parallel, serial]: &[VolleyResult; 3]) -> Row {
    Row::of(json!({
        "cpus": what.cpus,
        "interrupts_ns": median_ns(interrupts), "interrupts_p99_ns": p99_ns(interrupts),
        "parallel_ns": median_ns(parallel), "parallel_p99_ns": p99_ns(parallel),
        "serial_ns": median_ns(serial), "serial_p99_ns": p99_ns(serial),
    }))
}

/// A row for each cost, found at ascending numbers of targets, up to the most that were asked for.
fn crossover(lone: &[Line], what: impl Fn(&Line, Means) -> Volley) -> Outcome<Vec<Row>> {
    let Some(most) = lone.iter().max_by_key(|line| line.targets) else {
        return Ok(Vec::new());
    };
    let at = |line: &Line, row: &Row| {
        let mut run = what(line, BROADCASTS);
        run.costs.broadcast_ps = row.count("cost_ps");
        run
    };
    let mut rows =
        COSTS_PS.map(|ps| Row::of(json!({"cost_ps": ps, "cost_ns": ps as f64 / 1000.0})));
    let lines: Vec<Line> = (1..=most.targets.min(MOST_TARGETS))
        .map(|targets| Line {
            targets,
            cpus: targets + 1,
            ..*most
        })
        .collect();
    for lines in lines.chunks(AT_A_TIME) {
        let is_open = |row: &&mut Row| row.count("targets") == 0;
        let mut open: Vec<&mut Row> = rows.iter_mut().filter(is_open).collect();
        if open.is_empty() {
            break;
        }
        let of = |line| {
            let interrupts = what(line, Means::Interrupts);
            let broadcasts = open.iter().map(move |row| at(line, row));
            [interrupts].into_iter().chain(broadcasts)
        };
        let runs: Vec<Volley> = lines.iter().flat_map(of).collect();
        let results = all(&runs, Volley::run)?;
        for (line, results) in lines.iter().zip(results.chunks(1 + open.len())) {
            for (row, broadcast) in open.iter_mut().zip(&results[1..]) {
                note_crossover(row, line.targets, &results[0], broadcast);
            }
        }
    }
    Ok(rows.into())
}

/// Writes into the row what is the case for the first time.
fn note_crossover(
    row: &mut Row,
    targets: usize,
    interrupts: &VolleyResult,
    broadcast: &VolleyResult,
) {
    let (interrupts_ns, broadcast_ns) = (median_ns(interrupts), median_ns(broadcast));
    let is_new = |row: &Row, key| row.number(key).is_none();
    if broadcast_ns < interrupts_ns + handlers_ns(interrupts) && is_new(row, "less_time_targets") {
        row.set("less_time_targets", targets);
    }
    if broadcast_ns < interrupts_ns && is_new(row, "targets") {
        row.set("targets", targets);
        row.set("interrupts_ns", interrupts_ns);
        row.set("broadcast_ns", broadcast_ns);
    }
}

/// The tables.
pub fn render(machines: &[Broadcasts]) -> String {
    let mut text = String::new();
    for machine in machines {
        let Broadcasts {
            preset, cost_ns, ..
        } = machine;
        let cost = number(cost_ns / 1000.0);
        let lone = format!(
            "one CPU flushes a page that all others may have cached, the instruction takes {cost} us"
        );
        let all = format!(
            "all CPUs flush a page at once, again and again, the instruction takes {cost} us"
        );
        let crossover = "from how many targets on a broadcast is faster than interrupts".to_owned();
        for (what, columns, rows) in [
            (lone, &LONE[..], &machine.lone),
            (crossover, &CROSSOVER, &machine.crossover),
            (all, &ALL, &machine.all),
        ] {
            if !rows.is_empty() {
                let table = table(columns, rows);
                text.push_str(&format!("\nbroadcasts (INVLPGB, TLBSYNC) on the simulated machine {preset}: {what}\n{table}\n"));
            }
        }
    }
    if !text.is_empty() {
        text.push_str(BELOW);
    }
    text
}
