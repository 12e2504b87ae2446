//! [`Run`]: one workload on one machine: its rows, and what is made of them.

use serde_json::{Map, Value, json};
use shootdown::watch::Stats;
use shootdown_sim::workload::{Row as Simulation, changes};

use super::sensitivity;
use super::setup::Setup;
use super::steps::{Counted, Steps};
use crate::bench::columns::{Column, counted, table};
use crate::bench::program::Axes;
use crate::bench::row::{Row, thin};
use crate::cli::{Bench, MachineKind};
use crate::failure::{Failure, Outcome};

/// How many samples a row of the result keeps.
const SAMPLES_KEPT: usize = 200;

/// How a workload runs on this machine.
#[derive(Debug)]
pub struct Simulated {
    /// The preset on which the authors' table was measured.
    pub preset: &'static str,
    /// Names of the rows that are compared without a choice.
    pub policies: [&'static str; 3],
    /// Whether what the machine is made to do has figures too.
    pub has_load: bool,
    /// Whether its kernel may have page-table isolation.
    pub isolates: bool,
    /// The shapes that the caller asks for.
    pub shapes: fn(&Bench, &Axes) -> Outcome<Shapes>,
    /// Runs all rows.
    pub measure: fn(&Run<'_>) -> Findings,
}

/// What a workload makes of its rows.
#[derive(Default)]
pub struct Findings {
    /// The tables.
    pub tables: String,
    /// What they hang on, if that was asked for.
    pub sensitivity: Option<String>,
    /// Accesses through a translation that had to be gone; `None` where the workload accesses nothing.
    pub stale: Option<u64>,
    /// The rows of the result.
    pub rows: Vec<Row>,
    /// What the rows of a contest were measured with.
    pub params: Value,
}

/// What is measured, but for the policies.
pub struct Shapes {
    /// CPUs of the machine; of the largest, if there are several.
    pub cpus: usize,
    /// Numbers of actors.
    pub actors: Vec<usize>,
    /// Numbers of pages.
    pub pages: Vec<usize>,
}

impl Shapes {
    /// All of these.
    pub fn new(cpus: usize, actors: &[u32], pages: &[u32]) -> Self {
        let wide = |values: &[u32]| values.iter().map(|&n| n as usize).collect();
        Self {
            cpus,
            actors: wide(actors),
            pages: wide(pages),
        }
    }

    /// With a CPU for each thread, as `cpu` says, of a workload that `does` the same in each row, and has no rows but its own.
    ///
    /// # Errors
    /// What it cannot measure.
    pub fn of_threads(
        bench: &Bench,
        axes: &Axes,
        (does, cpu): (&str, &str),
        most: u32,
    ) -> Outcome<Self> {
        let (name, own) = (axes.program.name, axes.program.simulated_policies());
        if bench.pages.as_deref().is_some_and(|pages| pages != [1]) || bench.cpus.is_some() {
            return Err(Failure::input(
                format!("{name} {does}, and has a {cpu} for each thread"),
                "use --threads alone",
            ));
        }
        let mut actors = axes.actors.iter();
        if let Some(wrong) = actors.find(|cpus| !(2..=most).contains(*cpus)) {
            return Err(Failure::input(
                format!("{wrong} {cpu}s cannot be simulated here"),
                format!("--threads takes 2 to {most} here"),
            ));
        }
        let is_own = |policy: &&String| own.contains(&policy.as_str());
        if let Some(policy) = bench.policies.iter().find(|policy| !is_own(policy)) {
            return Err(Failure::input(
                format!("{name} has no row {policy}"),
                format!("choose from {}", own.join(", ")),
            ));
        }
        let largest = axes.actors.last().map_or(0, |&cpus| cpus as usize);
        Ok(Self::new(largest, &axes.actors, &[1]))
    }
}

/// The axes of one row.
#[derive(Debug, Clone, Copy)]
pub struct Shape<'a> {
    /// The policy.
    pub policy: &'a str,
    /// How many actors.
    pub actors: usize,
    /// How many pages.
    pub pages: usize,
}

/// One workload on one machine.
pub struct Run<'a> {
    /// What the caller asks for.
    pub bench: &'a Bench,
    /// The machine.
    pub setup: &'a Setup,
    /// Whether it is the one that the authors' table was measured on.
    pub is_published: bool,
    /// What is measured.
    pub shapes: Shapes,
}

