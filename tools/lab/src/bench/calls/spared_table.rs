//! What `bench shoot` says of targets that need no interrupt.

use serde_json::{Value, json};
use shootdown_sim::workload::{Spared, Whereabouts, on_large_stack, spared};

use super::text::{count, table, time};
use crate::bench::sim::Setup;

/// Targets of the flush.
const TARGETS: [usize; 2] = [16, 256];

/// One flush.
#[derive(Debug)]
pub struct Row {
    preset: &'static str,
    targets: usize,
    whereabouts: Whereabouts,
    spared: Spared,
}

/// A flush for each machine, number of targets, and place where these are.
pub fn measure(setups: &[Setup]) -> Vec<Row> {
    let mut rows = Vec::new();
    for setup in setups {
        for targets in TARGETS {
            for whereabouts in Whereabouts::ALL {
                rows.push(Row {
                    preset: setup.preset().name,
                    targets,
                    whereabouts,
                    spared: on_large_stack(|| spared(whereabouts, targets, setup.costs())),
                });
            }
        }
    }
    rows
}

/// The table.
pub fn render(rows: &[Row]) -> String {
    let heading = [
        "machine",
        "targets are",
        "targets",
        "flush",
        "IPIs",
        "ICR writes",
        "lines a target",
        "in and out",
        "out after it",
    ];
    let cells = |row: &Row| {
        let Spared {
            time_ps,
            activity,
            lines,
            way_ps,
            catch_up_ps,
        } = row.spared;
        let way = |ps: u64| match row.whereabouts {
            Whereabouts::Kernel => time(ps as f64 / 1000.0),
            _ => "-".into(),
        };
        vec![
            row.preset.to_owned(),
            row.whereabouts.name().to_owned(),
            row.targets.to_string(),
            time(time_ps as f64 / 1000.0),
            activity.ipis_sent.to_string(),
            activity.register_writes.to_string(),
            count(lines as f64 / row.targets as f64),
            way(way_ps),
            way(catch_up_ps),
        ]
    };
    format!(
        "\none flush of one page of a space that all have loaded, under best with deferral\n{}\n\
         in and out: what deferral adds to a system call; out after it: if a flush was missed\n",
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
        json!({
            "preset": row.preset, "targets_are": row.whereabouts.name(), "targets": row.targets,
            "flush_ns": row.spared.time_ps as f64 / 1000.0,
            "ipis": row.spared.activity.ipis_sent,
            "register_writes": row.spared.activity.register_writes, "lines": row.spared.lines,
            "in_and_out_ns": row.spared.way_ps as f64 / 1000.0,
            "out_after_ns": row.spared.catch_up_ps as f64 / 1000.0,
        })
    };
    rows.iter().map(object).collect()
}
