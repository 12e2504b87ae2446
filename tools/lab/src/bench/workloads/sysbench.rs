//! `sysbench`, the other workload of table T1 as published: Debian's program; and its imitation on the simulated machine.

use serde_json::{Value, json};
use shootdown::Policy;
use shootdown_sim::workload::{FileWrites, FilesWritten, PUBLISHED_FILE_WRITES};

use super::dirtysync::SYNCS;
use crate::bench::columns::{Column, Format};
use crate::bench::program::{Axes, Merge, Metric};
use crate::bench::row::{Row, median};
use crate::bench::sim::{Findings, Run, Shape, Shapes, Simulated};
use crate::bench::workload::{OnLinux, OwnEffort, Program};
use crate::cli::Bench;
use crate::failure::{Failure, Outcome};
use crate::protocol::Object;

/// The workload.
pub const PROGRAM: Program = Program {
    name: "sysbench",
    about: "Debian's sysbench writes at random to mapped files and syncs them (T1 as published; ./lab image sysbench)",
    default_actors: &[1, 2],
    default_pages: &[4],
    image: Some("sysbench"),
    // A slice is a run of the program.
    effort: Some(OwnEffort {
        quick: [3000, 2, 1, 1],
        whole: [3000, 5, 1, 3],
    }),
    linux: OnLinux::WithDisk,
    title: |pages| {
        format!(
            "sysbench fileio: random writes of {pages} to mapped files, synced every 100; ns an event"
        )
    },
    columns: &COLUMNS,
    metrics: &[ELAPSED],
    notes,
    counters: SYNCS,
    linux_note: Some(
        "on Linux the files are on ext4 on a disk in memory: its msync goes through a file system and a block device, ours through neither",
    ),
    simulated: Ok(Simulated {
        preset: "haswell-ep",
        policies: Program::PLAIN.default_policies,
        has_load: false,
        isolates: false,
        shapes,
        measure,
    }),
    ..Program::PLAIN
};

/// The time that events took, of all runs together.
const ELAPSED: Metric = ("elapsed_ms", Merge::Sum);
const COLUMNS: [Column; 4] = [
    Column::new("iterations", "events", Format::Digits(0)),
    Column::new(ELAPSED.0, "ms of all", Format::Digits(0)),
    Column::new("per_s", "events a second", Format::Digits(0)),
    Column::new("per_s_ratio", "/ before", Format::Digits(3)),
];

fn notes(_: &[Row], about: Option<&Object>) -> Vec<String> {
    let number = |key: &str| {
        about
            .and_then(|about| about.get(key)?.as_u64())
            .unwrap_or(0)
    };
    vec![format!(
        "{} files of {} MiB together; a sync of all of them every {} writes, and one at the end of each run of {} events: an event is a write or a sync",
        number("files"),
        number("file_mib"),
        number("writes_a_sync"),
        number("events"),
    )]
}

/// What sysbench does without a choice: its files, and its writes between two syncs of all.
const FILES: usize = 128;
const WRITES: usize = 100;
/// Pages of a file in the simulation: 32 MiB together.
const FILE_PAGES: usize = 64;
/// What an event takes besides faults, system calls and flushes: the one figure that is fitted, to T1's events of `before` with four threads.
const EVENT_PS: u64 = 12_150_000;
const EVENTS: usize = 20_000;
/// As many runs as there are seeds are a row; the least and the greatest of them are its interval.
const SEEDS: u64 = 8;
const QUICK: usize = 10;
const MOST_THREADS: u32 = 64;
/// T1's authors had four.
const PUBLISHED_THREADS: usize = 4;
const TEN_SECONDS_PS: f64 = 1e13;

const SIMULATED: [Column; 11] = [
    Column::new("threads", "threads", Format::Actors),
    Column::new("policy", "policy", Format::Words),
    Column::new("flushes", "flushes of a sync", Format::Words),
    Column::new("median_ns", "ns an event", Format::Digits(0)),
    Column::new("thousands", "thousand events in 10 s", Format::Digits(1)),
    Column::new("published_thousands", "T1's own", Format::Digits(1)),
    Column::new("more", "more than before, %", Format::Change),
    Column::new("more_least", "least", Format::Change),
    Column::new("more_most", "most", Format::Change),
    Column::new("dirty", "pages/event", Format::Digits(2)),
    Column::new("ipis_per_op", "IPIs/event", Format::Digits(2)),
];

