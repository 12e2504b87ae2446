//! `preemptoff`, table T3: the longest wake-ups, and the longest spans with preemption off.

use serde_json::{Value, json};
use shootdown_sim::workload::{
    LOAD_FIGURES, Load, MAX_CPUS, Maxima, PUBLISHED_PREEMPTOFF, Preemptoff, System,
};

use crate::bench::columns::{Column, Format, grid, number, table};
use crate::bench::program::{Axes, Merge};
use crate::bench::row::{Ratio, Row, fill_ratios};
use crate::bench::sim::{Findings, Run, Shape, Shapes, Simulated};
use crate::bench::workload::{OnLinux, Program};
use crate::cli::Bench;
use crate::failure::{Failure, Outcome};
use crate::protocol::Object;

/// The workload.
pub const PROGRAM: Program = Program {
    name: "preemptoff",
    about: "A thread of high priority wakes up by the clock while others unmap memory and some keep interrupts off (table T3)",
    default_actors: &[2, 4],
    default_pages: &[8],
    has_intervals: true,
    linux: OnLinux::IfAsked,
    title: |pages| {
        format!(
            "preemptoff: {pages} an unmap; ns by which a SCHED_FIFO thread wakes up late, an unmapping thread on every CPU"
        )
    },
    columns: &[
        Column::new("max_ns", "max ns", Format::Digits(0)),
        Column::new("wakeups", "wake-ups", Format::Digits(0)),
        Column::new("irq_offs", "irqs off", Format::Digits(0)),
    ],
    metrics: &[
        ("max_ns", Merge::Most),
        ("wakeups", Merge::Sum),
        ("missed", Merge::Sum),
        ("fifo", Merge::All),
        ("keepers", Merge::Last),
        ("irq_offs", Merge::Sum),
    ],
    needs: Some("wakeups"),
    pool: pool_spans,
    below: spans,
    notes,
    simulated: Ok(Simulated {
        preset: "16-core",
        has_load: true,
        shapes,
        measure,
    }),
    ..Program::PLAIN
};

/// The spans of a program's row.
const SPANS: [Column; 10] = [
    Column::new("threads", "threads", Format::Actors),
    Column::new("policy", "policy", Format::Words),
    Column::new("off_spans", "spans", Format::Digits(0)),
    Column::new("off_p50_ns", "p50 us", Format::Micros),
    Column::new("off_p99_ns", "p99 us", Format::Micros),
    Column::new("off_ratio", "p99 / before", Format::Digits(3)),
    Column::new("off_max_ns", "max us", Format::Micros),
    Column::new("ipi_wait_p50_ns", "IPI wait p50 us", Format::Micros),
    Column::new("ipi_wait_p99_ns", "IPI wait p99 us", Format::Micros),
    Column::new("off_at", "the longest began at", Format::Words),
];
const SIMULATED: [Column; 13] = [
    Column::new("threads", "CPUs", Format::Actors),
    Column::new("policy", "policy", Format::Words),
    Column::new("off_p99_ns", "p99", Format::Micros),
    Column::new("off_ratio", "/ before", Format::Digits(4)),
    Column::new("published_ns", "published", Format::Micros),
    Column::new("published_ns", "deviation", Format::Deviation("off_p99_ns")),
    Column::new("ipi_p99_ns", "IPIs", Format::Micros),
    Column::new("call_data_p99_ns", "call data", Format::Micros),
    Column::new("lock_p99_ns", "lock", Format::Micros),
    Column::new("", "p50 of CPUs", Format::Of(least_to_most)),
    Column::new("median_ns", "wake-up p50", Format::Micros),
    Column::new("p99_ns", "wake-up p99", Format::Micros),
    Column::new("waiters_preempted", "waiters preempted", Format::Digits(0)),
];
/// So many CPUs the authors measured.
const PUBLISHED_CPUS: usize = 16;
/// Intervals of a row: as a rule, for a look, and in a sweep.
const INTERVALS: (usize, usize, usize) = (1000, 60, 40);

/// Of the longest spans with preemption off, one for each CPU and interval, and of the longest waits for other CPUs in them: one
/// distribution over all boots. Nothing where no kernel keeps a record of them.
fn pool_spans(row: &mut Row, own: &[&Row], reference: &[&Row]) {
    let (spans, before) = (pooled(own, "off_samples"), pooled(reference, "off_samples"));
    let waits = pooled(own, "ipi_wait_samples");
    let Some(off_p99_ns) = quantile(&spans, 99) else {
        return;
    };
    let off_max_ns = |row: &Row| row.number("off_max_ns").unwrap_or(0.0);
    let longest = own
        .iter()
        .max_by(|a, b| off_max_ns(a).total_cmp(&off_max_ns(b)));
    let at = longest.and_then(|longest| longest.0.get("off_at"));
    let before = quantile(&before, 99).filter(|&ns| ns > 0.0);
    row.set("off_spans", spans.len());
    row.set("off_p50_ns", quantile(&spans, 50));
    row.set("off_p99_ns", off_p99_ns);
    row.set(
        "off_max_ns",
        longest.map_or(0.0, |longest| off_max_ns(longest)),
    );
    row.set("off_at", at.cloned());
    row.set("off_ratio", before.map(|ns| off_p99_ns / ns));
    row.set("ipi_wait_p50_ns", quantile(&waits, 50));
    row.set("ipi_wait_p99_ns", quantile(&waits, 99));
}

