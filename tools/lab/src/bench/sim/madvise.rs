//! Table T1 on the simulated machine.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use serde_json::{Map, Value, json};
use shootdown::Policy;
use shootdown_sim::workload::{MAX_CPUS, Madvise, Measured, PUBLISHED};

use super::command::Findings;
use super::sensitivity;
use super::setup::Setup;
use crate::bench::rows::machine_name;
use crate::bench::workload::{Axes, counted, distinct};
use crate::cli::{Bench, MachineKind, Workload};
use crate::failure::{Failure, Outcome};

/// The policy that all ratios refer to.
const REFERENCE: &str = "before";
/// Iterations of a row: the most, the least, and how many target iterations all together.
const ITERATIONS: (usize, usize, usize) = (1000, 20, 40_000);
/// No flush of the workload is larger than this: one page table.
const MOST_PAGES: u32 = 512;
/// How many samples a row of the result keeps.
const SAMPLES_KEPT: usize = 200;

/// What is measured.
pub struct Shapes {
    cpus: usize,
    threads: Vec<usize>,
    pages: Vec<usize>,
}

/// One row of the table.
struct Row<'a> {
    /// Whether the machine is the one that the table was measured on.
    is_published: bool,
    cpus: usize,
    policy: &'a str,
    threads: usize,
    pages: usize,
    measured: Measured,
}

impl Shapes {
    /// The shapes that the caller asks for.
    ///
    /// # Errors
    /// The machine has no room for them.
    pub fn new(bench: &Bench, axes: &Axes) -> Outcome<Self> {
        if let Some(pages) = axes.pages.iter().find(|&&pages| pages > MOST_PAGES) {
            return Err(Failure::input(
                format!("{pages} pages a flush cannot be simulated"),
                format!("--pages takes 1 to {MOST_PAGES} on sim"),
            ));
        }
        let mut threads = axes.actors.clone();
        let most = threads.last().copied().unwrap_or(1);
        let cpus = bench.cpus.unwrap_or(i64::from(most));
        let Some(cpus) = usize::try_from(cpus)
            .ok()
            .filter(|cpus| (1..=MAX_CPUS).contains(cpus))
        else {
            return Err(Failure::input(
                format!("a machine of {cpus} CPUs cannot be simulated"),
                format!("--cpus and --threads take 1 to {MAX_CPUS} on sim"),
            ));
        };
        // A machine of a given size has a row with all of its CPUs busy, and none with more.
        if bench.cpus.is_some() {
            threads.retain(|&threads| threads as usize <= cpus);
            threads.push(cpus as u32);
        }
        Ok(Self {
            cpus,
            threads: distinct(&threads).iter().map(|&n| n as usize).collect(),
            pages: axes.pages.iter().map(|&n| n as usize).collect(),
        })
    }

    /// How many CPUs the machine has.
    pub fn cpus(&self) -> usize {
        self.cpus
    }

    /// Runs all rows and makes tables and results of them.
    pub fn measure(&self, bench: &Bench, setup: &Setup) -> Findings {
        let mut rows = Vec::new();
        for &pages in &self.pages {
            for &threads in &self.threads {
                for (policy, row) in self.rows(bench, setup, threads, pages) {
                    rows.push(Row {
                        is_published: setup.is_published(Workload::Madvise),
                        cpus: self.cpus,
                        policy,
                        threads,
                        pages,
                        measured: row.run(),
                    });
                }
            }
        }
        Findings {
            tables: self.tables(setup, &rows),
            sensitivity: bench.sweep.then(|| self.sensitivity(bench, setup)),
            stale: Some(rows.iter().map(|row| row.measured.stale).sum()),
            rows: rows.iter().map(|row| row.object(&rows)).collect(),
        }
    }

    /// The rows of a shape, by policy.
    fn rows<'a>(
        &self,
        bench: &'a Bench,
        setup: &Setup,
        threads: usize,
        pages: usize,
    ) -> Vec<(&'a str, Madvise)> {
        let (most, least, all) = ITERATIONS;
        let row = |policy: &'a String| {
            let row = Madvise {
                threads,
                pages,
                policy: Policy::from_name(policy).expect("checked with the axes"),
                costs: setup.costs().clone(),
                seed: bench.seed,
                iterations: (all / (threads * pages)).clamp(least, most),
            };
            (policy.as_str(), row)
        };
        bench.policies.iter().map(row).collect()
    }

    fn tables(&self, setup: &Setup, rows: &[Row<'_>]) -> String {
        let of = |pages: &usize| {
            format!(
                "\nmadvise on the simulated machine {}: {} a flush; virtual ns an iteration on the initiator, and in its call\n{}\n",
                setup.preset().name,
                counted(*pages as u32, "pages"),
                table(rows, *pages)
            )
        };
        self.pages.iter().map(of).collect()
    }

    /// With the first number of pages.
    fn sensitivity(&self, bench: &Bench, setup: &Setup) -> String {
        let of = |threads: &usize| {
            let rows = self.rows(bench, setup, *threads, self.pages[0]);
            let few = |(policy, row): (&str, Madvise)| {
                let iterations = row.iterations.min(sensitivity::ITERATIONS);
                (policy.to_owned(), Madvise { iterations, ..row })
            };
            let rows: Vec<(String, Madvise)> = rows.into_iter().map(few).collect();
            sensitivity::render(&counted(*threads as u32, "threads"), &rows)
        };
        self.threads.iter().map(of).collect()
    }
}

