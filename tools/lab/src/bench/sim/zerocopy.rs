//! Table T2 on the simulated machine.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use serde_json::{Map, Value, json};
use shootdown_sim::workload::{MAX_CPUS, Mapping, PublishedZerocopy, Served, Zerocopy};

use super::command::Findings;
use super::sensitivity;
use super::setup::Setup;
use crate::bench::rows::machine_name;
use crate::bench::workload::{Axes, counted};
use crate::cli::{Bench, MachineKind, Workload};
use crate::failure::{Failure, Outcome};

/// The policy that all ratios refer to.
const REFERENCE: &str = "before";
/// As many threads the authors measured.
const DEFAULT_THREADS: [u32; 9] = [1, 2, 4, 8, 12, 18, 24, 36, 48];
/// On so many CPUs.
const PUBLISHED_CPUS: i64 = 40;
/// A sweep is about so many threads, if the table goes so far: enough that all three differ.
const SWEEP_THREADS: usize = 8;
/// With `--quick`, so many times fewer operations.
const QUICK: usize = 8;
/// How many samples a row of the result keeps.
const SAMPLES_KEPT: usize = 200;
/// CPUs of the run in which processors cache what they are not asked to.
const CURIOUS_CPUS: usize = 4;

/// What is measured.
pub struct Shapes {
    cpus: usize,
    threads: Vec<usize>,
}

/// One row of the table.
struct Row<'a> {
    /// Whether the machine is the one that the table was measured on.
    is_published: bool,
    policy: &'a str,
    what: Zerocopy,
    served: Served,
}

impl Shapes {
    /// The shapes that the caller asks for.
    ///
    /// # Errors
    /// The machine has no room for them, or an option is about another machine.
    pub fn new(bench: &Bench, axes: &Axes) -> Outcome<Self> {
        if bench.pages.as_deref().is_some_and(|pages| pages != [1]) {
            return Err(Failure::input(
                "a call hands over one page on sim, as in table T2",
                "use --pages 1 there, or --machine qemu",
            ));
        }
        if let Some(policy) = bench
            .policies
            .iter()
            .find(|name| Mapping::named(name).is_none())
        {
            return Err(Failure::input(
                format!("{policy} is not among the systems of the simulated zerocopy"),
                "choose from before, published, best, or use --machine qemu",
            ));
        }
        let most = MAX_CPUS as i64;
        let cpus = bench.cpus.unwrap_or(PUBLISHED_CPUS);
        let threads = match bench.threads {
            Some(_) => &axes.actors[..],
            None => &DEFAULT_THREADS,
        };
        let largest = threads.last().copied().unwrap_or(0).into();
        if let Some(wrong) = [cpus, largest].iter().find(|n| !(1..=most).contains(n)) {
            return Err(Failure::input(
                format!("{wrong} CPUs or threads cannot be simulated"),
                format!("--cpus and --threads take 1 to {MAX_CPUS} on sim"),
            ));
        }
        Ok(Self {
            cpus: cpus as usize,
            threads: threads.iter().map(|&threads| threads as usize).collect(),
        })
    }

    /// How many CPUs the machine has.
    pub fn cpus(&self) -> usize {
        self.cpus
    }

    /// Runs all rows and makes tables and results of them.
    pub fn measure(&self, bench: &Bench, setup: &Setup) -> Findings {
        let rows = self.rows(bench, setup, true);
        let alone = self.rows(bench, setup, false);
        let all = || rows.iter().chain(&alone);
        // The flag promises nothing: what is stale under it is no fault of a flush.
        let stale = all().filter(|row| row.what.mapping != Mapping::Flagged);
        Findings {
            tables: self.tables(bench, setup, &rows, &alone),
            sensitivity: bench.sweep.then(|| self.sensitivity(bench, setup)),
            stale: Some(stale.map(|row| row.served.stale).sum()),
            rows: rows
                .iter()
                .map(|row| row.object(&rows))
                .chain(alone.iter().map(|row| row.object(&alone)))
                .collect(),
        }
    }

