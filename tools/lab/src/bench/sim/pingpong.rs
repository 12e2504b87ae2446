//! Table T4 on the simulated machine.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use serde_json::{Map, Value, json};
use shootdown::Policy;
use shootdown_sim::workload::{Measured, PUBLISHED_PINGPONG, Pingpong};

use super::command::Findings;
use super::sensitivity;
use super::setup::Setup;
use crate::bench::rows::machine_name;
use crate::bench::workload::{Axes, counted};
use crate::cli::{Bench, MachineKind, Workload};
use crate::failure::{Failure, Outcome};

/// The policy that all ratios refer to.
const REFERENCE: &str = "before";
/// The policy of the authors, which uses six tags in turn.
const SIX_TAGS: &str = "published";
/// Besides those of the table, as many pages as the TLB holds of twelve spaces.
const DEFAULT_PAGES: [u32; 3] = [0, 128, 512];
/// Times round the ring in a row.
const ROUNDS: usize = 50;
/// Times round the ring in a sweep: without chance, each is like the other.
const SWEEP_ROUNDS: usize = 2;
/// So many processes the authors measured.
const PUBLISHED_SPACES: usize = 2;
/// How many samples a row of the result keeps.
const SAMPLES_KEPT: usize = 200;

/// What is measured.
pub struct Shapes {
    spaces: Vec<usize>,
    pages: Vec<usize>,
}

/// One row of the table.
struct Row<'a> {
    /// Whether the machine is the one that the table was measured on.
    is_published: bool,
    policy: &'a str,
    what: Pingpong,
    measured: Measured,
}

impl Shapes {
    /// The shapes that the caller asks for.
    ///
    /// # Errors
    /// The caller wants more than one CPU.
    pub fn new(bench: &Bench, axes: &Axes) -> Outcome<Self> {
        if let Some(cpus) = bench.cpus.filter(|&cpus| cpus != 1) {
            return Err(Failure::input(
                format!("pingpong takes place on one CPU, not {cpus}"),
                "leave out --cpus on sim",
            ));
        }
        let wide = |values: &[u32]| values.iter().map(|&n| n as usize).collect();
        let pages = match bench.pages {
            Some(_) => &axes.pages[..],
            None => &DEFAULT_PAGES,
        };
        Ok(Self {
            spaces: wide(&axes.actors),
            pages: wide(pages),
        })
    }

