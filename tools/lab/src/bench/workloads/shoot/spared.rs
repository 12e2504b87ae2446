//! What `shoot` says of targets that need no interrupt.

use serde_json::json;
use shootdown_sim::workload::{Whereabouts, on_large_stack, spared};

use crate::bench::columns::{Column, Format, micros, short, table};
use crate::bench::row::Row;
use crate::bench::sim::Setup;

/// Targets of the flush.
const TARGETS: [usize; 2] = [16, 256];
const COLUMNS: [Column; 9] = [
    Column::new("preset", "machine", Format::Words),
    Column::new("targets_are", "targets are", Format::Words),
    Column::new("targets", "targets", Format::Digits(0)),
    Column::new("flush_ns", "flush us", Format::Micros),
    Column::new("ipis", "IPIs", Format::Digits(0)),
    Column::new("register_writes", "ICR writes", Format::Digits(0)),
    Column::new("", "lines/target", Format::Of(lines_a_target)),
    Column::new(
        "",
        "in and out us",
        Format::Of(|row| way(row, "in_and_out_ns")),
    ),
    Column::new(
        "",
        "out after it us",
        Format::Of(|row| way(row, "out_after_ns")),
    ),
];

/// A flush for each machine, number of targets, and place where these are.
pub fn measure(setups: &[Setup]) -> Vec<Row> {
    let mut rows = Vec::new();
    for setup in setups {
        for targets in TARGETS {
            for whereabouts in Whereabouts::ALL {
                let it = on_large_stack(|| spared(whereabouts, targets, &setup.costs));
                rows.push(Row::of(json!({
                    "preset": setup.preset.name, "targets_are": whereabouts.name(), "targets": targets,
                    "flush_ns": it.time_ps as f64 / 1000.0,
                    "ipis": it.activity.ipis_sent,
                    "register_writes": it.activity.register_writes, "lines": it.lines,
                    "in_and_out_ns": it.way_ps as f64 / 1000.0,
                    "out_after_ns": it.catch_up_ps as f64 / 1000.0,
                })));
            }
        }
    }
    rows
}

/// The table.
pub fn render(rows: &[Row]) -> String {
    format!(
        "\none flush of one page of a space that all have loaded, under best with deferral\n{}\n\
         in and out: what deferral adds to a system call; out after it: if a flush was missed\n",
        table(&COLUMNS, rows)
    )
}

fn lines_a_target(row: &Row) -> Option<String> {
    Some(short(row.number("lines")? / row.number("targets")?))
}

/// Only from the kernel is there a way out.
fn way(row: &Row, key: &str) -> Option<String> {
    let is_there = row.text("targets_are") == Whereabouts::Kernel.name();
    is_there.then(|| micros(row.number(key).unwrap_or(0.0)))
}
