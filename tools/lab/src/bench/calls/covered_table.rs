//! What `bench shoot` says of targets that have nothing left of a flush.

use serde_json::{Value, json};
use shootdown_sim::workload::{Crowd, Crowded, Look, on_large_stack};

use super::text::{count, table, time};
use crate::bench::sim::Setup;

/// Initiators and targets of each flush.
const CROWDS: [(usize, usize); 4] = [(1, 16), (4, 16), (16, 16), (16, 256)];
/// Flushes of each initiator.
const FLUSHES: usize = 20;

/// One crowd.
#[derive(Debug)]
pub struct Row {
    preset: &'static str,
    crowd: Crowd,
    crowded: Crowded,
}

/// Each crowd on each machine, without and with the look.
pub fn measure(setups: &[Setup]) -> Vec<Row> {
    let mut rows = Vec::new();
    for setup in setups {
        for ((initiators, targets), look) in CROWDS
            .into_iter()
            .flat_map(|size| Look::ALL.map(|look| (size, look)))
        {
            let crowd = Crowd {
                initiators,
                targets,
                flushes: FLUSHES,
                look,
            };
            rows.push(Row {
                preset: setup.preset().name,
                crowd,
                crowded: on_large_stack(|| crowd.run(setup.costs())),
            });
        }
    }
    rows
}

/// The table.
pub fn render(rows: &[Row]) -> String {
    let heading = [
        "machine",
        "look",
        "initiators",
        "targets",
        "flush",
        "IPIs",
        "left alone",
        "lines a target",
    ];
    let cells = |Row {
                     preset,
                     crowd,
                     crowded,
                 }: &Row| {
        vec![
            (*preset).to_owned(),
            crowd.look.name().to_owned(),
            crowd.initiators.to_string(),
            crowd.targets.to_string(),
            time(crowded.median_ps() as f64 / 1000.0),
            count(crowded.per_flush(crowded.activity.ipis_sent)),
            count(crowded.per_flush(crowded.covered)),
            count(crowded.per_flush(crowded.lines) / crowd.targets as f64),
        ]
    };
    format!(
        "\nflushes of one page, one after the other, by several CPUs of a space at once, under best\n{}\n\
         look: initiators read their targets' generations and leave those alone that have nothing left (covered check)\n\
         flush: the median; IPIs, left alone: CPUs, a flush\n",
        table(
            heading.map(str::to_owned).to_vec(),
            rows.iter().map(cells).collect(),
            2
        )
    )
}

/// The same for the result.
pub fn objects(rows: &[Row]) -> Vec<Value> {
    let object = |row: &Row| {
        let crowded = &row.crowded;
        json!({
            "preset": row.preset, "initiators": row.crowd.initiators, "targets": row.crowd.targets,
            "look": row.crowd.look == Look::AtGenerations,
            "flush_ns": crowded.median_ps() as f64 / 1000.0,
            "ipis": crowded.per_flush(crowded.activity.ipis_sent),
            "left_alone": crowded.per_flush(crowded.covered), "lines": crowded.per_flush(crowded.lines),
        })
    };
    rows.iter().map(object).collect()
}
