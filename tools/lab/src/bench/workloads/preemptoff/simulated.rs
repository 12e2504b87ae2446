//! `preemptoff` on the simulated machine.

use serde_json::{Value, json};
use shootdown_sim::workload::{
    LOAD_FIGURES, Load, MAX_CPUS, Maxima, PUBLISHED_PREEMPTOFF, Preemptoff, System,
};

use crate::bench::columns::{Column, Format, grid, number, table};
use crate::bench::program::Axes;
use crate::bench::row::{Ratio, fill_ratios};
use crate::bench::sim::{Findings, Run, Shape, Shapes, Steps};
use crate::cli::Bench;
use crate::failure::{Failure, Outcome};

const COLUMNS: [Column; 14] = [
    Column::new("threads", "CPUs", Format::Actors),
    Column::new("policy", "policy", Format::Words),
    Column::new("off_p99_ns", "p99 us", Format::Micros),
    Column::new("off_ratio", "/ before", Format::Digits(4)),
    Column::new("published_ns", "T3's own us", Format::Micros),
    Column::new(
        "published_ns",
        "deviation %",
        Format::Deviation("off_p99_ns"),
    ),
    Column::new("ipi_p99_ns", "IPIs us", Format::Micros),
    Column::new("call_data_p99_ns", "call data us", Format::Micros),
    Column::new("lock_p99_ns", "lock us", Format::Micros),
    Column::new("off_p50_least_cpu_ns", "least CPU's p50 us", Format::Micros),
    Column::new("off_p50_most_cpu_ns", "most CPU's p50 us", Format::Micros),
    Column::new("median_ns", "wake-up p50 us", Format::Micros),
    Column::new("p99_ns", "wake-up p99 us", Format::Micros),
    Column::new("waiters_preempted", "waiters preempted", Format::Digits(0)),
];
/// So many CPUs the authors measured.
const PUBLISHED_CPUS: usize = 16;
/// Intervals of a row: as a rule, for a look, and in a sweep.
const INTERVALS: (usize, usize, usize) = (1000, 60, 40);

/// What the caller asks for.
///
/// # Errors
/// There is no such machine.
pub fn shapes(bench: &Bench, axes: &Axes) -> Outcome<Shapes> {
    if bench.pages.is_some() {
        return Err(Failure::input(
            "the simulated preemptoff has no fixed number of pages",
            "use --set most_pages=N",
        ));
    }
    let cpus = match (&bench.threads, bench.cpus) {
        (Some(_), Some(_)) => {
            return Err(Failure::input(
                "--cpus and --threads mean the same on sim: a busy thread on every CPU",
                "give one of them",
            ));
        }
        (Some(_), None) => axes.actors.clone(),
        (None, Some(cpus)) => vec![u32::try_from(cpus).unwrap_or(0)],
        (None, None) => vec![PUBLISHED_CPUS as u32],
    };
    let fits = |&cpus: &u32| (2..=MAX_CPUS).contains(&(cpus as usize));
    if let Some(wrong) = cpus.iter().find(|cpus| !fits(cpus)) {
        return Err(Failure::input(
            format!("preemptoff on {wrong} CPUs cannot be simulated"),
            format!("--cpus takes 2 to {MAX_CPUS} here"),
        ));
    }
    let most = cpus.last().map_or(0, |&cpus| cpus as usize);
    Ok(Shapes::new(most, &cpus, &[0]))
}

/// Runs all rows.
pub fn measure(run: &Run<'_>) -> Findings {
    let (normal, quick, _) = INTERVALS;
    let intervals = if run.bench.quick { quick } else { normal };
    let mut rows = run.rows(&run.steps(1), |shape| row(run, shape, intervals));
    fill_ratios(&mut rows, &[Ratio::to_before("off_ratio", "off_p99_ns")]);
    let tables = format!(
        "\npreemptoff on the simulated machine {}: p99 of the longest spans without preemption, one for each CPU and \
         interval ({intervals} intervals of {} ms); virtual us\n{}\n\
         IPIs: the part of a span in the engine, for as long as others take to answer, or in its interrupt; \
         call data, lock: the parts that wait for these\n\
         T3's own: what its author measured on silicon; the policy published: our engine, with the call data of each CPU and the waits under locks of T3's own kernel as models\n\
         least, most CPU's p50: the median of the CPU with the shortest and of that with the longest spans; wake-up: of a SCHED_FIFO thread on each CPU\n",
        run.setup.preset.name,
        number(run.setup.load().interval_ms),
        table(&COLUMNS, &rows),
    );
    Findings {
        tables,
        sensitivity: run.bench.sweep.then(|| sensitivity(run)),
        stale: None,
        rows,
        ..Findings::default()
    }
}

