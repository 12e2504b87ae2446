//! `madvise`, table T1.

use serde_json::{Value, json};
use shootdown::Policy;
use shootdown_sim::workload::{MAX_CPUS, Madvise, PUBLISHED};

use crate::bench::columns::{Column, Format, counted};
use crate::bench::cores::OnCores;
use crate::bench::program::{Axes, distinct};
use crate::bench::row::{Ratio, fill_ratios, stale};
use crate::bench::sim::{Findings, Run, Shape, Shapes, Simulated};
use crate::bench::workload::Program;
use crate::cli::Bench;
use crate::failure::{Failure, Outcome};

/// The workload.
pub const PROGRAM: Program = Program {
    name: "madvise",
    about: "One thread drops and touches pages in a loop while the others are busy (table T1)",
    default_pages: &[1, 8, 32],
    on_cores: Some(OnCores {
        operations: &["flushes"],
        function_us: 0,
    }),
    is_shown: true,
    title: |pages| {
        format!("madvise: {pages} a flush; ns an iteration on the initiator, and in its call")
    },
    columns: &CALL,
    needs: Some("call_median_ns"),
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

/// The system call of an iteration.
pub const CALL: [Column; 3] = [
    Column::new("call_median_ns", "call ns", Format::Digits(0)),
    Column::new("call_p99_ns", "call p99 ns", Format::Digits(0)),
    Column::new("call_ratio", "call / before", Format::Digits(3)),
];
const SIMULATED: [Column; 12] = [
    Column::new("threads", "threads", Format::Actors),
    Column::new("policy", "policy", Format::Words),
    Column::new("median_ns", "median ns", Format::Digits(0)),
    Column::new("p99_ns", "p99 ns", Format::Digits(0)),
    Column::new("ratio", "/ before", Format::Digits(3)),
    Column::new("published_ns", "T1's own ns", Format::Digits(0)),
    Column::new(
        "published_ns",
        "deviation %",
        Format::Deviation("median_ns"),
    ),
    CALL[0],
    CALL[2],
    Column::new("ipis_per_op", "IPIs/op", Format::Digits(2)),
    Column::new("lines_per_op", "lines/op", Format::Digits(2)),
    Column::new("stale", "stale", Format::Digits(0)),
];
const RATIOS: [Ratio; 2] = [
    Ratio::to_before("ratio", "median_ns"),
    Ratio::to_before("call_ratio", "call_median_ns"),
];
/// Below the tables.
const OWN: &str = "T1's own: what its author measured on silicon; the policy published is this engine with what T1 has, and no more\n";
/// Iterations of a row: the most, the least, and how many target iterations all together.
const ITERATIONS: (usize, usize, usize) = (1000, 20, 40_000);
/// No flush of the workload is larger than this: one page table.
const MOST_PAGES: u32 = 512;

fn shapes(bench: &Bench, axes: &Axes) -> Outcome<Shapes> {
    if let Some(pages) = axes.pages.iter().find(|&&pages| pages > MOST_PAGES) {
        return Err(Failure::input(
            format!("{pages} pages a flush cannot be simulated"),
            format!("--pages takes 1 to {MOST_PAGES} on sim"),
        ));
    }
    let mut threads = axes.actors.clone();
    let most = threads.last().copied().unwrap_or(1);
    let cpus = bench.cpus.unwrap_or(i64::from(most));
    if !(1..=MAX_CPUS as i64).contains(&cpus) {
        return Err(Failure::input(
            format!("a machine of {cpus} CPUs cannot be simulated"),
            format!("--cpus and --threads take 1 to {MAX_CPUS} on sim"),
        ));
    }
    // A machine of a given size has a row with all of its CPUs busy, and none with more.
    if bench.cpus.is_some() {
        threads.retain(|&threads| i64::from(threads) <= cpus);
        threads.push(cpus as u32);
    }
    Ok(Shapes::new(cpus as usize, &distinct(&threads), &axes.pages))
}

fn measure(run: &Run<'_>) -> Findings {
    let mut rows = run.rows(&run.steps(1), |shape| row(run, shape));
    fill_ratios(&mut rows, &RATIOS);
    let what = "a flush; virtual ns an iteration on the initiator, and in its call";
    Findings {
        tables: run.table_a_page(&rows, &SIMULATED, what) + OWN,
        sensitivity: run.bench.sweep.then(|| sensitivity(run)),
        stale: Some(stale(&rows)),
        rows,
        ..Findings::default()
    }
}

fn what(run: &Run<'_>, shape: Shape<'_>) -> Madvise {
    let (most, least, all) = ITERATIONS;
    Madvise {
        threads: shape.actors,
        pages: shape.pages,
        policy: Policy::from_name(shape.policy).expect("checked with the axes"),
        costs: run.setup.costs.clone(),
        seed: run.bench.seed,
        iterations: (all / (shape.actors * shape.pages)).clamp(least, most),
    }
}

fn row(run: &Run<'_>, shape: Shape<'_>) -> Value {
    let measured = what(run, shape).run();
    json!({
        "median_ns": measured.median_ns(), "p99_ns": measured.quantile_ns(990),
        "min_ns": measured.quantile_ns(0),
        "ratio": null, "ratio_to_linux": null,
        "call_median_ns": measured.call_quantile_ns(500), "call_p99_ns": measured.call_quantile_ns(990),
        "call_ratio": null, "call_ratio_to_linux": null,
        "ipis_per_op": measured.per_iteration(measured.stats.ipis_sent),
        "lines_per_op": measured.per_iteration(measured.lines),
        "published_ns": published_ns(run, shape),
        "stale": measured.stale, "iterations": measured.samples_ps.len(),
        "boot_medians_ns": [measured.median_ns()],
        "counters": run.counters(&measured.stats, |count| measured.per_iteration(count)),
        "samples": run.samples(&measured.samples_ps),
    })
}

/// What the authors of the table measured, with one page, on the machine of the default preset.
fn published_ns(run: &Run<'_>, shape: Shape<'_>) -> Option<f64> {
    let known = |&&(policy, threads, _): &&(&str, usize, f64)| {
        run.is_published && shape.pages == 1 && (policy, threads) == (shape.policy, shape.actors)
    };
    PUBLISHED.iter().find(known).map(|(_, _, ns)| *ns)
}

/// With the first number of pages.
fn sensitivity(run: &Run<'_>) -> String {
    let of = |&threads: &usize| {
        let title = counted(threads, "threads");
        run.sensitivity(&title, |policy| {
            let shape = Shape {
                policy,
                actors: threads,
                pages: run.shapes.pages[0],
            };
            let row = what(run, shape);
            let iterations = row.iterations.min(Run::SWEEP_ITERATIONS);
            Madvise { iterations, ..row }
        })
    };
    run.shapes.actors.iter().map(of).collect()
}