fn shapes(bench: &Bench, axes: &Axes) -> Outcome<Shapes> {
    let mut threads = axes.actors.clone();
    if bench.threads.is_none() {
        threads = vec![PUBLISHED_THREADS as u32];
    }
    if bench.cpus.is_some() || threads.iter().any(|threads| *threads > MOST_THREADS) {
        return Err(Failure::input(
            "sysbench has a simulated CPU for each thread, and no more",
            format!("use --threads alone, 1 to {MOST_THREADS}"),
        ));
    }
    let most = threads.iter().max().copied().unwrap_or(1);
    Ok(Shapes::new(most as usize, &threads, &axes.pages))
}

fn measure(run: &Run<'_>) -> Findings {
    let ways = [false, true];
    let steps = run.steps(ways.len());
    let mut rows = Vec::new();
    for is_one_flush in ways {
        let first = rows.len();
        rows.extend(run.rows(&steps, |shape| row(run, shape, is_one_flush)));
        compare(&mut rows[first..]);
    }
    let what = format!(
        "a write; {WRITES} writes, then a sync of each of {FILES} files; virtual ns of a thread's event, medians of {SEEDS} runs"
    );
    Findings {
        tables: run.table_a_page(&rows, &SIMULATED, &what) + BELOW,
        rows,
        ..Findings::default()
    }
}

const BELOW: &str = "page: each dirty page is flushed alone, as Linux does; sync: all of a sync in one request, as the reference kernel does\n\
    T1's own: events of a thread in 10 s, in thousands. What an event takes besides is fitted to its figure for before, with page\n";

fn row(run: &Run<'_>, shape: Shape<'_>, is_one_flush: bool) -> Value {
    let quick = if run.bench.quick { QUICK } else { 1 };
    let case = |seed| FileWrites {
        threads: shape.actors,
        pages: shape.pages,
        files: (FILES, FILE_PAGES),
        writes: WRITES,
        is_one_flush,
        policy: Policy::from_name(shape.policy).expect("checked with the axes"),
        costs: run.setup.costs.clone(),
        event_ps: EVENT_PS,
        seed: run.bench.seed + seed,
        events: EVENTS / quick,
    };
    let runs: Vec<FilesWritten> = (1..=SEEDS).map(|seed| case(seed).run()).collect();
    let event_ns = |found: &FilesWritten| {
        let events = found.samples_ps.len() as f64 / shape.actors as f64;
        found.elapsed_ps as f64 / 1000.0 / events
    };
    let of_runs: Vec<f64> = runs.iter().map(event_ns).collect();
    let events: usize = runs.iter().map(|found| found.samples_ps.len()).sum();
    let an_event = |count: fn(&FilesWritten) -> u64| {
        runs.iter().map(count).sum::<u64>() as f64 / events as f64
    };
    let median_ns = median(of_runs.iter().copied()).unwrap_or(0.0);
    let of_published = |&&(policy, _): &&(&str, f64)| {
        let is_published = run.is_published && shape.actors == PUBLISHED_THREADS && !is_one_flush;
        is_published && policy == shape.policy
    };
    let published = PUBLISHED_FILE_WRITES.iter().find(of_published);
    let last = &runs[runs.len() - 1];
    json!({
        "median_ns": median_ns, "of_runs_ns": of_runs, "iterations": events, "stale": 0,
        "flushes": if is_one_flush { "sync" } else { "page" },
        "thousands": TEN_SECONDS_PS / median_ns / 1e6,
        "published_thousands": published.map(|(_, thousands)| *thousands),
        "syncs": an_event(|found| found.syncs), "dirty": an_event(|found| found.dirty),
        "ipis_per_op": an_event(|found| found.stats.ipis_sent),
        "counters": run.counters(&last.stats, |count| count as f64 / last.samples_ps.len() as f64),
        "samples": run.samples(&last.samples_ps),
    })
}

/// How many more events there are than under `before`, run by run: the places of writes are the same in both.
fn compare(rows: &mut [Row]) {
    let of_runs = |row: &Row| row.numbers("of_runs_ns").collect::<Vec<f64>>();
    let before: Vec<Row> = rows
        .iter()
        .filter(|row| row.text("policy") == "before")
        .cloned()
        .collect();
    for row in rows {
        let sibling = before.iter().find(|it| {
            ["threads", "pages"]
                .iter()
                .all(|key| it.number(key) == row.number(key))
        });
        let Some(sibling) = sibling else {
            continue;
        };
        let pairs = of_runs(sibling).into_iter().zip(of_runs(row));
        let more: Vec<f64> = pairs
            .map(|(before, own)| (before / own - 1.0) * 100.0)
            .collect();
        row.set("more", median(more.iter().copied()));
        row.set(
            "more_least",
            more.iter().copied().fold(f64::INFINITY, f64::min),
        );
        row.set(
            "more_most",
            more.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        );
    }
}
