//! `zerocopy`, table T2.

use serde_json::{Value, json};
use shootdown_sim::workload::{MAX_CPUS, Mapping, PublishedZerocopy, Zerocopy};

use crate::bench::columns::{Column, Format, counted, table};
use crate::bench::program::Axes;
use crate::bench::row::{REFERENCE, Ratio, Row, fill, fill_ratios, stale};
use crate::bench::sim::{Findings, Run, Shape, Shapes, Simulated, Steps};
use crate::bench::workload::{OnLinux, Program};
use crate::cli::Bench;
use crate::failure::{Failure, Outcome};

/// Pages mapped for all threads of the server, under a policy that has windows.
const ORDINARY: &str = "best+ordinary";

/// The workload.
pub const PROGRAM: Program = Program {
    name: "zerocopy",
    about: "Clients hand pages to a server on their CPU, which copies them (table T2)",
    page_bounds: (1, 256),
    default_actors: &[1, 2],
    own_policy: Some(ORDINARY),
    default_policies: [REFERENCE, ORDINARY, "best"],
    linux: OnLinux::Never("Linux has no servers that work on their clients' pages"),
    // Its table has more threads than any emulator CPUs.
    is_simulated_first: true,
    title: |pages| {
        format!("zerocopy: {pages} a call, handed to the server of the client's CPU; ns a call")
    },
    columns: &[
        PER_S,
        Column::new("per_s_ratio", "op/s / before", Format::Digits(3)),
        Column::new("", "op/s a CPU", Format::Of(per_cpu)),
    ],
    needs: Some("per_s"),
    counters: &[
        ("window flushes", "window_flushes"),
        ("at next load", "window_flushes_deferred"),
        ("tops copied", "tops_copied"),
        ("pages dropped", "pages_flushed"),
        ("full flushes", "full_flushes"),
        ("tags kept", "tags_kept"),
        ("tags dropped", "tags_dropped"),
    ],
    simulated: Ok(Simulated {
        preset: "40-core-2018",
        policies: Program::PLAIN.default_policies,
        has_load: false,
        isolates: false,
        shapes,
        measure,
    }),
    ..Program::PLAIN
};

const PER_S: Column = Column::new("per_s", "op/s", Format::Digits(0));
const SIMULATED: [Column; 13] = [
    Column::new("threads", "threads", Format::Actors),
    Column::new("policy", "policy", Format::Words),
    PER_S,
    Column::new("published_per_s", "T2's own op/s", Format::Digits(0)),
    Column::new("published_per_s", "deviation %", Format::Deviation("per_s")),
    Column::new("per_s_ratio", "/ before", Format::Digits(2)),
    Column::new("scaling_percent", "a CPU %", Format::Percent),
    Column::new("mean_ns", "call us", Format::Micros),
    Column::new("", "T2's own us", Format::Of(published_us)),
    Column::new("p99_ns", "p99 us", Format::Micros),
    Column::new("ipis_per_op", "IPIs/op", Format::Digits(2)),
    Column::new("lines_per_op", "lines/op", Format::Digits(1)),
    Column::new("stale", "stale", Format::Digits(0)),
];
/// As many threads the authors measured.
const PUBLISHED_THREADS: [u32; 9] = [1, 2, 4, 8, 12, 18, 24, 36, 48];
/// On so many CPUs.
const PUBLISHED_CPUS: i64 = 40;
/// A sweep is about so many threads, if the table goes so far: enough that all three differ.
const SWEEP_THREADS: usize = 8;
/// With `--quick`, so many times fewer operations.
const QUICK: usize = 8;
/// CPUs of the run in which processors cache what they are not asked to.
const CURIOUS_CPUS: usize = 4;

/// On the reference kernel, where each thread has a CPU.
fn per_cpu(row: &Row) -> Option<String> {
    let per_s = row.number("per_s")? / row.number("threads")?;
    Some(format!("{per_s:.0}"))
}

fn shapes(bench: &Bench, axes: &Axes) -> Outcome<Shapes> {
    if bench.pages.as_deref().is_some_and(|pages| pages != [1]) {
        return Err(Failure::input(
            "a call hands over one page on sim, as in table T2",
            "use --pages 1 there, or --machine qemu",
        ));
    }
    let is_unknown = |name: &&String| Mapping::named(name).is_none();
    if let Some(policy) = bench.policies.iter().find(is_unknown) {
        return Err(Failure::input(
            format!("{policy} is not among the systems of the simulated zerocopy"),
            "choose from before, published, best, or use --machine qemu",
        ));
    }
    let cpus = bench.cpus.unwrap_or(PUBLISHED_CPUS);
    let threads = match bench.threads {
        Some(_) => &axes.actors[..],
        None => &PUBLISHED_THREADS,
    };
    let largest = threads.last().copied().unwrap_or(0).into();
    let fits = |count: &i64| (1..=MAX_CPUS as i64).contains(count);
    if let Some(wrong) = [cpus, largest].iter().find(|count| !fits(count)) {
        return Err(Failure::input(
            format!("{wrong} CPUs or threads cannot be simulated"),
            format!("--cpus and --threads take 1 to {MAX_CPUS} on sim"),
        ));
    }
    Ok(Shapes::new(cpus as usize, threads, &[1]))
}

fn measure(run: &Run<'_>) -> Findings {
    let steps = run.steps(2);
    let mut rows = rows(run, &steps, true);
    let alone = self::rows(run, &steps, false);
    let tables = tables(run, &rows, &alone);
    rows.extend(alone);
    // The flag promises nothing: what is stale under it is no fault of a flush.
    let promised = |row: &&Row| Mapping::named(row.text("policy")) != Some(Mapping::Flagged);
    let promised: Vec<Row> = rows.iter().filter(promised).cloned().collect();
    Findings {
        tables,
        sensitivity: run.bench.sweep.then(|| sensitivity(run)),
        stale: Some(stale(&promised)),
        rows,
        ..Findings::default()
    }
}

