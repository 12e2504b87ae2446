//! `pingpong`, table T4.

use serde_json::{Value, json};
use shootdown::Policy;
use shootdown_sim::workload::{PUBLISHED_PINGPONG, Pingpong};

use crate::bench::columns::{Column, Format, counted};
use crate::bench::program::Axes;
use crate::bench::row::{Ratio, Row, fill, fill_page_ns, fill_ratios, stale};
use crate::bench::sim::{Findings, Run, Shape, Shapes, Simulated};
use crate::bench::workload::Program;
use crate::cli::{Bench, MachineKind};
use crate::failure::{Failure, Outcome};

/// The workload.
pub const PROGRAM: Program = Program {
    name: "pingpong",
    about: "Processes on one CPU hand a token round and touch pages of their own (table T4)",
    actors: "spaces",
    actor_bounds: (2, 64),
    // More pages of so many processes do not fit into the machines.
    page_bounds: (0, 512),
    default_actors: &[2, 3, 6, 8, 12],
    default_pages: &[0, 512],
    shares_cpu: true,
    title: |pages| format!("pingpong: {pages} read in a turn; ns a turn, all processes on one CPU"),
    columns: &[PAGE],
    counters: &SWITCHES,
    no_counters: |rows| {
        has_no_tags(rows).then_some(
            "no hardware tags here (kept 0, dropped 0, taken 0): each switch forgets everything under every policy; --machine sim has them",
        )
    },
    simulated: Ok(Simulated {
        preset: "skylake-laptop",
        policies: Program::PLAIN.default_policies,
        has_load: false,
        isolates: true,
        shapes,
        measure,
    }),
    ..Program::PLAIN
};

const PAGE: Column = Column::new("page_ns", "ns a page", Format::Digits(2));
/// How switches work.
const SWITCHES: [(&str, &str); 4] = [
    ("tags kept", "tags_kept"),
    ("tags dropped", "tags_dropped"),
    ("tags taken", "tags_taken"),
    ("lazy skipped", "lazy_skipped"),
];
const SIMULATED: [Column; 15] = [
    Column::new("spaces", "spaces", Format::Actors),
    Column::new("policy", "policy", Format::Words),
    Column::new("mean_ns", "mean ns", Format::Digits(0)),
    Column::new("p99_ns", "p99 ns", Format::Digits(0)),
    Column::new("ratio", "/ before", Format::Digits(3)),
    Column::new("ratio_to_published", "/ published", Format::Digits(3)),
    Column::new("published_ns", "T4's own ns", Format::Digits(0)),
    Column::new("published_ns", "deviation %", Format::Deviation("mean_ns")),
    PAGE,
    Column::new("walks_per_op", "walks/op", Format::Digits(2)),
    Column::new("tags_kept", "kept/op", Format::Counter),
    Column::new("tags_dropped", "dropped/op", Format::Counter),
    Column::new("tags_taken", "taken/op", Format::Counter),
    Column::new("ideal_ns", "ideal ns", Format::Digits(0)),
    Column::new("stale", "stale", Format::Digits(0)),
];
const RATIOS: [Ratio; 2] = [
    Ratio::to_before("ratio", "mean_ns"),
    // The policy of the authors, which uses six tags in turn.
    Ratio::new("ratio_to_published", "mean_ns", &[("policy", "published")]),
];
/// Besides those of the table, as many pages as the TLB holds of twelve spaces.
const SIMULATED_PAGES: [u32; 3] = [0, 128, 512];
/// Times round the ring in a row.
const ROUNDS: usize = 50;
/// Times round the ring in a sweep: without chance, each is like the other.
const SWEEP_ROUNDS: usize = 2;
/// So many processes the authors measured.
const PUBLISHED_SPACES: usize = 2;

/// Whether the reference kernel has shown no tag at all.
fn has_no_tags(rows: &[Row]) -> bool {
    let mut ours = rows
        .iter()
        .filter(|row| row.is_of(MachineKind::Qemu))
        .peekable();
    let tags = &SWITCHES[..3];
    let is_still = |row: &Row| tags.iter().all(|(_, name)| row.counter(name) == 0.0);
    ours.peek().is_some() && ours.all(is_still)
}

fn shapes(bench: &Bench, axes: &Axes) -> Outcome<Shapes> {
    if let Some(cpus) = bench.cpus.filter(|&cpus| cpus != 1) {
        return Err(Failure::input(
            format!("pingpong takes place on one CPU, not {cpus}"),
            "leave out --cpus on sim",
        ));
    }
    let pages = match bench.pages {
        Some(_) => &axes.pages[..],
        None => &SIMULATED_PAGES,
    };
    Ok(Shapes::new(1, &axes.actors, pages))
}

