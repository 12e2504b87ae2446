//! `threads`: threads that change memory of their own, beside each other.

use serde_json::{Value, json};
use shootdown_sim::workload::{Discarded, Peer, Threads, on_large_stack};

use crate::bench::columns::{Column, Format, table};
use crate::bench::program::{Axes, Merge};
use crate::bench::row::{Ratio, Row, stale};
use crate::bench::sim::{Findings, Run, Shape, Shapes, Simulated};
use crate::bench::workload::Program;
use crate::cli::Bench;
use crate::failure::{Failure, Outcome};

/// The workload.
pub const PROGRAM: Program = Program {
    name: "threads",
    about: "All threads change memory of their own, or share a part of it, again and again",
    default_actors: &[1, 2],
    operations: &[
        "discard",
        "map",
        "malloc",
        "stack",
        "freed",
        "shared-1",
        "shared-10",
        "shared-100",
    ],
    own_policy: Some(FREEBSD),
    default_policies: ["before", UNTRACKED, "best"],
    title: |pages| format!("threads: {pages} an operation, all threads at once; ns an operation"),
    columns: &[
        Column::new("per_s", "operations/s", Format::Digits(0)),
        Column::new("scaling", "/ one thread", Format::Digits(2)),
        Column::new("per_s_ratio_to_untracked", "/ untracked", Format::Digits(2)),
        Column::new("per_s_ratio_to_linux", "/ linux", Format::Digits(2)),
    ],
    metrics: &[
        ("scaling", Merge::Ratio),
        ("per_s_ratio_to_untracked", Merge::Ratio),
        ("per_s_ratio_to_linux", Merge::Ratio),
    ],
    ratios: &[
        Ratio::new("scaling", "per_s", &[("threads", "1")]),
        Ratio::new(
            "per_s_ratio_to_untracked",
            "per_s",
            &[("policy", UNTRACKED)],
        ),
        Ratio::new(
            "per_s_ratio_to_linux",
            "per_s",
            &[("machine", "linux"), ("policy", "linux")],
        ),
    ],
    needs: Some("per_s"),
    counters: &[
        ("regions taken", "regions_taken"),
        ("given up", "regions_given_up"),
        ("pages dropped", "pages_flushed"),
        ("full flushes", "full_flushes"),
    ],
    notes: |_, _| {
        vec![
            "untracked: best in spaces that are not tracked; before: likewise".into(),
            "shared-1, -10, -100: so many of a hundred discards are of pages that all threads read"
                .into(),
        ]
    },
    simulated: Ok(Simulated {
        preset: "large-server",
        policies: [LINUX, UNTRACKED, "best"],
        has_load: false,
        isolates: false,
        shapes,
        measure,
    }),
    ..Program::PLAIN
};

/// The row of `best` without tracked spaces.
const UNTRACKED: &str = "untracked";
/// Rows on the simulated machine besides these two and `best`: other kernels' calls.
const LINUX: &str = Peer::CallQueues.name();
const FREEBSD: &str = Peer::Scoreboard.name();

const SIMULATED: [Column; 9] = [
    Column::new("threads", "threads", Format::Actors),
    Column::new("shared_percent", "shared %", Format::Digits(0)),
    Column::new("lock", "lock", Format::Words),
    Column::new("policy", "policy", Format::Words),
    Column::new("per_us", "operations/us", Format::Digits(2)),
    Column::new("linear", "/ linear", Format::Digits(3)),
    Column::new("median_ns", "median ns", Format::Digits(0)),
    Column::new("p99_ns", "p99 ns", Format::Digits(0)),
    Column::new("ipis_per_op", "IPIs/op", Format::Digits(2)),
];
const SHARES: [u64; 4] = [0, 1, 10, 100];
const SIMULATED_THREADS: [u32; 4] = [2, 16, 64, 192];
const MOST_THREADS: u32 = 192;
/// Operations of a thread: the most, and how many interrupts all of a row may cost.
const OPERATIONS: usize = 400;
const INTERRUPTS: usize = 400_000;
const LEAST: usize = 6;
const QUICK: usize = 4;

