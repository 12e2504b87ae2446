//! `overcommit`: flushes where virtual CPUs share processors.

use serde_json::{Value, json};
use shootdown_sim::workload::{Overcommit, Overcommitted, Telling};

use crate::bench::columns::{Column, Format, table};
use crate::bench::program::Axes;
use crate::bench::row::{Ratio, Row, fill_ratios, stale};
use crate::bench::sim::{Findings, Run, Shape, Shapes, Simulated};
use crate::bench::workload::{InGuests, Program};
use crate::cli::Bench;
use crate::failure::Outcome;

/// The workload.
pub const PROGRAM: Program = Program {
    name: "overcommit",
    about: "Threads drop pages on virtual CPUs that share processors; on qemu in a guest of the kernel",
    default_actors: &[8, 16, 64],
    linux: super::evacuate::PROGRAM.linux,
    is_simulated_first: true,
    in_guests: Some(InGuests {
        program: "madvise",
        call: "a madvise of one page",
        columns: &[],
    }),
    default_policies: TELLINGS,
    simulated: Ok(Simulated {
        preset: "kvm-2-to-1",
        policies: TELLINGS,
        has_load: false,
        isolates: false,
        shapes,
        measure,
    }),
    ..Program::PLAIN
};

/// What tells CPUs of a flush.
const TELLINGS: [&str; 3] = [
    Telling::Interrupts.name(),
    Telling::Kvm.name(),
    Telling::Best.name(),
];

const COLUMNS: [Column; 11] = [
    Column::new("threads", "vCPUs", Format::Actors),
    Column::new("policy", "flushes by", Format::Words),
    Column::new("median_ns", "median us", Format::Micros),
    Column::new("p99_ns", "p99 us", Format::Micros),
    Column::new("ratio", "/ interrupts", Format::Digits(4)),
    Column::new("late_percent", "late %", Format::Percent),
    Column::new("own_percent", "own turn %", Format::Percent),
    Column::new("ipis_per_op", "IPIs/op", Format::Digits(2)),
    Column::new("taken_per_op", "taken/op", Format::Digits(2)),
    Column::new("iterations", "calls", Format::Digits(0)),
    Column::new("stale", "stale", Format::Digits(0)),
];
const RATIO: Ratio = Ratio::new("ratio", "p99_ns", &[("policy", "interrupts")]);
/// More virtual CPUs are not asked for.
const MOST_CPUS: u32 = 512;
/// How long a row takes, in picoseconds: where one thread calls, and where all do; a look takes less.
const SPANS_PS: [u64; 2] = [4_000_000_000_000, 400_000_000_000];
const QUICK: u64 = 8;

fn shapes(bench: &Bench, axes: &Axes) -> Outcome<Shapes> {
    Shapes::of_threads(
        bench,
        axes,
        ("drops one page a call", "virtual CPU"),
        MOST_CPUS,
    )
}

fn measure(run: &Run<'_>) -> Findings {
    let steps = run.steps(2);
    let of = |callers: &str, span_ps: u64| {
        let quick = if run.bench.quick { QUICK } else { 1 };
        let mut rows = run.rows(&steps, |shape| {
            row(run, shape, callers == "all", span_ps / quick)
        });
        fill_ratios(&mut rows, &[RATIO]);
        rows
    };
    let (one, all) = (of("one", SPANS_PS[0]), of("all", SPANS_PS[1]));
    let tables = format!(
        "{}{}\
         A call is measured from begin to end on the initiator's clock: turns that its virtual CPU waits for count, in every row.\n\
         late: calls of half a millisecond and more, which waited for a turn; own turn: those whose own virtual CPU did.\n\
         kvm: as kvm_flush_tlb_multi, policy published; interrupts, best: policy best; both flush by the page where they interrupt\n",
        titled(run, "one thread calls", &one),
        titled(run, "all threads call", &all),
    );
    let rows = [one, all].concat();
    Findings {
        tables,
        stale: Some(stale(&rows)),
        rows,
        ..Findings::default()
    }
}

fn titled(run: &Run<'_>, who: &str, rows: &[Row]) -> String {
    format!(
        "\novercommit on the simulated machine {}: {who}, {} virtual CPUs a processor; virtual us a madvise of one page\n{}\n",
        run.setup.preset.name,
        run.setup.costs.hosting.vcpus,
        table(&COLUMNS, rows)
    )
}

fn row(run: &Run<'_>, shape: Shape<'_>, all_call: bool, span_ps: u64) -> Value {
    let row = Overcommit {
        cpus: shape.actors,
        callers: if all_call { shape.actors } else { 1 },
        telling: Telling::named(shape.policy).expect("checked with the axes"),
        costs: run.setup.costs.clone(),
        seed: run.bench.seed,
        span_ps,
    };
    figures(run, &row, &row.run())
}

fn figures(run: &Run<'_>, row: &Overcommit, measured: &Overcommitted) -> Value {
    let (late, own) = measured.late();
    let samples: Vec<u64> = measured.samples.iter().map(|it| it.whole_ps).collect();
    json!({
        "cpus": row.cpus, "callers": row.callers,
        "median_ns": measured.quantile_ns(500), "p99_ns": measured.quantile_ns(990),
        "min_ns": measured.quantile_ns(0), "max_ns": measured.quantile_ns(1000),
        "ratio": null,
        "late_percent": late * 100.0, "own_percent": own * 100.0,
        "ipis_per_op": measured.per_call(measured.stats.ipis_sent),
        "taken_per_op": measured.per_call(measured.host.taken),
        "entries_per_op": measured.per_call(measured.host.entries),
        "entry_flushes_per_op": measured.per_call(measured.host.flushes),
        "stale": measured.stale, "iterations": measured.samples.len(),
        "counters": run.counters(&measured.stats, |count| measured.per_call(count)),
        "samples": run.samples(&samples),
    })
}