impl Row<'_> {
    /// The row of the result.
    fn object(&self, rows: &[Row<'_>]) -> Value {
        let measured = &self.measured;
        let counters: Map<String, Value> = measured
            .stats
            .iter()
            .filter(|(_, count)| *count > 0)
            .map(|(name, count)| (name.to_owned(), measured.per_iteration(count).into()))
            .collect();
        let stride = measured.samples_ps.len().div_ceil(SAMPLES_KEPT);
        let samples = measured.samples_ps.iter().step_by(stride);
        json!({
            "machine": machine_name(MachineKind::Sim), "policy": self.policy,
            "threads": self.threads, "pages": self.pages, "cpus": self.cpus,
            "accel": "virtual time", "crowded": false,
            "median_ns": measured.median_ns(), "p99_ns": measured.quantile_ns(990),
            "min_ns": measured.quantile_ns(0),
            "ratio": self.ratio(rows), "ratio_to_linux": null,
            "call_median_ns": measured.call_quantile_ns(500), "call_p99_ns": measured.call_quantile_ns(990),
            "call_ratio": self.call_ratio(rows), "call_ratio_to_linux": null,
            "ipis_per_op": measured.per_iteration(measured.stats.ipis_sent),
            "lines_per_op": measured.per_iteration(measured.lines),
            "published_ns": self.published_ns(),
            "stale": measured.stale, "iterations": measured.samples_ps.len(),
            "boot_medians_ns": [measured.median_ns()], "counters": counters,
            "samples": samples.map(|&ps| ps as f64 / 1000.0).collect::<Vec<_>>(),
        })
    }
    /// `before` with the same axes.
    fn reference<'a>(&self, rows: &'a [Row<'_>]) -> Option<&'a Measured> {
        let axes = (REFERENCE, self.threads, self.pages);
        let row = rows
            .iter()
            .find(|row| (row.policy, row.threads, row.pages) == axes)?;
        Some(&row.measured)
    }

    /// To `before` with the same axes.
    fn ratio(&self, rows: &[Row<'_>]) -> Option<f64> {
        Some(self.measured.median_ns() / self.reference(rows)?.median_ns())
    }

    /// The same of the system calls.
    fn call_ratio(&self, rows: &[Row<'_>]) -> Option<f64> {
        Some(self.measured.call_quantile_ns(500) / self.reference(rows)?.call_quantile_ns(500))
    }

    /// What the authors of the table measured, with one page, on the machine of the default preset.
    fn published_ns(&self) -> Option<f64> {
        let known = |&&(policy, threads, _): &&(&str, usize, f64)| {
            self.is_published && self.pages == 1 && (policy, threads) == (self.policy, self.threads)
        };
        PUBLISHED.iter().find(known).map(|(_, _, ns)| *ns)
    }
}

fn table(rows: &[Row<'_>], pages: usize) -> String {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_header([
        "threads",
        "policy",
        "median ns",
        "p99 ns",
        "/ before",
        "published ns",
        "deviation",
        "call ns",
        "call / before",
        "IPIs/op",
        "lines/op",
        "stale",
    ]);
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
    for row in rows.iter().filter(|row| row.pages == pages) {
        let (measured, published_ns) = (&row.measured, row.published_ns());
        let deviation = published_ns.map(|ns| {
            let percent = (measured.median_ns() / ns - 1.0) * 100.0;
            format!("{percent:+.1} %")
        });
        table.add_row([
            row.threads.to_string(),
            row.policy.to_owned(),
            format!("{:.0}", measured.median_ns()),
            format!("{:.0}", measured.quantile_ns(990)),
            or_dash(row.ratio(rows).map(|ratio| format!("{ratio:.3}"))),
            or_dash(published_ns.map(|ns| format!("{ns:.0}"))),
            or_dash(deviation),
            format!("{:.0}", measured.call_quantile_ns(500)),
            or_dash(row.call_ratio(rows).map(|ratio| format!("{ratio:.3}"))),
            format!("{:.2}", measured.per_iteration(measured.stats.ipis_sent)),
            format!("{:.2}", measured.per_iteration(measured.lines)),
            measured.stale.to_string(),
        ]);
    }
    for (index, column) in table.column_iter_mut().enumerate() {
        if index != 1 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.to_string()
}
