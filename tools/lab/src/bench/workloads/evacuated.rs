//! `evacuate` on the simulated machine: ten virtual machines under a log of writes, as in T5.

use serde_json::{Value, json};
use shootdown_sim::workload::{Evacuate, Evacuation, MAX_CPUS};

use crate::bench::columns::{Column, Format, table};
use crate::bench::program::Axes;
use crate::bench::row::{Ratio, fill_ratios, stale};
use crate::bench::sim::{Findings, Run, Shape, Shapes, Simulated};
use crate::cli::Bench;
use crate::failure::{Failure, Outcome};

/// How it runs there.
pub const SIMULATED: Simulated = Simulated {
    preset: "ten-guests",
    policies: [
        Evacuation::Xen.name(),
        Evacuation::Published.name(),
        Evacuation::Best.name(),
    ],
    has_load: false,
    isolates: false,
    shapes,
    measure,
};

const COLUMNS: [Column; 11] = [
    Column::new("cpus", "CPUs", Format::Digits(0)),
    Column::new("policy", "policy", Format::Words),
    Column::new("per_s", "pages/s", Format::Digits(0)),
    Column::new("ratio", "/ xen", Format::Digits(3)),
    Column::new("published_ratio", "T5's own / xen", Format::Digits(2)),
    Column::new("writes_per_s", "writes/s", Format::Digits(0)),
    Column::new("exits_per_op", "exits/op", Format::Digits(2)),
    Column::new("flushes_per_op", "flushes/op", Format::Digits(3)),
    Column::new("ipis_per_op", "IPIs/op", Format::Digits(3)),
    Column::new("drops_per_op", "tags dropped/op", Format::Digits(3)),
    Column::new("stale", "stale", Format::Digits(0)),
];
const RATIO: Ratio = Ratio::new("ratio", "per_s", &[("policy", "xen")]);
/// T5: memory dirtied a second by ten virtual machines.
const MACHINES: usize = 10;
const PUBLISHED_RATIO: f64 = 1.16;
/// The size for which it is fitted.
const FITTED_CPUS: usize = 16;
/// Without a choice.
const SIZES: [usize; 2] = [16, 64];
/// For each virtual CPU, so many CPUs: all have something to do, and some take turns.
const CPUS_PER_VCPU: usize = 8;
const PAGES: usize = 8192;
const ROUNDS: [u64; 2] = [8, 2];

fn shapes(bench: &Bench, _: &Axes) -> Outcome<Shapes> {
    if bench.threads.is_some() || bench.pages.is_some() {
        return Err(Failure::input(
            "evacuate has ten virtual machines of 8192 pages on the simulated machine",
            "use --cpus alone",
        ));
    }
    let is_unknown = |name: &&String| Evacuation::named(name).is_none();
    if let Some(policy) = bench.policies.iter().find(is_unknown) {
        return Err(Failure::input(
            format!("evacuate has no row {policy} on the simulated machine"),
            "choose --policies from xen, published, best",
        ));
    }
    let sizes = match bench.cpus {
        None => SIZES.to_vec(),
        Some(cpus) if (2..=MAX_CPUS as i64).contains(&cpus) => vec![cpus as usize],
        Some(cpus) => {
            return Err(Failure::input(
                format!("a machine of {cpus} CPUs cannot evacuate"),
                format!("--cpus takes 2 to {MAX_CPUS} here"),
            ));
        }
    };
    Ok(Shapes {
        cpus: sizes[sizes.len() - 1],
        actors: sizes,
        pages: vec![PAGES],
    })
}

fn measure(run: &Run<'_>) -> Findings {
    let mut rows = run.rows(&run.steps(1), |shape| row(run, shape));
    fill_ratios(&mut rows, &[RATIO]);
    let tables = format!(
        "\nevacuate on the simulated machine {}: {MACHINES} virtual machines, {PAGES} pages each; an op is a page that is written first after its log was cleared\n{}\n\
         xen: a flush for each first write, one at a time, which voids the tags of all virtual machines; published: the same without a lock (T5); \
         best: no flush for a first write, one for a log, of its virtual machine's tags.\n\
         T5's own: what its authors measured on silicon   stale: writes that are in no log\n",
        run.setup.preset.name,
        table(&COLUMNS, &rows)
    );
    Findings {
        tables,
        stale: Some(stale(&rows)),
        rows,
        ..Findings::default()
    }
}

fn row(run: &Run<'_>, shape: Shape<'_>) -> Value {
    let cpus = shape.actors;
    let evacuation = Evacuation::named(shape.policy).expect("checked with the axes");
    let row = Evacuate {
        cpus,
        machines: MACHINES,
        vcpus: cpus.div_ceil(CPUS_PER_VCPU),
        pages: shape.pages,
        evacuation,
        costs: run.setup.costs.clone(),
        seed: run.bench.seed,
        rounds: ROUNDS[usize::from(run.bench.quick)],
    };
    let (measured, is_published) = (row.run(), evacuation == Evacuation::Published);
    let (counted, per_op) = (measured.counted, |count| measured.per_dirtied(count));
    json!({
        "cpus": cpus, "vcpus": row.vcpus,
        "per_s": measured.per_s(counted.dirtied), "ratio": null,
        "published_ratio": (is_published && run.is_published && cpus == FITTED_CPUS).then_some(PUBLISHED_RATIO),
        "writes_per_s": measured.per_s(counted.writes),
        "exits_per_op": per_op(counted.exits), "flushes_per_op": per_op(counted.flushes),
        "ipis_per_op": per_op(counted.ipis), "drops_per_op": per_op(counted.tags_dropped),
        "stale": counted.stale, "iterations": counted.dirtied,
    })
}