fn rows(run: &Run<'_>, steps: &Steps, charges_shared: bool) -> Vec<Row> {
    let mut rows = run.rows(steps, |shape| row(run, shape, charges_shared));
    for row in &mut rows {
        let key = "charges_shared".to_owned();
        // Behind the axes.
        row.0.shift_insert(5, key, charges_shared.into());
    }
    fill_ratios(&mut rows, &[Ratio::to_before("per_s_ratio", "per_s")]);
    fill(&mut rows, "scaling_percent", |row, rows| {
        Some(scaling_percent(row, rows))
    });
    rows
}

fn what(run: &Run<'_>, policy: &str, threads: usize) -> Zerocopy {
    let mapping = Mapping::named(policy).expect("checked with the axes");
    let row = Zerocopy::new(mapping, threads, &run.setup.costs);
    Zerocopy {
        cpus: run.shapes.cpus,
        seed: run.bench.seed,
        iterations: row.iterations / if run.bench.quick { QUICK } else { 1 },
        ..row
    }
}

fn row(run: &Run<'_>, shape: Shape<'_>, charges_shared: bool) -> Value {
    let what = what(run, shape.policy, shape.actors);
    let what = if charges_shared { what } else { what.alone() };
    let served = what.run();
    let share = |count: u64| served.per_operation(count);
    let is_published = charges_shared && run.is_published && what.cpus == PUBLISHED_CPUS as usize;
    let published = PublishedZerocopy::with_threads(what.threads).filter(|_| is_published);
    // Nobody had windows: the flag's figure is to be reached.
    let mapping = match what.mapping {
        Mapping::Windowed => Mapping::Flagged,
        mapping => mapping,
    };
    json!({
        "median_ns": served.call_quantile_us(500) * 1000.0,
        "p99_ns": served.call_quantile_us(990) * 1000.0,
        "min_ns": served.call_quantile_us(0) * 1000.0,
        "mean_ns": served.call_mean_us() * 1000.0,
        "per_s": served.per_s(),
        "published_per_s": published.and_then(|published| published.per_s(mapping)),
        "per_s_ratio": null, "scaling_percent": null,
        "ipis_per_op": share(served.activity.ipis_sent), "lines_per_op": share(served.lines),
        "stale": served.stale, "iterations": served.operations,
        "counters": run.counters(&served.stats, share),
        "samples": run.samples(&served.calls_ps),
    })
}

/// Operations a second of each busy CPU, in percent of a lone one's.
fn scaling_percent(row: &Row, rows: &[Row]) -> Option<f64> {
    let one = row.sibling(rows, &[("threads", 1.into())])?;
    let busy_cpus = row.number("threads")?.min(row.number("cpus")?);
    Some(row.number("per_s")? / busy_cpus / one.number("per_s")? * 100.0)
}

/// The time of a call that the authors measured.
fn published_us(row: &Row) -> Option<String> {
    row.number("published_per_s")?;
    let published = PublishedZerocopy::with_threads(row.count("threads") as usize)?;
    let us = match Mapping::named(row.text("policy"))? {
        Mapping::Ordinary => published.call_us[0],
        Mapping::Flagged | Mapping::Windowed => published.call_us[1],
    };
    Some(format!("{us:.1}"))
}

fn tables(run: &Run<'_>, rows: &[Row], alone: &[Row]) -> String {
    format!(
        "\nzerocopy on the simulated machine {}, {}: a call hands a page of 4 KiB to the server of its CPU, which copies it\n\
         {}\n\
         before: an ordinary mapping, flushed on every CPU that has the server's space loaded, under Policy::BEFORE\n\
         published: the same with the flag, flushed here only: a model of the workload's and unsound\n\
         best: a window of this CPU's private root, under Policy::BEST\n\
         T2's own: what its author measured on silicon, without the flag (before) and with it (published); best, which T2 does not have, stands beside those with it\n{}\
         \nalone: without what the published system's calls share besides page tables (shared_lines, shared_serial_ns), each client a \
         process of its own\n{}\n",
        run.setup.preset.name,
        counted(run.shapes.cpus, "CPUs"),
        table(&SIMULATED, rows),
        curious(run),
        table(&SIMULATED, alone),
    )
}

/// What comes of it when processors cache what nobody asked them to.
fn curious(run: &Run<'_>) -> String {
    let stale = |policy: &String| {
        let row = Zerocopy {
            looks_next_door: true,
            ..what(run, policy, CURIOUS_CPUS)
        };
        format!("{policy} {}", row.run().stale)
    };
    let stale: Vec<String> = run.bench.policies.iter().map(stale).collect();
    format!(
        "where each of {CURIOUS_CPUS} CPUs also caches its neighbour's window, as a processor may that has it in its page \
         tables, stale accesses: {}\n",
        stale.join(", ")
    )
}

fn sensitivity(run: &Run<'_>) -> String {
    let threads = &run.shapes.actors;
    let fits = |threads: &&usize| **threads <= SWEEP_THREADS;
    let threads = *threads.iter().rfind(fits).unwrap_or(&threads[0]);
    let title = format!("{}, ns between two operations", counted(threads, "threads"));
    run.sensitivity(&title, |policy| {
        let row = what(run, policy, threads);
        let iterations = row.iterations.min(Run::SWEEP_ITERATIONS);
        Zerocopy { iterations, ..row }
    })
}
