//! The tables of `bench shoot`.

use shootdown_sim::workload::{Callers, Peer, VolleyResult, bytes_of};

use super::shoot::{Line, Measured, Plan, SIZES};
use super::text::{bytes, count, table, time};
use crate::bench::sim::{Setup, number};

/// A table for each machine and each number of callers, what is not ahead, and the memory.
pub fn render(plan: &Plan, measured: &[Measured], setups: &[Setup]) -> String {
    let same = |one: &Measured, other: &Measured| key(&one.line) == key(&other.line);
    let mut text = String::new();
    for group in measured.chunk_by(same) {
        text.push_str(&group_text(group, setups));
    }
    text.push_str(
        "sent: until the last interrupt was sent; busy: the initiator's own work, without PAUSE and without interrupts that it took\n\
         in handler: a target's time in the interrupt, with entry and exit; IPIs, interrupts taken, lines: for each execution of the\n\
         function on a target; ICR writes: for each call; unfair: p99 of the slowest initiator by the fastest's\n",
    );
    text.push_str(&behind(measured, setups));
    text.push_str(&memory(plan));
    text
}

fn key(line: &Line) -> (usize, u64, bool) {
    let Line {
        machine,
        callers,
        function_ps,
        ..
    } = *line;
    (machine, function_ps, callers == Callers::One)
}

fn group_text(group: &[Measured], setups: &[Setup]) -> String {
    let line = group[0].line;
    let callers = match line.callers {
        Callers::One => "one CPU calls all others of an idle machine",
        Callers::All => "all CPUs call others at once, again and again",
    };
    format!(
        "\nshoot on the simulated machine {}: {callers}, functions of {} us\n{}\n",
        setups[line.machine].preset().name,
        number(line.function_ps as f64 / 1e6),
        figures(group),
    )
}

const HEADING: [&str; 12] = [
    "peer",
    "CPUs",
    "targets",
    "median",
    "p99",
    "sent",
    "busy",
    "in handler",
    "IPIs",
    "taken",
    "ICR writes",
    "lines",
];

fn figures(group: &[Measured]) -> comfy_table::Table {
    let is_of_all = group[0].line.callers == Callers::All;
    let mut heading = HEADING.map(str::to_owned).to_vec();
    if is_of_all {
        heading.push("unfair".into());
    }
    let row = |line: &Line, peer: Peer, result: &VolleyResult| {
        let activity = &result.activity;
        let mut cells = vec![
            peer.name().to_owned(),
            line.cpus.to_string(),
            line.targets.to_string(),
            time(result.quantile_ns(500, |called| called.whole_ps)),
            time(result.quantile_ns(990, |called| called.whole_ps)),
            time(result.quantile_ns(500, |called| called.sent_ps)),
            time(result.quantile_ns(500, |called| called.busy_ps)),
            time(result.per_target(activity.handler_ps) / 1000.0),
            count(result.per_target(activity.ipis_sent)),
            count(result.per_target(activity.ipis_taken)),
            count(result.per_call(activity.register_writes)),
            count(result.per_target(result.lines)),
        ];
        if is_of_all {
            cells.push(format!("{:.2}", result.unfairness()));
        }
        cells
    };
    let rows = group.iter().flat_map(|measured| {
        let results = measured.results.iter();
        results.map(|(peer, result)| row(&measured.line, *peer, result))
    });
    table(heading, rows.collect(), 1)
}

/// Where another kernel's algorithm is faster than the engine.
fn behind(measured: &[Measured], setups: &[Setup]) -> String {
    let mut text = String::new();
    let quantiles = [("median", 500), ("p99", 990)];
    for one in measured {
        let Some(ours) = one.of(Peer::Shootdown) else {
            continue;
        };
        for (name, per_mille) in quantiles {
            let figure =
                |result: &VolleyResult| result.quantile_ns(per_mille, |called| called.whole_ps);
            if let Some((peer, ns)) = one.best_peer(figure).filter(|(_, ns)| *ns < figure(ours)) {
                text.push_str(&format!(
                    "behind {}: {} of {}: {name} {} against {}\n",
                    peer.name(),
                    shape(&one.line),
                    setups[one.line.machine].preset().name,
                    time(figure(ours)),
                    time(ns)
                ));
            }
        }
    }
    match text.is_empty() {
        true => "best is ahead of all others, or level with them, in every row\n".into(),
        false => text,
    }
}

fn shape(line: &Line) -> String {
    match line.callers {
        Callers::One => format!("one to {}", line.targets),
        Callers::All => format!("{} to {} each", line.cpus, line.targets),
    }
}

fn memory(plan: &Plan) -> String {
    let mut heading = vec!["memory for CPUs".to_owned()];
    heading.extend(SIZES.map(|cpus| cpus.to_string()));
    let row = |peer: &Peer| {
        let mut cells = vec![peer.name().to_owned()];
        cells.extend(SIZES.map(|cpus| bytes(bytes_of(*peer, cpus))));
        cells
    };
    let rows = plan.peers.iter().map(row).collect();
    format!("\n{}\n", table(heading, rows, 1))
}
