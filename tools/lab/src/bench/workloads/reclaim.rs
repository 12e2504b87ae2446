//! `reclaim`: pages of many spaces are unmapped, and flushed by one request or by one a space.

use serde_json::{Value, json};
use shootdown_sim::workload::{Reclaim, Reclaimed, ReclaimedBy};

use crate::bench::columns::{Column, Format, table};
use crate::bench::program::Axes;
use crate::bench::row::Row;
use crate::bench::sim::{Findings, Run, Shape, Shapes, Simulated};
use crate::bench::workload::{OnLinux, Program};
use crate::cli::Bench;
use crate::failure::Outcome;

/// The workload.
pub const PROGRAM: Program = Program {
    name: "reclaim",
    about: "Pages of many spaces are unmapped, and flushed by one request or by one a space",
    default_actors: &[2, 16, 128],
    linux: OnLinux::Never("it is simulated only"),
    is_simulated_first: true,
    default_policies: WAYS,
    simulated: Ok(Simulated {
        preset: "40-core",
        policies: WAYS,
        has_load: false,
        isolates: false,
        shapes,
        measure,
    }),
    ..Program::PLAIN
};

/// How the pages are flushed.
const WAYS: [&str; 3] = [
    ReclaimedBy::Flushes.name(),
    ReclaimedBy::Reclaim.name(),
    ReclaimedBy::Published.name(),
];

const COLUMNS: [Column; 7] = [
    Column::new("threads", "CPUs", Format::Actors),
    Column::new("policy", "flushed by", Format::Words),
    Column::new("spaces", "spaces", Format::Digits(0)),
    Column::new("requests", "requests/batch", Format::Digits(2)),
    Column::new("ipis_per_page", "IPIs/page", Format::Digits(2)),
    Column::new("median_ns", "median us", Format::Micros),
    Column::new("p99_ns", "p99 us", Format::Micros),
];
/// Pages of a batch: Linux's `SWAP_CLUSTER_MAX` is 32, and a folio batch has 31.
const PAGES: usize = 64;
const SPACES: [usize; 3] = [1, 8, 64];
const BATCHES: usize = 200;
const QUICK: usize = 8;
const MOST_CPUS: u32 = 256;

fn shapes(bench: &Bench, axes: &Axes) -> Outcome<Shapes> {
    let does = format!("unmaps {PAGES} pages at a time");
    Shapes::of_threads(bench, axes, (&does, "CPU"), MOST_CPUS)
}

fn measure(run: &Run<'_>) -> Findings {
    let steps = run.steps(SPACES.len());
    let mut rows: Vec<Row> = Vec::new();
    for spaces in SPACES {
        rows.extend(run.rows(&steps, |shape| row(run, shape, spaces)));
    }
    let tables = format!(
        "\nreclaim on the simulated machine {}: {PAGES} pages of so many spaces are unmapped and flushed; virtual us from the first to the end of the wait\n{}\n\
         flushes: a request for each space. reclaim: one for all. published: the same under T1 to T5 as published\n",
        run.setup.preset.name,
        table(&COLUMNS, &rows)
    );
    Findings {
        tables,
        rows,
        ..Findings::default()
    }
}

fn row(run: &Run<'_>, shape: Shape<'_>, spaces: usize) -> Value {
    let quick = if run.bench.quick { QUICK } else { 1 };
    let row = Reclaim {
        cpus: shape.actors,
        spaces,
        pages: PAGES,
        by: ReclaimedBy::named(shape.policy).expect("checked with the axes"),
        costs: run.setup.costs.clone(),
        batches: BATCHES / quick,
    };
    figures(run, &row, &row.run())
}

fn figures(run: &Run<'_>, row: &Reclaim, measured: &Reclaimed) -> Value {
    let per_batch = |count: u64| count as f64 / row.batches as f64;
    json!({
        "cpus": row.cpus, "spaces": row.spaces,
        "median_ns": measured.quantile_ns(500), "p99_ns": measured.quantile_ns(990),
        "requests": per_batch(measured.stats.requests_published),
        "ipis_per_page": per_batch(measured.stats.ipis_sent) / PAGES as f64,
        "iterations": row.batches, "stale": 0,
        "counters": run.counters(&measured.stats, per_batch),
        "samples": run.samples(&measured.samples),
    })
}