    /// Runs all rows and makes tables and results of them.
    pub fn measure(&self, bench: &Bench, setup: &Setup) -> Findings {
        let mut rows = Vec::new();
        for &pages in &self.pages {
            for &spaces in &self.spaces {
                for (policy, what) in rows_of(bench, setup, (spaces, pages), ROUNDS) {
                    rows.push(Row {
                        is_published: setup.is_published(Workload::Pingpong),
                        policy,
                        measured: what.run(),
                        what,
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

    fn tables(&self, setup: &Setup, rows: &[Row<'_>]) -> String {
        let of = |pages: &usize| {
            format!(
                "\npingpong on the simulated machine {}: {} read in a turn; virtual ns a turn, all processes on one CPU\n{}\n",
                setup.preset().name,
                counted(*pages as u32, "pages"),
                table(rows, *pages)
            )
        };
        let mut text: String = self.pages.iter().map(of).collect();
        text.push_str(
            "walks: accesses of a turn that no level of the TLB served; ideal: what a turn takes at least with all tags, \
             if the TLB replaced its entries as one that knows the future\n",
        );
        text
    }

    /// With the largest number of pages.
    fn sensitivity(&self, bench: &Bench, setup: &Setup) -> String {
        let pages = self.pages.last().copied().unwrap_or(0);
        let of = |spaces: &usize| {
            let rows: Vec<(String, Pingpong)> =
                rows_of(bench, setup, (*spaces, pages), SWEEP_ROUNDS)
                    .into_iter()
                    .map(|(policy, row)| (policy.to_owned(), row))
                    .collect();
            let title = format!(
                "{}, {}",
                counted(*spaces as u32, "spaces"),
                counted(pages as u32, "pages")
            );
            sensitivity::render(&title, &rows)
        };
        self.spaces.iter().map(of).collect()
    }
}

/// The rows of a shape (spaces, pages), by policy.
fn rows_of<'a>(
    bench: &'a Bench,
    setup: &Setup,
    (spaces, pages): (usize, usize),
    rounds: usize,
) -> Vec<(&'a str, Pingpong)> {
    let row = |policy: &'a String| {
        let how = Policy::from_name(policy).expect("checked with the axes");
        let row = Pingpong {
            seed: bench.seed,
            iterations: rounds * spaces,
            ..Pingpong::new(spaces, pages, how, setup.costs())
        };
        (policy.as_str(), row)
    };
    bench.policies.iter().map(row).collect()
}

impl Row<'_> {
    /// The row with another policy or number of pages, if it was measured.
    fn sibling<'a>(&self, rows: &'a [Self], policy: &str, pages: usize) -> Option<&'a Measured> {
        let axes = (policy, self.what.spaces, pages);
        let row = rows
            .iter()
            .find(|row| (row.policy, row.what.spaces, row.what.pages) == axes)?;
        Some(&row.measured)
    }

    /// To another policy with the same axes.
    fn ratio(&self, rows: &[Self], policy: &str) -> Option<f64> {
        let other = self.sibling(rows, policy, self.what.pages)?;
        Some(self.measured.mean_ns() / other.mean_ns())
    }

    /// What a page adds to a turn without any.
    fn page_ns(&self, rows: &[Self]) -> Option<f64> {
        let bare = self.sibling(rows, self.policy, 0)?;
        let pages = self.what.pages;
        (pages > 0).then(|| (self.measured.mean_ns() - bare.mean_ns()) / pages as f64)
    }

    /// What no replacement in the TLB could undercut.
    fn ideal_ns(&self, rows: &[Self]) -> Option<f64> {
        let bare = self.sibling(rows, "best", 0)?;
        Some(self.what.least_ns(bare.mean_ns()))
    }

    /// What the authors of the table measured, on the machine of the default preset: averages.
    fn published_ns(&self) -> Option<f64> {
        let axes = (self.policy, self.what.pages);
        PUBLISHED_PINGPONG
            .iter()
            .find(|(policy, pages, _)| (*policy, *pages) == axes)
            .filter(|_| self.is_published && self.what.spaces == PUBLISHED_SPACES)
            .map(|(_, _, ns)| *ns)
    }

    /// The row of the result.
    fn object(&self, rows: &[Self]) -> Value {
        let Measured {
            stats,
            translations,
            ..
        } = &self.measured;
        let share = |count: u64| self.measured.per_iteration(count);
        let counters: Map<String, Value> = stats
            .iter()
            .filter(|(_, count)| *count > 0)
            .map(|(name, count)| (name.to_owned(), share(count).into()))
            .collect();
        let stride = self.measured.samples_ps.len().div_ceil(SAMPLES_KEPT);
        let samples = self.measured.samples_ps.iter().step_by(stride);
        json!({
            "machine": machine_name(MachineKind::Sim), "policy": self.policy,
            "spaces": self.what.spaces, "pages": self.what.pages, "cpus": 1,
            "accel": "virtual time", "crowded": false,
            "median_ns": self.measured.median_ns(), "p99_ns": self.measured.quantile_ns(990),
            "min_ns": self.measured.quantile_ns(0), "mean_ns": self.measured.mean_ns(),
            "ratio": self.ratio(rows, REFERENCE), "ratio_to_published": self.ratio(rows, SIX_TAGS),
            "ratio_to_linux": null, "page_ns": self.page_ns(rows), "ideal_ns": self.ideal_ns(rows),
            "ipis_per_op": share(stats.ipis_sent), "walks_per_op": share(translations.walks),
            "l1_misses_per_op": share(translations.l1_misses),
            "published_ns": self.published_ns(),
            "stale": self.measured.stale, "iterations": self.measured.samples_ps.len(),
            "boot_medians_ns": [self.measured.median_ns()], "counters": counters,
            "samples": samples.map(|&ps| ps as f64 / 1000.0).collect::<Vec<_>>(),
        })
    }

    fn cells(&self, rows: &[Self]) -> Vec<String> {
        let Measured {
            stats,
            translations,
            ..
        } = &self.measured;
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
        let share = |count: u64| format!("{:.2}", self.measured.per_iteration(count));
        let ratio = |policy: &str| or_dash(self.ratio(rows, policy).map(|r| format!("{r:.3}")));
        let published_ns = self.published_ns();
        let deviation = published_ns.map(|ns| (self.measured.mean_ns() / ns - 1.0) * 100.0);
        vec![
            self.what.spaces.to_string(),
            self.policy.to_owned(),
            format!("{:.0}", self.measured.mean_ns()),
            format!("{:.0}", self.measured.quantile_ns(990)),
            ratio(REFERENCE),
            ratio(SIX_TAGS),
            or_dash(published_ns.map(|ns| format!("{ns:.0}"))),
            or_dash(deviation.map(|percent| format!("{percent:+.1} %"))),
            or_dash(self.page_ns(rows).map(|ns| format!("{ns:.2}"))),
            share(translations.walks),
            share(stats.tags_kept),
            share(stats.tags_dropped),
            share(stats.tags_taken),
            or_dash(self.ideal_ns(rows).map(|ns| format!("{ns:.0}"))),
            self.measured.stale.to_string(),
        ]
    }
}

fn table(rows: &[Row<'_>], pages: usize) -> String {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_header([
        "spaces",
        "policy",
        "mean ns",
        "p99 ns",
        "/ before",
        "/ published",
        "published ns",
        "deviation",
        "ns a page",
        "walks",
        "kept",
        "dropped",
        "taken",
        "ideal",
        "stale",
    ]);
    for row in rows.iter().filter(|row| row.what.pages == pages) {
        table.add_row(row.cells(rows));
    }
    for (index, column) in table.column_iter_mut().enumerate() {
        if index != 1 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.to_string()
}
