//! `--machine sim`: the workload on the simulated machine. The same words print the same bytes, on every host.

use std::io::Write;

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use serde_json::{Map, Value, json};
use shootdown::Policy;
use shootdown_sim::timed::{Costs, PARAMETERS, Parameter, Preset, Unit};
use shootdown_sim::workload::{MAX_CPUS, Madvise, Measured, PUBLISHED, on_large_stack};

use super::rows::machine_name;
use super::sensitivity;
use super::workload::{Axes, counted, distinct};
use crate::cli::{Bench, MachineKind};
use crate::failure::{Doing, Failure, Outcome};
use crate::machine::{self, QEMU_INSTALL};
use crate::{place, session};

/// The preset of table T1.
const DEFAULT_PRESET: &str = "haswell-ep";
/// The policy that all ratios refer to.
const REFERENCE: &str = "before";
/// Iterations of a row: the most, the least, and how many target iterations all together.
const ITERATIONS: (usize, usize, usize) = (1000, 20, 40_000);
/// No flush of the workload is larger than this: one page table.
const MOST_PAGES: u32 = 512;
/// How many samples a row of the result keeps.
const SAMPLES_KEPT: usize = 200;

/// The machine and what is to be measured on it.
pub struct Setup {
    preset: &'static Preset,
    costs: Costs,
    /// Names of the parameters that the caller set.
    set: Vec<&'static str>,
    cpus: usize,
    threads: Vec<usize>,
    pages: Vec<usize>,
}

/// One row of the table.
struct Row<'a> {
    /// Whether the machine is the one that the table was measured on.
    is_published: bool,
    policy: &'a str,
    threads: usize,
    pages: usize,
    measured: Measured,
}

/// Whether the simulated machine is what to measure on: it was named, an option is about it, or there is nothing
/// else. Says so in the last case.
///
/// # Errors
/// It was named together with others.
pub fn is_meant(bench: &Bench) -> Outcome<bool> {
    let is_named = bench.machine.contains(&MachineKind::Sim);
    let is_alone = bench.machine.iter().all(|kind| *kind == MachineKind::Sim);
    let has_options = bench.preset.is_some() || !bench.set.is_empty() || bench.sweep;
    if !is_alone && (is_named || has_options) {
        return Err(Failure::input(
            "the simulated machine is measured alone",
            "use --machine sim, without qemu and linux",
        ));
    }
    if is_named || has_options {
        return Ok(true);
    }
    let names_emulator =
        session::qemu_name(&bench.emulator).is_some() || bench.emulator.kernel.is_some();
    if !bench.machine.is_empty() || names_emulator || machine::find_qemu(None)?.is_some() {
        return Ok(false);
    }
    println!(
        "no QEMU here: this is the built-in simulated machine; for the reference kernel:  {QEMU_INSTALL}"
    );
    Ok(true)
}

/// Measures, prints the table and the figures of the machine, and writes the result.
///
/// # Errors
/// The options make no sense (exit code 2); an access was stale.
pub fn command(bench: &Bench) -> Outcome<()> {
    let setup = Setup::new(bench)?;
    let rows = on_large_stack(|| setup.measure(bench));
    let mut text = setup.render(bench, &rows);
    let stale: u64 = rows.iter().map(|row| row.measured.stale).sum();
    text.push_str(&format!("stale accesses: {stale}\n"));
    // A reader that has seen enough may have gone.
    let _ = std::io::stdout().write_all(text.as_bytes());
    if let Some(path) = &bench.json {
        let text = setup.json(bench, &rows).to_string();
        std::fs::write(path, text + "\n")
            .doing(format!("write the result to {}", path.display()))?;
    }
    match stale {
        0 => Ok(()),
        _ => Err(Failure::work(format!(
            "{stale} stale accesses: a flush was lost or came late"
        ))),
    }
}