    fn rows<'a>(&self, bench: &'a Bench, setup: &Setup, charges_shared: bool) -> Vec<Row<'a>> {
        let mut rows = Vec::new();
        for &threads in &self.threads {
            for policy in &bench.policies {
                let row = self.row(bench, setup, policy, threads);
                let what = if charges_shared { row } else { row.alone() };
                rows.push(Row {
                    is_published: charges_shared && self.is_published(setup),
                    policy,
                    served: what.run(),
                    what,
                });
            }
        }
        rows
    }

    fn row(&self, bench: &Bench, setup: &Setup, policy: &str, threads: usize) -> Zerocopy {
        let mapping = Mapping::named(policy).expect("checked with the axes");
        let row = Zerocopy::new(mapping, threads, setup.costs());
        Zerocopy {
            cpus: self.cpus,
            seed: bench.seed,
            iterations: row.iterations / if bench.quick { QUICK } else { 1 },
            ..row
        }
    }

    fn is_published(&self, setup: &Setup) -> bool {
        setup.is_published(Workload::Zerocopy) && self.cpus == PUBLISHED_CPUS as usize
    }

    fn tables(&self, bench: &Bench, setup: &Setup, rows: &[Row<'_>], alone: &[Row<'_>]) -> String {
        format!(
            "\nzerocopy on the simulated machine {}, {}: a call hands a page of 4 KiB to the server of its CPU, which copies it\n\
             {}\n\
             before: an ordinary mapping, flushed on every CPU that has the server's space loaded, under Policy::BEFORE\n\
             published: the same with the flag, flushed here only: a model of the workload's and unsound\n\
             best: a window of this CPU's private root, under Policy::BEST\n{}\
             \nalone: without what the published system's calls share besides page tables (shared_lines, shared_serial_ns), each client a \
             process of its own\n{}\n",
            setup.preset().name,
            counted(self.cpus as u32, "CPUs"),
            table(rows),
            self.curious(bench, setup),
            table(alone),
        )
    }

    /// What comes of it when processors cache what nobody asked them to.
    fn curious(&self, bench: &Bench, setup: &Setup) -> String {
        let stale = |policy: &String| {
            let row = Zerocopy {
                looks_next_door: true,
                ..self.row(bench, setup, policy, CURIOUS_CPUS)
            };
            format!("{policy} {}", row.run().stale)
        };
        let stale: Vec<String> = bench.policies.iter().map(stale).collect();
        format!(
            "where each of {CURIOUS_CPUS} CPUs also caches its neighbour's window, as a processor may that has it in its page \
             tables, stale accesses: {}\n",
            stale.join(", ")
        )
    }

    fn sensitivity(&self, bench: &Bench, setup: &Setup) -> String {
        let fits = |threads: &&usize| **threads <= SWEEP_THREADS;
        let threads = *self.threads.iter().rfind(fits).unwrap_or(&self.threads[0]);
        let few = |policy: &String| {
            let row = self.row(bench, setup, policy, threads);
            let iterations = row.iterations.min(sensitivity::ITERATIONS);
            (policy.clone(), Zerocopy { iterations, ..row })
        };
        let rows: Vec<(String, Zerocopy)> = bench.policies.iter().map(few).collect();
        let title = format!(
            "{}, ns between two operations",
            counted(threads as u32, "threads")
        );
        sensitivity::render(&title, &rows)
    }
}