fn shapes(bench: &Bench, axes: &Axes) -> Outcome<Shapes> {
    let mut threads = axes.actors.clone();
    if bench.threads.is_none() {
        threads = SIMULATED_THREADS.to_vec();
    }
    let rows = [LINUX, FREEBSD, UNTRACKED, "best"];
    let is_known = |policy: &String| rows.contains(&policy.as_str());
    let is_whole = bench.cpus.is_none()
        && axes.pages == [1]
        && threads.iter().all(|threads| *threads <= MOST_THREADS)
        && bench.policies.iter().all(is_known);
    if !is_whole {
        return Err(Failure::input(
            "threads discard one page each on sim, with a CPU for each",
            format!(
                "use --threads alone, 1 to {MOST_THREADS}, and --policies of {}",
                rows.join(", ")
            ),
        ));
    }
    let most = threads.iter().max().copied().unwrap_or(1);
    Ok(Shapes::new(most as usize, &threads, &[1]))
}

fn measure(run: &Run<'_>) -> Findings {
    let steps = run.steps(SHARES.len() * 2);
    let mut rows: Vec<Row> = Vec::new();
    for shared_percent in SHARES {
        for has_lock in [false, true] {
            rows.extend(run.rows(&steps, |shape| {
                figures(run, &what(run, shape, shared_percent, has_lock))
            }));
        }
    }
    let tables = format!(
        "\nthreads on the simulated machine {}: each discards its own page and writes to it, or so many of a hundred times one that all read; virtual time\n{}\n\
         lock: page tables are changed under one lock of the space. linear: the rate of one thread, without a lock and sharing nothing, by their number.\n",
        run.setup.preset.name,
        table(&SIMULATED, &rows)
    );
    Findings {
        tables,
        stale: Some(stale(&rows)),
        rows,
        ..Findings::default()
    }
}

fn what(run: &Run<'_>, shape: Shape<'_>, shared_percent: u64, has_lock: bool) -> Threads {
    let peer = match shape.policy {
        LINUX => Peer::CallQueues,
        FREEBSD => Peer::Scoreboard,
        _ => Peer::Shootdown,
    };
    let is_tracked = shape.policy == "best";
    let others = match is_tracked {
        true => (shape.actors - 1) * shared_percent as usize / 100,
        false => shape.actors - 1,
    };
    let quick = if run.bench.quick { QUICK } else { 1 };
    let bearable = INTERRUPTS / quick / shape.actors / others.max(1);
    Threads {
        cpus: shape.actors,
        peer,
        is_tracked,
        has_lock,
        shared_percent,
        costs: run.setup.costs.clone(),
        seed: run.bench.seed,
        operations: bearable.clamp(LEAST, OPERATIONS),
    }
}

fn figures(run: &Run<'_>, row: &Threads) -> Value {
    let run_alone = Threads {
        cpus: 1,
        has_lock: false,
        shared_percent: 0,
        operations: OPERATIONS,
        ..row.clone()
    };
    let (alone, found): (Discarded, Discarded) = on_large_stack(|| (run_alone.run(), row.run()));
    json!({
        "operation": format!("shared-{}", row.shared_percent), "shared_percent": row.shared_percent,
        "lock": if row.has_lock { "one" } else { "none" },
        "median_ns": found.quantile_ns(500), "p99_ns": found.quantile_ns(990),
        "per_us": found.per_us, "linear": found.per_us / alone.per_us / row.cpus as f64,
        "ipis_per_op": found.activity.ipis_sent as f64 / found.operations as f64,
        "iterations": found.samples_ps.len(), "stale": found.stale,
        "counters": run.counters(&found.stats, |count| count as f64 / found.operations as f64),
        "samples": run.samples(&found.samples_ps),
    })
}