/// All samples of all boots, sorted.
fn pooled(rows: &[&Row], samples: &str) -> Vec<f64> {
    let mut pooled: Vec<f64> = rows.iter().flat_map(|row| row.numbers(samples)).collect();
    pooled.sort_by(f64::total_cmp);
    pooled
}

/// By nearest rank.
fn quantile(sorted: &[f64], percent: usize) -> Option<f64> {
    let rank = (sorted.len() * percent).div_ceil(100).max(1) - 1;
    sorted.get(rank).copied()
}

fn has_spans(row: &Row) -> bool {
    row.0.contains_key("off_spans")
}

fn spans(rows: &[&Row]) -> Option<String> {
    let rows: Vec<&Row> = rows.iter().copied().filter(|row| has_spans(row)).collect();
    let heading = "the longest span with preemption off, for each CPU and interval";
    (!rows.is_empty()).then(|| format!("{heading}\n{}", table(&SPANS, rows)))
}

fn notes(rows: &[Row], load: Option<&Object>) -> Vec<String> {
    let mut notes = Vec::new();
    let keeps = |load: &&Object| load.get("can_keep_interrupts_off") == Some(&true.into());
    if let Some(load) = load.filter(keeps) {
        let figure = |name: &str| load.get(name).map(ToString::to_string).unwrap_or_default();
        notes.push(format!(
            "a wake-up every {} us; interrupts off for {} us (lognormal, sigma {}), and in {} of the cases for {} us and more \
             (Pareto, alpha {}, cut at {} us), about {} us apart",
            figure("period_us"), figure("body_us"), figure("body_sigma"), figure("tail_share"),
            figure("tail_us"), figure("tail_alpha"), figure("cut_us"), figure("gap_us"),
        ));
    }
    type IsMeant = fn(&Row) -> bool;
    let remarks: [(IsMeant, &str); 3] = [
        (
            |row| row.count("keepers") == 0,
            "nobody keeps interrupts off there (a program cannot): a lighter load, and no ratio to it",
        ),
        (
            |row| row.0.get("fifo") != Some(&true.into()),
            "SCHED_FIFO was refused there: the thread that wakes up waits for its turn",
        ),
        (
            |row| !has_spans(row),
            "no record of the spans with preemption off there",
        ),
    ];
    for (is_meant, words) in remarks {
        let meant = rows.iter().filter(|row| is_meant(row));
        let mut machines: Vec<&str> = meant.map(|row| row.text("machine")).collect();
        machines.dedup();
        if !machines.is_empty() {
            notes.push(format!("{}: {words}", machines.join(", ")));
        }
    }
    notes
}