impl Row<'_> {
    /// The row with another policy or number of threads, if it was measured.
    fn sibling<'a>(&self, rows: &'a [Self], policy: &str, threads: usize) -> Option<&'a Served> {
        rows.iter()
            .find(|row| (row.policy, row.what.threads) == (policy, threads))
            .map(|row| &row.served)
    }

    /// Operations a second, as many times those of `before`.
    fn ratio(&self, rows: &[Self]) -> Option<f64> {
        let before = self.sibling(rows, REFERENCE, self.what.threads)?;
        Some(self.served.per_s() / before.per_s())
    }

    /// Operations a second of each busy CPU, in percent of a lone one's.
    fn scaling(&self, rows: &[Self]) -> Option<f64> {
        let one = self.sibling(rows, self.policy, 1)?;
        Some(self.per_cpu() / one.per_s() * 100.0)
    }

    fn per_cpu(&self) -> f64 {
        self.served.per_s() / self.what.busy_cpus() as f64
    }

    fn published(&self) -> Option<&'static PublishedZerocopy> {
        PublishedZerocopy::with_threads(self.what.threads).filter(|_| self.is_published)
    }

    /// What the authors of the table measured. Nobody had windows: theirs is to be reached.
    fn published_per_s(&self) -> Option<f64> {
        let published = self.published()?;
        let mapping = match self.what.mapping {
            Mapping::Windowed => Mapping::Flagged,
            mapping => mapping,
        };
        published.per_s(mapping)
    }

    /// The row of the result.
    fn object(&self, rows: &[Self]) -> Value {
        let served = &self.served;
        let share = |count: u64| served.per_operation(count);
        let counters: Map<String, Value> = served
            .stats
            .iter()
            .filter(|(_, count)| *count > 0)
            .map(|(name, count)| (name.to_owned(), share(count).into()))
            .collect();
        let stride = served.calls_ps.len().div_ceil(SAMPLES_KEPT);
        let samples = served.calls_ps.iter().step_by(stride);
        json!({
            "machine": machine_name(MachineKind::Sim), "policy": self.policy,
            "threads": self.what.threads, "pages": 1, "cpus": self.what.cpus,
            "charges_shared": self.what.charges_shared,
            "accel": "virtual time", "crowded": false,
            "median_ns": served.call_quantile_us(500) * 1000.0,
            "p99_ns": served.call_quantile_us(990) * 1000.0,
            "min_ns": served.call_quantile_us(0) * 1000.0,
            "mean_ns": served.call_mean_us() * 1000.0,
            "per_s": served.per_s(), "published_per_s": self.published_per_s(),
            "per_s_ratio": self.ratio(rows), "scaling_percent": self.scaling(rows),
            "ipis_per_op": share(served.activity.ipis_sent), "lines_per_op": share(served.lines),
            "stale": served.stale, "iterations": served.operations, "counters": counters,
            "samples": samples.map(|&ps| ps as f64 / 1000.0).collect::<Vec<_>>(),
        })
    }

    fn cells(&self, rows: &[Self]) -> Vec<String> {
        let (served, published) = (&self.served, self.published_per_s());
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
        let deviation = published.map(|per_s| (served.per_s() / per_s - 1.0) * 100.0);
        let call_us = self.published().map(|row| match self.what.mapping {
            Mapping::Ordinary => row.call_us[0],
            Mapping::Flagged | Mapping::Windowed => row.call_us[1],
        });
        vec![
            self.what.threads.to_string(),
            self.policy.to_owned(),
            format!("{:.0}", served.per_s()),
            or_dash(published.map(|per_s| format!("{per_s:.0}"))),
            or_dash(deviation.map(|percent| format!("{percent:+.1} %"))),
            or_dash(self.ratio(rows).map(|ratio| format!("{ratio:.2}"))),
            or_dash(self.scaling(rows).map(|percent| format!("{percent:.1} %"))),
            format!("{:.1}", served.call_mean_us()),
            or_dash(call_us.map(|us| format!("{us:.1}"))),
            format!("{:.1}", served.call_quantile_us(990)),
            format!("{:.2}", served.per_operation(served.activity.ipis_sent)),
            format!("{:.1}", served.per_operation(served.lines)),
            served.stale.to_string(),
        ]
    }
}

fn table(rows: &[Row<'_>]) -> String {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_header([
        "threads",
        "policy",
        "op/s",
        "published",
        "deviation",
        "/ before",
        "a CPU",
        "call us",
        "published us",
        "p99 us",
        "IPIs/op",
        "lines/op",
        "stale",
    ]);
    for row in rows {
        table.add_row(row.cells(rows));
    }
    for (index, column) in table.column_iter_mut().enumerate() {
        if index != 1 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.to_string()
}
