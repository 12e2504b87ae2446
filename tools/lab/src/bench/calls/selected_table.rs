//! The tables of `bench selected`.

use shootdown_sim::workload::Peer;

use super::selected::{Line, Measured, Plan, REFERENCE};
use super::targets;
use super::text::{table, time};
use crate::bench::sim::{Setup, number};

/// Two tables for each machine, function and way to draw masks.
pub fn render(plan: &Plan, measured: &[Measured], setup: &Setup) -> String {
    let same = |one: &Measured, other: &Measured| key(&one.line) == key(&other.line);
    let mut text = String::new();
    for group in measured.chunk_by(same) {
        text.push_str(&group_text(plan, group, setup));
    }
    text.push_str(&format!(
        "in %: the time of all calls against {}; in brackets the 99th percentile of the slowest initiator by the fastest's\n\
         fifo: what the same masks allow whoever serves first come, first served, if nothing but the function costs anything\n",
        REFERENCE.name()
    ));
    text.push_str(&targets::verdict(measured));
    text
}

fn key(line: &Line) -> (usize, u64, &str) {
    (line.cpus, line.function_ps, line.draw.name())
}

fn group_text(plan: &Plan, group: &[Measured], setup: &Setup) -> String {
    let Line {
        cpus,
        function_ps,
        draw,
        ..
    } = group[0].line;
    format!(
        "\nselected on the simulated machine {} with {cpus} CPUs: {} masks, functions of {} us, {} calls an initiator; %\n{}\n\
         and the time of one call, median and p99\n{}\n",
        setup.preset().name,
        draw.name(),
        number(function_ps as f64 / 1e6),
        plan.calls,
        changes(plan, group),
        times(plan, group),
    )
}

fn changes(plan: &Plan, group: &[Measured]) -> comfy_table::Table {
    let shown = plan.peers.iter().filter(|peer| **peer != REFERENCE);
    let mut heading = vec!["initiators", "targets", "fifo", "published"];
    heading.extend(shown.clone().map(|peer| peer.name()));
    let row = |measured: &Measured| {
        let percent = |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:+.1}"));
        let cell = |peer: &Peer| {
            let unfairness = measured.of(*peer).map_or(1.0, |result| result.unfairness());
            format!("{} ({unfairness:.1})", percent(measured.change_of(*peer)))
        };
        let mut cells = axes(measured);
        cells.push(percent(measured.limit()));
        cells.push(percent(measured.line.published()));
        cells.extend(shown.clone().map(cell));
        cells
    };
    let heading = heading.into_iter().map(str::to_owned).collect();
    table(heading, group.iter().map(row).collect(), 0)
}

fn times(plan: &Plan, group: &[Measured]) -> comfy_table::Table {
    let mut heading = vec!["initiators", "targets"];
    heading.extend(plan.peers.iter().map(|peer| peer.name()));
    let row = |measured: &Measured| {
        let cell = |peer: &Peer| {
            measured.of(*peer).map_or("-".into(), |result| {
                format!(
                    "{}, {}",
                    time(result.quantile_ns(500)),
                    time(result.quantile_ns(990))
                )
            })
        };
        let mut cells = axes(measured);
        cells.extend(plan.peers.iter().map(cell));
        cells
    };
    let heading = heading.into_iter().map(str::to_owned).collect();
    table(heading, group.iter().map(row).collect(), 0)
}

fn axes(measured: &Measured) -> Vec<String> {
    let Line {
        initiators,
        targets,
        ..
    } = measured.line;
    vec![initiators.to_string(), targets.to_string()]
}