fn what(run: &Run<'_>, cpus: usize, policy: &str, intervals: usize) -> Preemptoff {
    Preemptoff {
        cpus,
        system: System::named(policy).expect("checked with the axes"),
        load: *run.setup.load(),
        costs: run.setup.costs.clone(),
        seed: run.bench.seed,
        intervals,
    }
}

fn row(run: &Run<'_>, shape: Shape<'_>, intervals: usize) -> Value {
    let cpus = shape.actors;
    let measured = what(run, cpus, shape.policy, intervals).run();
    let all_ns = |per_mille| measured.quantile_ns(per_mille, |maxima| maxima.all_ps);
    let p99_ns = |figure| measured.quantile_ns(990, figure);
    let medians = measured.medians_ns(|maxima| maxima.all_ps);
    let published = PUBLISHED_PREEMPTOFF
        .iter()
        .find(|(policy, _)| *policy == shape.policy)
        .filter(|_| run.is_published && cpus == PUBLISHED_CPUS);
    let counts = &measured.counts;
    let operations = counts.flushes + counts.kernel_flushes + counts.calls;
    let share = |count: u64| count as f64 / operations.max(1) as f64;
    json!({
        "pages": null, "cpus": cpus,
        "median_ns": measured.wake_quantile_ns(500), "p99_ns": measured.wake_quantile_ns(990),
        "min_ns": measured.wake_quantile_ns(0), "max_ns": measured.wake_quantile_ns(1000),
        "wakeups": measured.wakes_ps.len(),
        "off_spans": intervals * cpus,
        "off_1_to_10_ms": measured.count_ms(1, 10), "off_10_to_50_ms": measured.count_ms(10, 50),
        "off_50_to_100_ms": measured.count_ms(50, 100),
        "off_p50_ns": all_ns(500), "off_p99_ns": all_ns(990), "off_max_ns": all_ns(1000),
        "off_p50_least_cpu_ns": medians.iter().copied().fold(f64::INFINITY, f64::min),
        "off_p50_most_cpu_ns": medians.iter().copied().fold(0.0, f64::max),
        "off_ratio": null,
        "ipi_p99_ns": p99_ns(Maxima::ipi_ps),
        "call_data_p99_ns": p99_ns(|maxima| maxima.call_data_ps),
        "lock_p99_ns": p99_ns(|maxima| maxima.lock_ps),
        "handler_p99_ns": p99_ns(|maxima| maxima.handler_ps),
        "published_ns": published.map(|(_, ns)| *ns),
        "waiters_preempted": counts.waiters_preempted, "waiters_moved": counts.waiters_moved,
        "second_requests": counts.second_requests, "second_overtook": counts.second_overtook,
        "irq_offs": counts.sections,
        "ipis_per_op": share(measured.stats.ipis_sent), "iterations": operations,
        "stale": null, "counters": run.counters(&measured.stats, share),
    })
}

/// Each figure of the load halved and doubled, on the first machine: the 99th percentiles.
fn sensitivity(run: &Run<'_>) -> String {
    let (_, _, intervals) = INTERVALS;
    let cpus = run.shapes.actors[0];
    let load = run.setup.load();
    let steps = Steps::new(
        run.bench.policies.len() * (1 + changes(load).count()),
        "rows of the sweep",
    );
    let row = |figure: &str, value: String, load: Load| -> Vec<String> {
        let p99 = |policy: &String| {
            let what = Preemptoff {
                load,
                ..what(run, cpus, policy, intervals)
            };
            let p99_ns = what.run().quantile_ns(990, |maxima| maxima.all_ps);
            steps.one_is_done();
            format!("{:.1}", p99_ns / 1000.0)
        };
        let policies = run.bench.policies.iter().map(p99);
        [figure.to_owned(), value]
            .into_iter()
            .chain(policies)
            .collect()
    };
    let policies = run.bench.policies.iter().map(String::as_str);
    let heading = ["figure", "value"].into_iter().chain(policies);
    let mut rows = vec![row("as is", "-".into(), *load)];
    rows.extend(changes(load).map(|(name, value, load)| row(name, number(value), load)));
    format!(
        "\nsensitivity, {cpus} CPUs, {intervals} intervals: each figure of the load halved and doubled; p99 us\n{}\n",
        grid(heading, rows, |index| index == 0)
    )
}

/// Each figure halved and doubled, with the load that this makes; what makes no sense is left out.
fn changes(load: &Load) -> impl Iterator<Item = (&'static str, f64, Load)> {
    let pairs = LOAD_FIGURES.iter().flat_map(|it| [(it, 0.5), (it, 2.0)]);
    pairs.filter_map(|(figure, factor)| {
        let (mut changed, value) = (*load, figure.get(load) * factor);
        figure.set(&mut changed, value).ok()?;
        Some((figure.name, value, changed))
    })
}
