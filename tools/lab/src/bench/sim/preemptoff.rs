//! Table T3 on the simulated machine.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use serde_json::{Map, Value, json};
use shootdown_sim::workload::{
    Findings as Measured, LOAD_FIGURES, Load, MAX_CPUS, Maxima, PUBLISHED_PREEMPTOFF, Preemptoff,
    System,
};

use super::command::Findings;
use super::setup::{Setup, number};
use crate::bench::rows::machine_name;
use crate::bench::workload::Axes;
use crate::cli::{Bench, MachineKind, Workload};
use crate::failure::{Failure, Outcome};

/// The policy that all ratios refer to.
const REFERENCE: &str = "before";
/// So many CPUs the authors measured.
const PUBLISHED_CPUS: u32 = 16;
/// Intervals of a row: as a rule, for a look, and in a sweep.
const INTERVALS: (usize, usize, usize) = (1000, 60, 40);

/// What is measured.
pub struct Shapes {
    cpus: Vec<u32>,
    intervals: usize,
}

/// One row of the table.
struct Row<'a> {
    /// Whether the machine is the one that the table was measured on.
    is_published: bool,
    cpus: u32,
    policy: &'a str,
    measured: Measured,
}

impl Shapes {
    /// The shapes that the caller asks for.
    ///
    /// # Errors
    /// The machine has no room for them, or an option is about another machine.
    pub fn new(bench: &Bench, axes: &Axes) -> Outcome<Self> {
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
            (None, cpus) => vec![u32::try_from(cpus.unwrap_or(PUBLISHED_CPUS.into())).unwrap_or(0)],
        };
        let fits = |&cpus: &u32| (2..=MAX_CPUS).contains(&(cpus as usize));
        if let Some(wrong) = cpus.iter().find(|cpus| !fits(cpus)) {
            return Err(Failure::input(
                format!("preemptoff on {wrong} CPUs cannot be simulated"),
                format!("--cpus takes 2 to {MAX_CPUS} here"),
            ));
        }
        let (normal, quick, _) = INTERVALS;
        Ok(Self {
            cpus,
            intervals: if bench.quick { quick } else { normal },
        })
    }

    /// How many CPUs the largest machine has.
    pub fn cpus(&self) -> usize {
        self.cpus.last().map_or(0, |&cpus| cpus as usize)
    }

    /// Runs all rows and makes tables and results of them.
    pub fn measure(&self, bench: &Bench, setup: &Setup) -> Findings {
        let mut rows = Vec::new();
        for &cpus in &self.cpus {
            for policy in &bench.policies {
                let what = row(bench, setup, (cpus, policy), self.intervals);
                rows.push(Row {
                    is_published: setup.is_published(Workload::Preemptoff)
                        && cpus == PUBLISHED_CPUS,
                    cpus,
                    policy,
                    measured: what.run(),
                });
            }
        }
        Findings {
            tables: self.tables(setup, &rows),
            sensitivity: bench.sweep.then(|| self.sensitivity(bench, setup)),
            stale: None,
            rows: rows
                .iter()
                .map(|row| row.object(&rows, self.intervals))
                .collect(),
        }
    }

    fn tables(&self, setup: &Setup, rows: &[Row<'_>]) -> String {
        format!(
            "\npreemptoff on the simulated machine {}: p99 of the longest spans without preemption, one for each CPU and \
             interval ({} intervals of {} ms); virtual us\n{}\n\
             IPIs: the part of a span in the engine, for as long as others take to answer, or in its interrupt; \
             call data, lock: the parts that wait for these\n\
             published: our engine, with the call data of each CPU and the waits under locks of T3's own kernel as models\n\
             p50 of CPUs: of the CPU with the least and the most; wake-up: of a SCHED_FIFO thread on each CPU\n",
            setup.preset().name,
            self.intervals,
            number(setup.load().interval_ms),
            table(rows),
        )
    }

    /// Each figure of the load halved and doubled, on the first machine: the 99th percentiles.
    fn sensitivity(&self, bench: &Bench, setup: &Setup) -> String {
        let (_, _, intervals) = INTERVALS;
        let of = |load: &Load| -> Vec<String> {
            let p99 = |policy: &String| {
                let what = Preemptoff {
                    load: *load,
                    ..row(bench, setup, (self.cpus[0], policy), intervals)
                };
                micros(what.run().quantile_ns(990, |maxima| maxima.all_ps))
            };
            bench.policies.iter().map(p99).collect()
        };
        let mut table = Table::new();
        let headings = ["figure", "value"].map(str::to_owned).into_iter();
        table
            .load_style(UTF8_FULL_CONDENSED)
            .set_header(headings.chain(bench.policies.iter().cloned()));
        let base = ["as is".to_owned(), "-".to_owned()].into_iter();
        table.add_row(base.chain(of(setup.load())));
        for figure in LOAD_FIGURES {
            for factor in [0.5, 2.0] {
                let (mut load, value) = (*setup.load(), figure.get(setup.load()) * factor);
                // What makes no sense is left out.
                if figure.set(&mut load, value).is_ok() {
                    let axes = [figure.name.to_owned(), number(value)].into_iter();
                    table.add_row(axes.chain(of(&load)));
                }
            }
        }
        align(&mut table, 0);
        format!(
            "\nsensitivity, {} CPUs, {intervals} intervals: each figure of the load halved and doubled; p99 us\n{table}\n",
            self.cpus[0]
        )
    }
}