impl Run<'_> {
    /// As many iterations of a row are enough in a sweep: nothing but the phase of spin loops differs between them.
    pub const SWEEP_ITERATIONS: usize = 50;

    /// So many times all [`rows`](Self::rows).
    pub fn steps(&self, times: usize) -> Steps {
        let shapes = self.shapes.pages.len() * self.shapes.actors.len();
        Steps::new(times * shapes * self.bench.policies.len(), "rows")
    }

    /// A row for each shape and policy: its axes, and the figures that `measure` finds.
    pub fn rows(&self, steps: &Steps, measure: impl Fn(Shape<'_>) -> Value) -> Vec<Row> {
        let mut rows = Vec::new();
        for &pages in &self.shapes.pages {
            for &actors in &self.shapes.actors {
                for policy in &self.bench.policies {
                    let shape = Shape {
                        policy,
                        actors,
                        pages,
                    };
                    rows.push(self.row(shape, measure(shape)));
                    steps.one_is_done();
                }
            }
        }
        rows
    }

    fn row(&self, shape: Shape<'_>, figures: Value) -> Row {
        let mut row = Row::default();
        row.set("machine", MachineKind::Sim.name());
        row.set("policy", shape.policy);
        row.set(self.bench.workload.actors, shape.actors);
        row.set("pages", shape.pages);
        row.set("cpus", self.shapes.cpus);
        row.set("accel", "virtual time");
        row.set("crowded", false);
        row.0.extend(Row::of(figures).0);
        row
    }

    /// The engine's counters that moved, as `share` has them.
    pub fn counters(&self, stats: &Stats, share: impl Fn(u64) -> f64) -> Map<String, Value> {
        let moved = stats.iter().filter(|(_, count)| *count > 0);
        let shares = moved.map(|(name, count)| (name.to_owned(), share(count).into()));
        shares.collect()
    }

    /// Some of the samples, in nanoseconds.
    pub fn samples(&self, samples_ps: &[u64]) -> Value {
        let samples = samples_ps.iter().map(|&ps| ps as f64 / 1000.0);
        json!(thin(samples.collect(), SAMPLES_KEPT))
    }

    /// A table for each number of pages, of `what`.
    pub fn table_a_page(&self, rows: &[Row], columns: &[Column], what: &str) -> String {
        let of = |&pages: &usize| {
            let rows = rows.iter().filter(|row| row.count("pages") == pages as u64);
            format!(
                "\n{} on the simulated machine {}: {} {what}\n{}\n",
                self.bench.workload.name,
                self.setup.preset.name,
                counted(pages, "pages"),
                table(columns, rows)
            )
        };
        self.shapes.pages.iter().map(of).collect()
    }

    /// What happens to the rows of all policies if figures of the machine change; `title` says what they have in common.
    pub fn sensitivity<R: Simulation>(&self, title: &str, row: impl Fn(&str) -> R) -> String {
        let policies = self.bench.policies.iter();
        // Each as it is, and with each figure halved and doubled.
        let steps = Steps::new(
            policies.len() * (1 + changes(&self.setup.costs).count()),
            "rows of the sweep",
        );
        let counted = |row| Counted { row, steps: &steps };
        let rows = policies.map(|policy| (policy.clone(), counted(row(policy))));
        let rows: Vec<(String, Counted<'_, R>)> = rows.collect();
        sensitivity::render(title, &rows)
    }
}