fn shapes(bench: &Bench, axes: &Axes) -> Outcome<Shapes> {
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

fn measure(run: &Run<'_>) -> Findings {
    let (normal, quick, _) = INTERVALS;
    let intervals = if run.bench.quick { quick } else { normal };
    let mut rows = run.rows(|shape| row(run, shape, intervals));
    fill_ratios(&mut rows, &[Ratio::to_before("off_ratio", "off_p99_ns")]);
    let tables = format!(
        "\npreemptoff on the simulated machine {}: p99 of the longest spans without preemption, one for each CPU and \
         interval ({intervals} intervals of {} ms); virtual us\n{}\n\
         IPIs: the part of a span in the engine, for as long as others take to answer, or in its interrupt; \
         call data, lock: the parts that wait for these\n\
         published: our engine, with the call data of each CPU and the waits under locks of T3's own kernel as models\n\
         p50 of CPUs: of the CPU with the least and the most; wake-up: of a SCHED_FIFO thread on each CPU\n",
        run.setup.preset().name,
        number(run.setup.load().interval_ms),
        table(&SIMULATED, &rows),
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
        costs: run.setup.costs().clone(),
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

/// Of the CPU with the least, and of that with the most.
fn least_to_most(row: &Row) -> Option<String> {
    let us = |key| Some(row.number(key)? / 1000.0);
    let (least, most) = (us("off_p50_least_cpu_ns")?, us("off_p50_most_cpu_ns")?);
    Some(format!("{least:.1} to {most:.1}"))
}

/// Each figure of the load halved and doubled, on the first machine: the 99th percentiles.
fn sensitivity(run: &Run<'_>) -> String {
    let (_, _, intervals) = INTERVALS;
    let cpus = run.shapes.actors[0];
    let row = |figure: &str, value: String, load: Load| -> Vec<String> {
        let p99 = |policy: &String| {
            let what = Preemptoff {
                load,
                ..what(run, cpus, policy, intervals)
            };
            let p99_ns = what.run().quantile_ns(990, |maxima| maxima.all_ps);
            format!("{:.1}", p99_ns / 1000.0)
        };
        let policies = run.bench.policies.iter().map(p99);
        [figure.to_owned(), value]
            .into_iter()
            .chain(policies)
            .collect()
    };
    let mut heading = ["figure", "value"].map(str::to_owned).to_vec();
    heading.extend(run.bench.policies.iter().cloned());
    let load = run.setup.load();
    let mut rows = vec![row("as is", "-".into(), *load)];
    for figure in LOAD_FIGURES {
        for factor in [0.5, 2.0] {
            let (mut changed, value) = (*load, figure.get(load) * factor);
            // What makes no sense is left out.
            if figure.set(&mut changed, value).is_ok() {
                rows.push(row(figure.name, number(value), changed));
            }
        }
    }
    format!(
        "\nsensitivity, {cpus} CPUs, {intervals} intervals: each figure of the load halved and doubled; p99 us\n{}\n",
        grid(heading, rows, |index| index == 0)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::program::{merged, row_of};

    /// A row of a boot, whose number is in some of its figures.
    fn row(machine: &str, boot: u32, policy: &str, further: &str) -> Row {
        row_of(&format!(
            r#"{{"machine":"{machine}","policy":"{policy}","threads":2,"pages":8,"median_ns":20,"p99_ns":90,"min_ns":1,
                "max_ns":{boot}00,"wakeups":10,"missed":{boot},"fifo":true,"irq_offs":5,"iterations":4,"ipis_per_op":1,
                "stale":0{further}}}"#
        ))
    }

    fn with_spans(boot: u32, policy: &str, samples: &str, most: u32, place: &str) -> Row {
        let further = format!(
            r#","keepers":1,"off_samples":{samples},"off_max_ns":{most},"off_at":"{place}""#
        );
        row("qemu", boot, policy, &further)
    }

    #[test]
    fn the_spans_of_all_boots_are_one_distribution() {
        let rows = merged(
            &PROGRAM,
            vec![
                vec![
                    with_spans(1, "before", "[1000,4000]", 4000, "a.rs:1"),
                    with_spans(1, "best", "[100,300]", 300, "b.rs:1"),
                ],
                vec![
                    with_spans(2, "before", "[2000,8000]", 8000, "a.rs:2"),
                    with_spans(2, "best", "[200,250]", 250, "b.rs:2"),
                ],
            ],
        );
        let figures = |row: &Row, keys: [&str; 4]| keys.map(|key| row.number(key).unwrap());
        let [before, best] = [&rows[0], &rows[1]];
        assert_eq!(
            figures(before, ["wakeups", "missed", "max_ns", "off_spans"]),
            [20.0, 3.0, 200.0, 4.0]
        );
        let keys = ["off_p50_ns", "off_p99_ns", "off_ratio", "off_max_ns"];
        assert_eq!(figures(before, keys), [2000.0, 8000.0, 1.0, 8000.0]);
        assert_eq!(figures(best, keys), [200.0, 300.0, 0.0375, 300.0]);
        assert_eq!(best.text("off_at"), "b.rs:1");
        let text = spans(&[before, best]).unwrap();
        assert!(text.contains("a.rs:2") && text.contains("0.037") && text.contains("8.0"));
    }

    #[test]
    fn what_a_machine_lacks_is_said() {
        let rows = merged(
            &PROGRAM,
            vec![vec![row("qemu", 1, "best", r#","keepers":1"#)]],
        );
        assert!(spans(&[&rows[0]]).is_none());
        let notes = notes(&rows, None);
        assert_eq!(
            notes,
            ["qemu: no record of the spans with preemption off there"]
        );
        assert!(!rows[0].0.contains_key("off_p99_ns"));
    }

    #[test]
    fn other_loads_are_no_reference() {
        for (keepers, ratio) in [(0, None), (1, Some(1.0))] {
            let ours = row("qemu", 1, "best", r#","keepers":1"#);
            let linux = row("linux", 1, "linux", &format!(r#","keepers":{keepers}"#));
            let rows = merged(&PROGRAM, vec![vec![ours, linux]]);
            assert_eq!(rows[0].number("ratio_to_linux"), ratio);
        }
    }

    #[test]
    fn the_load_is_described_by_its_parameters() {
        let load = r#"{"period_us":1000,"body_us":15,"body_sigma":0.5,"tail_share":0.02,"tail_us":200,
            "tail_alpha":1.2,"cut_us":50000,"gap_us":700,"can_keep_interrupts_off":true}"#;
        let notes = notes(&[], Some(&serde_json::from_str(load).unwrap()));
        assert!(
            notes[0].contains("alpha 1.2") && notes[0].contains("700 us apart"),
            "{notes:?}"
        );
    }
}