fn row(bench: &Bench, setup: &Setup, (cpus, policy): (u32, &str), intervals: usize) -> Preemptoff {
    Preemptoff {
        cpus: cpus as usize,
        system: System::named(policy).expect("checked with the axes"),
        load: *setup.load(),
        costs: setup.costs().clone(),
        seed: bench.seed,
        intervals,
    }
}

impl Row<'_> {
    fn p99_ns(&self, figure: fn(&Maxima) -> u64) -> f64 {
        self.measured.quantile_ns(990, figure)
    }

    fn all_p99_ns(&self) -> f64 {
        self.p99_ns(|maxima| maxima.all_ps)
    }

    /// To `before` on as many CPUs.
    fn ratio(&self, rows: &[Self]) -> Option<f64> {
        let axes = (REFERENCE, self.cpus);
        let before = rows.iter().find(|row| (row.policy, row.cpus) == axes)?;
        Some(self.all_p99_ns() / before.all_p99_ns())
    }

    /// What the authors of the table measured.
    fn published_ns(&self) -> Option<f64> {
        let row = PUBLISHED_PREEMPTOFF
            .iter()
            .find(|(policy, _)| *policy == self.policy);
        row.filter(|_| self.is_published).map(|(_, ns)| *ns)
    }

    /// Of the CPU with the least, and of that with the most.
    fn medians_ns(&self) -> (f64, f64) {
        let medians = self.measured.medians_ns(|maxima| maxima.all_ps);
        let least = medians.iter().copied().fold(f64::INFINITY, f64::min);
        (least, medians.iter().copied().fold(0.0, f64::max))
    }

    /// The row of the result.
    fn object(&self, rows: &[Self], intervals: usize) -> Value {
        let measured = &self.measured;
        let (counts, (least, most)) = (&measured.counts, self.medians_ns());
        let operations = counts.flushes + counts.kernel_flushes + counts.calls;
        let share = |count: u64| count as f64 / operations.max(1) as f64;
        let counters: Map<String, Value> = measured
            .stats
            .iter()
            .filter(|(_, count)| *count > 0)
            .map(|(name, count)| (name.to_owned(), share(count).into()))
            .collect();
        json!({
            "machine": machine_name(MachineKind::Sim), "policy": self.policy,
            "threads": self.cpus, "pages": null, "cpus": self.cpus,
            "accel": "virtual time", "crowded": false,
            "median_ns": measured.wake_quantile_ns(500), "p99_ns": measured.wake_quantile_ns(990),
            "min_ns": measured.wake_quantile_ns(0), "max_ns": measured.wake_quantile_ns(1000),
            "wakeups": measured.wakes_ps.len(),
            "off_spans": intervals * self.cpus as usize,
            "off_p50_ns": measured.quantile_ns(500, |maxima| maxima.all_ps),
            "off_p99_ns": self.all_p99_ns(),
            "off_max_ns": measured.quantile_ns(1000, |maxima| maxima.all_ps),
            "off_p50_least_cpu_ns": least, "off_p50_most_cpu_ns": most,
            "off_ratio": self.ratio(rows),
            "ipi_p99_ns": self.p99_ns(Maxima::ipi_ps),
            "call_data_p99_ns": self.p99_ns(|maxima| maxima.call_data_ps),
            "lock_p99_ns": self.p99_ns(|maxima| maxima.lock_ps),
            "handler_p99_ns": self.p99_ns(|maxima| maxima.handler_ps),
            "published_ns": self.published_ns(),
            "waiters_preempted": counts.waiters_preempted, "waiters_moved": counts.waiters_moved,
            "second_requests": counts.second_requests, "second_overtook": counts.second_overtook,
            "irq_offs": counts.sections,
            "ipis_per_op": share(measured.stats.ipis_sent), "iterations": operations,
            "stale": null, "counters": counters,
        })
    }

    fn cells(&self, rows: &[Self]) -> Vec<String> {
        let published_ns = self.published_ns();
        let deviation = published_ns.map(|ns| (self.all_p99_ns() / ns - 1.0) * 100.0);
        let (least, most) = self.medians_ns();
        vec![
            self.cpus.to_string(),
            self.policy.to_owned(),
            micros(self.all_p99_ns()),
            or_dash(self.ratio(rows).map(|ratio| format!("{ratio:.4}"))),
            or_dash(published_ns.map(micros)),
            or_dash(deviation.map(|percent| format!("{percent:+.1} %"))),
            micros(self.p99_ns(Maxima::ipi_ps)),
            micros(self.p99_ns(|maxima| maxima.call_data_ps)),
            micros(self.p99_ns(|maxima| maxima.lock_ps)),
            format!("{} to {}", micros(least), micros(most)),
            micros(self.measured.wake_quantile_ns(500)),
            micros(self.measured.wake_quantile_ns(990)),
            self.measured.counts.waiters_preempted.to_string(),
        ]
    }
}

fn table(rows: &[Row<'_>]) -> String {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_header([
        "CPUs",
        "policy",
        "p99",
        "/ before",
        "published",
        "deviation",
        "IPIs",
        "call data",
        "lock",
        "p50 of CPUs",
        "wake-up p50",
        "wake-up p99",
        "waiters preempted",
    ]);
    for row in rows {
        table.add_row(row.cells(rows));
    }
    align(&mut table, 1);
    table.to_string()
}

/// Numbers to the right; only column `words` has none.
fn align(table: &mut Table, words: usize) {
    for (index, column) in table.column_iter_mut().enumerate() {
        if index != words {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

fn micros(ns: f64) -> String {
    format!("{:.1}", ns / 1000.0)
}

fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".into())
}
