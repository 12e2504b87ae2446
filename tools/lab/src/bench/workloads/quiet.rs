//! `quiet`: CPUs in user mode that are to be left alone, while others do the kernel's work.

use serde_json::{Value, json};
use shootdown_sim::timed::Activity;
use shootdown_sim::workload::{LeftAlone, Quiet, Quieted};

use crate::bench::columns::{Column, Format, table};
use crate::bench::program::Axes;
use crate::bench::row::{Row, stale};
use crate::bench::sim::{Findings, Run, Shape, Shapes, Simulated};
use crate::bench::workload::{OnLinux, Program};
use crate::cli::Bench;
use crate::failure::Outcome;

/// The workload.
pub const PROGRAM: Program = Program {
    name: "quiet",
    about: "CPUs in user mode that are to be left alone, while others unmap kernel stacks, post and change text (table T3)",
    default_actors: &[2, 16, 64],
    linux: OnLinux::Never("it is simulated only"),
    is_simulated_first: true,
    default_policies: ROWS,
    simulated: Ok(Simulated {
        preset: "40-core",
        policies: ROWS,
        has_load: false,
        isolates: false,
        shapes,
        measure,
    }),
    ..Program::PLAIN
};

/// How they are left alone.
const ROWS: [&str; 3] = [
    LeftAlone::Not.name(),
    LeftAlone::Quiet.name(),
    LeftAlone::QuietOwn.name(),
];

const COLUMNS: [Column; 13] = [
    Column::new("threads", "CPUs", Format::Actors),
    Column::new("quiet_cpus", "in user mode", Format::Digits(0)),
    Column::new("calls_per_s", "with calls/s", Format::Digits(0)),
    Column::new("policy", "these are", Format::Words),
    Column::new("ipis_per_s", "IPIs/s in user mode", Format::Short),
    Column::new("call_ipis_per_s", "in their calls", Format::Short),
    Column::new("other_ipis_per_s", "elsewhere", Format::Short),
    Column::new("mean_ns", "mean us", Format::Micros),
    Column::new("drops_percent", "drops %", Format::Percent),
    Column::new("passage_ns", "passage ns", Format::Digits(0)),
    Column::new("refill_ns", "refill ns", Format::Digits(0)),
    Column::new("lost_us_per_s", "lost us/s", Format::Short),
    Column::new("stale", "stale", Format::Digits(0)),
];
const CALLS_PER_S: [u64; 2] = [0, 1000];
const SPAN_PS: u64 = 4_000_000_000_000;
const QUICK: u64 = 8;
const MOST_CPUS: u32 = 256;

fn shapes(bench: &Bench, axes: &Axes) -> Outcome<Shapes> {
    Shapes::of_threads(
        bench,
        axes,
        ("unmaps one stack at a time", "CPU"),
        MOST_CPUS,
    )
}

fn measure(run: &Run<'_>) -> Findings {
    let steps = run.steps(CALLS_PER_S.len());
    let of = |calls| run.rows(&steps, |shape| row(run, shape, calls));
    let rows: Vec<Row> = CALLS_PER_S.into_iter().flat_map(of).collect();
    let tables = format!(
        "\nquiet on the simulated machine {}: virtual us a flush of a kernel stack, with its wait\n{}\n\
         {}\n\
         drops: after so many of the system calls of a CPU in user mode all its translations are gone. passage: leave_quiet and enter_quiet of a call; refill: the walks after it;\n\
         lost: both, and interrupts, of each second of such a CPU\n",
        run.setup.preset.name,
        table(&COLUMNS, &rows),
        Quiet::LOAD,
    );
    Findings {
        tables,
        stale: Some(stale(&rows)),
        rows,
        ..Findings::default()
    }
}

fn row(run: &Run<'_>, shape: Shape<'_>, calls_per_s: u64) -> Value {
    let quick = if run.bench.quick { QUICK } else { 1 };
    let row = Quiet {
        cpus: shape.actors,
        left_alone: LeftAlone::named(shape.policy).expect("checked with the axes"),
        calls_per_s,
        costs: run.setup.costs.clone(),
        span_ps: SPAN_PS / quick,
    };
    figures(run, &row, &row.run())
}

fn figures(run: &Run<'_>, row: &Quiet, measured: &Quieted) -> Value {
    let seconds = row.span_ps as f64 / 1e12;
    let flushes = measured.flushes.len() as f64;
    let (others, quiet) = measured.activities.split_at(row.cpus - row.quiet_cpus());
    let mean = |of: &[Activity], figure: fn(&Activity) -> u64| {
        of.iter().map(figure).sum::<u64>() as f64 / of.len() as f64 / seconds
    };
    let calls = measured.calls.max(1) as f64;
    let [passage_ns, refill_ns] =
        [measured.passages_ps, measured.refills_ps].map(|ps| ps as f64 / calls / 1e3);
    let lost_ps = mean(quiet, |it| it.handler_ps)
        + (measured.passages_ps + measured.refills_ps) as f64 / quiet.len() as f64 / seconds;
    let user_ipis_per_s = measured.user_ipis as f64 / row.quiet_cpus() as f64 / seconds;
    json!({
        "cpus": row.cpus, "quiet_cpus": row.quiet_cpus(),
        "ipis_per_s": user_ipis_per_s,
        "call_ipis_per_s": mean(quiet, |it| it.ipis_taken) - user_ipis_per_s,
        "other_ipis_per_s": mean(others, |it| it.ipis_taken),
        "mean_ns": measured.flushes.iter().sum::<u64>() as f64 / flushes / 1e3,
        "calls_per_s": row.calls_per_s,
        "drops_percent": measured.drops as f64 / calls * 100.0,
        "passage_ns": passage_ns, "refill_ns": refill_ns,
        "lost_us_per_s": lost_ps / 1e6,
        "stale": measured.stale, "iterations": measured.flushes.len(),
        "counters": run.counters(&measured.stats, |count| count as f64 / flushes),
        "samples": run.samples(&measured.flushes),
    })
}
