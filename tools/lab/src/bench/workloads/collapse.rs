//! `collapse`: page tables that are freed and reused while other CPUs read them without their lock.

use serde_json::{Value, json};
use shootdown_sim::workload::{Collapse, Collapsed, WaitedFor};

use crate::bench::columns::{Column, Format, table};
use crate::bench::program::Axes;
use crate::bench::row::Row;
use crate::bench::sim::{Findings, Run, Shape, Shapes, Simulated};
use crate::bench::workload::{InGuests, Program};
use crate::cli::Bench;
use crate::failure::Outcome;

/// The workload.
pub const PROGRAM: Program = Program {
    name: "collapse",
    about: "Page tables are freed while other CPUs read them without their lock; on qemu in a guest of the kernel",
    default_actors: &[16, 64],
    linux: super::overcommit::PROGRAM.linux,
    is_simulated_first: true,
    in_guests: Some(InGuests {
        program: "collapse",
        call: "a munmap of a whole page table",
        columns: &[Column::new(
            "walks_per_op",
            "walks waited for/op",
            Format::Digits(2),
        )],
    }),
    default_policies: super::overcommit::PROGRAM.default_policies,
    simulated: Ok(Simulated {
        preset: "40-core",
        policies: WAITS,
        has_load: false,
        isolates: false,
        shapes,
        measure,
    }),
    ..Program::PLAIN
};

/// How walkers are waited for.
const WAITS: [&str; 3] = [
    WaitedFor::ByInterrupt.name(),
    WaitedFor::BySync.name(),
    WaitedFor::ByMark.name(),
];

const COLUMNS: [Column; 8] = [
    Column::new("threads", "CPUs", Format::Actors),
    Column::new("policy", "walkers waited for by", Format::Words),
    Column::new("walkers", "walkers", Format::Digits(0)),
    Column::new("ipis_per_op", "IPIs/collapse", Format::Digits(2)),
    Column::new("further_ipis", "of them further", Format::Digits(2)),
    Column::new("median_ns", "median us", Format::Micros),
    Column::new("p99_ns", "p99 us", Format::Micros),
    Column::new("walk_ns", "walk ns", Format::Digits(0)),
];
const COLLAPSES: usize = 400;
const QUICK: usize = 8;
const MOST_CPUS: u32 = 256;

fn shapes(bench: &Bench, axes: &Axes) -> Outcome<Shapes> {
    Shapes::of_threads(bench, axes, ("frees one table at a time", "CPU"), MOST_CPUS)
}

fn measure(run: &Run<'_>) -> Findings {
    let walkers: [fn(usize) -> usize; 3] = [|_| 0, |_| 1, |cpus| cpus - 1];
    let steps = run.steps(walkers.len());
    let mut rows: Vec<Row> = Vec::new();
    for count in walkers {
        rows.extend(run.rows(&steps, |shape| row(run, shape, count(shape.actors))));
    }
    let tables = format!(
        "\ncollapse on the simulated machine {}: a table is freed while others read it; virtual us from the flush to the end of its wait\n{}\n\
         interrupts: the flush comes by interrupt, and walkers leave it unanswered. sync: the flush is an instruction, then all CPUs of the space are interrupted.\n\
         marks: the flush is an instruction, and CPUs that walk at that moment are interrupted. further: those that no flush is for\n",
        run.setup.preset.name,
        table(&COLUMNS, &rows)
    );
    Findings {
        tables,
        rows,
        ..Findings::default()
    }
}

fn row(run: &Run<'_>, shape: Shape<'_>, walkers: usize) -> Value {
    let quick = if run.bench.quick { QUICK } else { 1 };
    let row = Collapse {
        cpus: shape.actors,
        walkers,
        waited_for: WaitedFor::named(shape.policy).expect("checked with the axes"),
        costs: run.setup.costs.clone(),
        collapses: COLLAPSES / quick,
    };
    figures(run, &row, &row.run())
}

fn figures(run: &Run<'_>, row: &Collapse, measured: &Collapsed) -> Value {
    let per_collapse = |count: u64| count as f64 / row.collapses as f64;
    let ipis = per_collapse(measured.stats.ipis_sent);
    let further = match row.waited_for {
        WaitedFor::ByInterrupt => 0.0,
        WaitedFor::BySync | WaitedFor::ByMark => ipis,
    };
    let (walks, time_ps) = measured.walks;
    json!({
        "cpus": row.cpus, "walkers": row.walkers,
        "median_ns": measured.quantile_ns(500), "p99_ns": measured.quantile_ns(990),
        "ipis_per_op": ipis, "further_ipis": further,
        "walk_ns": time_ps as f64 / walks.max(1) as f64 / 1000.0,
        "iterations": row.collapses, "stale": 0,
        "counters": run.counters(&measured.stats, per_collapse),
        "samples": run.samples(&measured.samples),
    })
}