impl Setup {
    fn new(bench: &Bench) -> Outcome<Self> {
        let axes = Axes::new(bench)?;
        let name = bench.preset.as_deref().unwrap_or(DEFAULT_PRESET);
        let preset = Preset::named(name).ok_or_else(|| {
            let known = Preset::ALL.map(|preset| preset.name).join(", ");
            Failure::input(
                format!("no preset is called {name:?}"),
                format!("choose from {known}"),
            )
        })?;
        let mut costs = preset.costs();
        let set = bench
            .set
            .iter()
            .map(|words| set(&mut costs, words))
            .collect::<Outcome<_>>()?;
        if let Some(pages) = axes.pages.iter().find(|&&pages| pages > MOST_PAGES) {
            return Err(Failure::input(
                format!("{pages} pages a flush cannot be simulated"),
                format!("--pages takes 1 to {MOST_PAGES} on sim"),
            ));
        }
        let mut threads = axes.actors;
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
            preset,
            costs,
            set,
            cpus,
            threads: distinct(&threads).iter().map(|&n| n as usize).collect(),
            pages: axes.pages.iter().map(|&n| n as usize).collect(),
        })
    }

    /// The rows with so many pages a flush, by threads, then by policy.
    fn rows(&self, bench: &Bench, pages: usize) -> Vec<(String, Madvise)> {
        let (most, least, all) = ITERATIONS;
        let row = |threads: usize, policy: &String| Madvise {
            threads,
            pages,
            policy: Policy::from_name(policy).expect("checked with the axes"),
            costs: self.costs.clone(),
            seed: bench.seed,
            iterations: (all / (threads * pages)).clamp(least, most),
        };
        self.threads
            .iter()
            .flat_map(|&threads| {
                let policies = bench.policies.iter();
                policies.map(move |policy| (policy.clone(), row(threads, policy)))
            })
            .collect()
    }

    fn measure<'a>(&self, bench: &'a Bench) -> Vec<Row<'a>> {
        let mut measured = Vec::new();
        for &pages in &self.pages {
            let rows = self.rows(bench, pages);
            let policies = bench.policies.iter().cycle();
            measured.extend(rows.iter().zip(policies).map(|((_, row), policy)| Row {
                is_published: self.preset.name == DEFAULT_PRESET,
                policy,
                threads: row.threads,
                pages,
                measured: row.run(),
            }));
        }
        measured
    }

    /// The tables, the figures, and what they hang on.
    fn render(&self, bench: &Bench, rows: &[Row<'_>]) -> String {
        let mut lines = Vec::new();
        for pages in &self.pages {
            lines.push(format!(
                "\nmadvise on the simulated machine {}: {} a flush; virtual ns an iteration on the initiator",
                self.preset.name,
                counted(*pages as u32, "pages")
            ));
            lines.push(table(rows, *pages));
        }
        lines.push(format!("\n{}: {}", self.preset.name, self.preset.about));
        lines.push(self.figures());
        lines.push(format!("seed {}   {}", bench.seed, self.fitted()));
        lines.push(match bench.sweep {
            true => {
                let rows = self.rows(bench, self.pages[0]);
                on_large_stack(|| sensitivity::render(&rows))
            }
            false => "what this hangs on: --sweep halves and doubles every figure; --set NAME=VALUE changes one".into(),
        });
        lines.join("\n") + "\n"
    }

    /// Every figure with its origin.
    fn figures(&self) -> String {
        let mut table = Table::new();
        table.load_style(UTF8_FULL_CONDENSED).set_header([
            "figure",
            "value",
            "origin",
            "source or reason",
        ]);
        for parameter in PARAMETERS {
            let (word, text) = self.origin(parameter);
            let value = number(parameter.get(&self.costs));
            table.add_row([parameter.name.to_owned(), value, word, text]);
        }
        if let Some(column) = table.column_mut(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table.to_string()
    }

    fn origin(&self, parameter: &Parameter) -> (String, String) {
        if self.set.contains(&parameter.name) {
            return ("set".into(), "on the command line".into());
        }
        match self.preset.origin(parameter) {
            Some(origin) => (origin.word().into(), origin.text().into()),
            None => ("unknown".into(), String::new()),
        }
    }

    /// One line that says how much of this was fitted.
    fn fitted(&self) -> String {
        let fitted: Vec<&str> = PARAMETERS
            .iter()
            .filter(|parameter| self.origin(parameter).0 == "fitted")
            .map(|parameter| parameter.name)
            .collect();
        match fitted[..] {
            [] => "no figure was fitted".into(),
            _ => format!("fitted to rows of the table: {}", fitted.join(", ")),
        }
    }

    fn json(&self, bench: &Bench, rows: &[Row<'_>]) -> Value {
        let figures: Map<String, Value> = PARAMETERS
            .iter()
            .map(|parameter| {
                let (origin, source) = self.origin(parameter);
                let value = parameter.get(&self.costs);
                let figure = json!({"value": value, "origin": origin, "source": source});
                (parameter.name.to_owned(), figure)
            })
            .collect();
        let objects: Vec<Value> = rows.iter().map(|row| self.object(row, rows)).collect();
        json!({
            "workload": "madvise",
            "machine": machine_name(MachineKind::Sim),
            "accel": "virtual time",
            "cpus": self.cpus,
            "commit": place::commit(),
            "params": {
                "preset": self.preset.name, "figures": figures, "seed": bench.seed,
                "threads": self.threads, "pages": self.pages, "policies": bench.policies,
            },
            "rows": objects,
        })
    }

    fn object(&self, row: &Row<'_>, rows: &[Row<'_>]) -> Value {
        let measured = &row.measured;
        let counters: Map<String, Value> = measured
            .stats
            .iter()
            .filter(|(_, count)| *count > 0)
            .map(|(name, count)| (name.to_owned(), measured.per_iteration(count).into()))
            .collect();
        let stride = measured.samples_ps.len().div_ceil(SAMPLES_KEPT);
        let samples = measured.samples_ps.iter().step_by(stride);
        json!({
            "machine": machine_name(MachineKind::Sim), "policy": row.policy,
            "threads": row.threads, "pages": row.pages, "cpus": self.cpus,
            "accel": "virtual time", "crowded": false,
            "median_ns": measured.median_ns(), "p99_ns": measured.quantile_ns(990),
            "min_ns": measured.quantile_ns(0),
            "ratio": row.ratio(rows), "ratio_to_linux": null,
            "call_median_ns": measured.call_quantile_ns(500), "call_p99_ns": measured.call_quantile_ns(990),
            "call_ratio": row.call_ratio(rows), "call_ratio_to_linux": null,
            "ipis_per_op": measured.per_iteration(measured.stats.ipis_sent),
            "lines_per_op": measured.per_iteration(measured.lines),
            "published_ns": row.published_ns(),
            "stale": measured.stale, "iterations": measured.samples_ps.len(),
            "boot_medians_ns": [measured.median_ns()], "counters": counters,
            "samples": samples.map(|&ps| ps as f64 / 1000.0).collect::<Vec<_>>(),
        })
    }
}

impl Row<'_> {
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

/// Carries out `NAME=VALUE`; returns the name.
fn set(costs: &mut Costs, words: &str) -> Outcome<&'static str> {
    let remedy = "the table of every run names the figures; use --set NAME=VALUE";
    let refused = |cause: String| Failure::input(cause, remedy);
    let (name, value) = words
        .split_once('=')
        .ok_or_else(|| refused(format!("--set {words:?} has no value")))?;
    let parameter = Parameter::named(name).map_err(|error| refused(error.to_string()))?;
    let number: f64 = value
        .parse()
        .map_err(|_| refused(format!("{value:?} is no number for {name}")))?;
    parameter
        .set(costs, number)
        .map_err(|error| refused(error.to_string()))?;
    if parameter.unit != Unit::Time && number.fract() != 0.0 {
        return Err(refused(format!("{name} takes whole numbers")));
    }
    Ok(parameter.name)
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

/// As short as it is exact.
pub fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_set_by_name_or_refused_with_the_reason() {
        let mut costs = Costs::default();
        assert_eq!(set(&mut costs, "icr_ns=12.5").unwrap(), "icr_ns");
        assert_eq!(costs.icr_ps, 12_500);
        for (words, why) in [
            ("icr_ns", "no value"),
            ("icr_ns=fast", "no number"),
            ("icr=3", "did you mean icr_ns?"),
            ("icr_ns=-1", "takes 0 to"),
            ("cluster_cpus=1.5", "whole"),
        ] {
            let text = set(&mut costs, words).unwrap_err().to_string();
            assert!(text.contains(why) && !text.contains('\n'), "{text}");
        }
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(number(42.1), "42.1");
        assert_eq!(number(100.0), "100");
        assert_eq!(number(0.125), "0.125");
    }
}