fn measure(run: &Run<'_>) -> Findings {
    let mut rows = run.rows(&run.steps(1), |shape| row(run, shape));
    fill_ratios(&mut rows, &RATIOS);
    fill_page_ns(&mut rows, "mean_ns");
    fill(&mut rows, "ideal_ns", |row, rows| {
        Some(ideal_ns(run, row, rows))
    });
    let title = match run.bench.emulator.isolation {
        true => "read in a turn, page-table isolation; virtual ns a turn, all processes on one CPU",
        false => "read in a turn; virtual ns a turn, all processes on one CPU",
    };
    let mut tables = run.table_a_page(&rows, &SIMULATED, title);
    tables.push_str(
        "walks: accesses of a turn that no level of the TLB served; ideal: what a turn takes at least with all tags, \
         if the TLB replaced its entries as one that knows the future\n\
         T4's own: what its author measured on silicon; the policy published is this engine with what T4 has, and no more\n",
    );
    Findings {
        tables,
        sensitivity: run.bench.sweep.then(|| sensitivity(run)),
        stale: Some(stale(&rows)),
        rows,
        ..Findings::default()
    }
}

fn what(run: &Run<'_>, shape: Shape<'_>, rounds: usize) -> Pingpong {
    let policy = Policy::from_name(shape.policy).expect("checked with the axes");
    Pingpong {
        seed: run.bench.seed,
        iterations: rounds * shape.actors,
        isolation: run.bench.emulator.isolation,
        ..Pingpong::new(shape.actors, shape.pages, policy, &run.setup.costs)
    }
}

fn row(run: &Run<'_>, shape: Shape<'_>) -> Value {
    let measured = what(run, shape, ROUNDS).run();
    let share = |count: u64| measured.per_iteration(count);
    let (stats, translations) = (&measured.stats, &measured.translations);
    json!({
        "median_ns": measured.median_ns(), "p99_ns": measured.quantile_ns(990),
        "min_ns": measured.quantile_ns(0), "mean_ns": measured.mean_ns(),
        "ratio": null, "ratio_to_published": null, "ratio_to_linux": null,
        "page_ns": null, "ideal_ns": null,
        "ipis_per_op": share(stats.ipis_sent), "walks_per_op": share(translations.walks),
        "l1_misses_per_op": share(translations.l1_misses),
        "published_ns": published_ns(run, shape),
        "stale": measured.stale, "iterations": measured.samples_ps.len(),
        "boot_medians_ns": [measured.median_ns()], "counters": run.counters(stats, share),
        "samples": run.samples(&measured.samples_ps),
    })
}

/// What no replacement in the TLB could undercut.
fn ideal_ns(run: &Run<'_>, row: &Row, rows: &[Row]) -> Option<f64> {
    let bare = row.sibling(rows, &[("policy", "best".into()), ("pages", 0.into())])?;
    let shape = Shape {
        policy: row.text("policy"),
        actors: row.count("spaces") as usize,
        pages: row.count("pages") as usize,
    };
    Some(what(run, shape, ROUNDS).least_ns(bare.number("mean_ns")?))
}

/// What the authors of the table measured, on the machine of the default preset: averages.
fn published_ns(run: &Run<'_>, shape: Shape<'_>) -> Option<f64> {
    PUBLISHED_PINGPONG
        .iter()
        .find(|(policy, pages, _)| (*policy, *pages) == (shape.policy, shape.pages))
        .filter(|_| run.is_published && !run.bench.emulator.isolation)
        .filter(|_| shape.actors == PUBLISHED_SPACES)
        .map(|(_, _, ns)| *ns)
}

/// With the largest number of pages.
fn sensitivity(run: &Run<'_>) -> String {
    let pages = run.shapes.pages.last().copied().unwrap_or(0);
    let of = |&spaces: &usize| {
        let title = format!("{}, {}", counted(spaces, "spaces"), counted(pages, "pages"));
        run.sensitivity(&title, |policy| {
            let shape = Shape {
                policy,
                actors: spaces,
                pages,
            };
            what(run, shape, SWEEP_ROUNDS)
        })
    };
    run.shapes.actors.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn where_there_are_no_tags_that_is_said() {
        let row =
            |machine, counters: Value| Row::of(json!({"machine": machine, "counters": counters}));
        let without = row("qemu", json!({"local_flushes": 0.1}));
        let with = row("qemu", json!({"tags_kept": 0.75}));
        assert!(has_no_tags(std::slice::from_ref(&without)));
        assert!(!has_no_tags(&[]) && !has_no_tags(&[row("linux", json!({}))]));
        assert!(!has_no_tags(&[without, with]));
    }
}
