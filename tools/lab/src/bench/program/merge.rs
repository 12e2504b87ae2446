//! Many boots become one row: medians over the boots, ratios within each, counts over all.

use serde_json::{Value, json};

use super::group::Group;
use crate::bench::row::{
    AXES, Change, REFERENCE, Ratio, Row, fill_page_ns, fill_ratios, median, thin,
};
use crate::bench::workload::Program;

/// How many samples a merged row keeps.
const SAMPLES_KEPT: usize = 2000;

/// How the figures of several boots become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Merge {
    /// The middle one.
    Median,
    /// The same, of a ratio: it is written also where there was nothing to compare with.
    Ratio,
    /// The least.
    Least,
    /// The greatest.
    Most,
    /// All together.
    Sum,
    /// Whether it is so in all of them.
    All,
    /// The last one's.
    Last,
}

/// A figure: its key, and how those of several boots become one.
pub type Metric = (&'static str, Merge);

const TO_BEFORE: Change = &[("machine", "qemu"), ("policy", REFERENCE)];
const TO_LINUX: Change = &[("machine", "linux"), ("policy", "linux")];

/// What is compared, within each boot.
const RATIOS: [Ratio; 5] = [
    Ratio::new("ratio", "median_ns", TO_BEFORE),
    Ratio::new("ratio_to_linux", "median_ns", TO_LINUX),
    Ratio::new("call_ratio", "call_median_ns", TO_BEFORE),
    Ratio::new("call_ratio_to_linux", "call_median_ns", TO_LINUX),
    Ratio::new("per_s_ratio", "per_s", TO_BEFORE),
];
/// The figures of all programs: of an iteration, of the system call in it, of all operations together. A program may lack those of
/// a call and those of all.
const METRICS: [Metric; 11] = [
    ("median_ns", Merge::Median),
    ("p99_ns", Merge::Median),
    ("min_ns", Merge::Least),
    ("ratio", Merge::Ratio),
    ("ratio_to_linux", Merge::Ratio),
    ("call_median_ns", Merge::Median),
    ("call_p99_ns", Merge::Median),
    ("call_ratio", Merge::Ratio),
    ("call_ratio_to_linux", Merge::Ratio),
    ("per_s", Merge::Median),
    ("per_s_ratio", Merge::Ratio),
];

/// Merges the boots of one group; the order of the first boot is kept.
pub fn merge(mut boots: Vec<Vec<Row>>, group: &Group, program: &Program) -> Vec<Row> {
    for rows in &mut boots {
        fill_ratios(rows, &RATIOS);
        fill_ratios(rows, program.ratios);
    }
    let mut merged: Vec<Row> = Vec::new();
    for row in boots.iter().flatten() {
        if row.sibling(&merged, &[]).is_none() {
            merged.push(merge_one(row, &boots, group, program));
        }
    }
    fill_page_ns(&mut merged, "median_ns");
    for row in &mut merged {
        if row.number("page_ns").is_none() {
            row.0.shift_remove("page_ns");
        }
    }
    merged
}

fn merge_one(row: &Row, boots: &[Vec<Row>], group: &Group, program: &Program) -> Row {
    let of = |changes: &[(&str, Value)]| -> Vec<&Row> {
        let rows = boots.iter().filter_map(|rows| row.sibling(rows, changes));
        rows.collect()
    };
    let own = of(&[]);
    let mut merged = Row::default();
    for key in AXES {
        if let Some(axis) = row.0.get(key) {
            merged.set(key, axis.clone());
        }
    }
    merged.set("cpus", group.cpus);
    merged.set("accel", group.accel.to_string());
    merged.set("crowded", group.is_crowded);
    for (key, how) in METRICS.iter().chain(program.metrics) {
        if let Some(figure) = figure(&own, key, *how) {
            merged.set(key, figure);
        }
    }
    let before = of(&RATIOS[0].changes());
    (program.pool)(&mut merged, &own, &before);
    // Where it is not needed it goes again.
    merged.set("page_ns", Value::Null);
    let iterations: u64 = own.iter().map(|row| row.count("iterations")).sum();
    let ipis = |row: &&Row| Some(row.number("ipis_per_op")? * row.count("iterations") as f64);
    let ipis: Option<f64> = own.iter().map(ipis).sum();
    let ipis_per_op = ipis.map(|ipis| ipis / iterations.max(1) as f64);
    merged.set("ipis_per_op", ipis_per_op);
    let stale: u64 = own.iter().map(|row| row.count("stale")).sum();
    merged.set("stale", stale);
    merged.set("iterations", iterations);
    let medians = own.iter().filter_map(|row| row.number("median_ns"));
    merged.set("boot_medians_ns", medians.collect::<Vec<f64>>());
    let counters = own.last().and_then(|row| row.0.get("counters"));
    merged.set("counters", counters.cloned().unwrap_or_else(|| json!({})));
    let samples = own.iter().flat_map(|row| row.numbers("samples"));
    merged.set("samples", thin(samples.collect::<Vec<f64>>(), SAMPLES_KEPT));
    merged
}

/// One figure of all boots; `None` if no boot has it.
fn figure(rows: &[&Row], key: &str, how: Merge) -> Option<Value> {
    let values = || rows.iter().filter_map(|row| row.0.get(key));
    let numbers = || rows.iter().filter_map(|row| row.number(key));
    Some(match how {
        Merge::Median => median(numbers())?.into(),
        Merge::Ratio => {
            values().next()?;
            median(numbers()).into()
        }
        Merge::Least => numbers().fold(f64::INFINITY, f64::min).into(),
        Merge::Most => numbers().fold(0.0, f64::max).into(),
        Merge::Sum => rows.iter().map(|row| row.count(key)).sum::<u64>().into(),
        Merge::All => values().all(|value| *value == Value::Bool(true)).into(),
        Merge::Last => values().next_back()?.clone(),
    })
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::bench::workloads;

    /// A row from its JSON.
    pub fn row_of(json: &str) -> Row {
        serde_json::from_str(json).unwrap()
    }

    /// Rows of a program, by boot, merged.
    pub fn merged(program: &Program, boots: Vec<Vec<Row>>) -> Vec<Row> {
        let bench = crate::cli::tests::bench("--accel tcg");
        let group = Group::new(2, vec![2], &bench).unwrap();
        merge(boots, &group, program)
    }

    /// The call is all but 40 ns of the iteration.
    fn row(machine: &str, boot: u32, policy: &str, median_ns: f64) -> Row {
        let call_ns = median_ns - 40.0;
        row_of(&format!(
            r#"{{"machine":"{machine}","policy":"{policy}","threads":2,"pages":1,"median_ns":{median_ns},"p99_ns":9,
                "min_ns":{boot},"call_median_ns":{call_ns},"call_p99_ns":{boot},"per_s":null,
                "iterations":100,"ipis_per_op":1.0,"stale":{boot},"samples":[1,2]}}"#
        ))
    }

    fn merged_threads(boots: Vec<Vec<Row>>) -> Vec<Row> {
        merged(workloads::PROGRAMS[0], boots)
    }

    #[test]
    fn ratios_are_taken_within_a_boot() {
        // Boot 1 ran on a host twice as slow: the ratios do not see it.
        let boot = |number: u32, slowness: f64| {
            vec![
                row("qemu", number, "before", 100.0 * slowness),
                row("qemu", number, "best", 80.0 * slowness),
                row("linux", number, "linux", 160.0 * slowness),
            ]
        };
        let rows = merged_threads(vec![boot(0, 1.0), boot(1, 2.0)]);
        let ratios: Vec<_> = rows.iter().map(|row| row.number("ratio")).collect();
        assert_eq!(ratios, [Some(1.0), Some(0.8), Some(1.6)]);
        assert_eq!(rows[1].number("ratio_to_linux"), Some(0.5));
        assert_eq!(rows[1].number("median_ns"), Some(120.0));
    }

    #[test]
    fn the_call_is_compared_with_the_call_and_what_no_boot_has_is_left_out() {
        let rows = merged_threads(vec![vec![
            row("qemu", 0, "before", 100.0),
            row("qemu", 0, "best", 70.0),
            row("linux", 0, "linux", 160.0),
        ]]);
        let keys = ["ratio", "call_ratio", "call_ratio_to_linux"];
        let figures = keys.map(|key| rows[1].number(key).unwrap());
        assert_eq!(figures, [0.7, 0.5, 0.25]);
        let figures = ["call_median_ns", "call_p99_ns"].map(|key| rows[1].number(key));
        assert_eq!(figures, [Some(30.0), Some(0.0)]);
        assert!(!rows[1].0.contains_key("per_s") && !rows[1].0.contains_key("per_s_ratio"));
    }

    #[test]
    fn a_page_costs_what_it_adds_to_an_iteration_without_any() {
        let turn = |policy: &str, pages: u32, median_ns: f64| {
            let mut turn = row("qemu", 0, policy, median_ns);
            turn.set("pages", pages);
            turn
        };
        let rows = merged_threads(vec![vec![
            turn("before", 0, 100.0),
            turn("before", 50, 300.0),
            turn("best", 50, 300.0),
        ]]);
        let pages_ns: Vec<Option<f64>> = rows.iter().map(|row| row.number("page_ns")).collect();
        assert_eq!(pages_ns, [None, Some(4.0), None]);
        assert!(!rows[2].0.contains_key("page_ns"));
        assert_eq!(rows[2].number("ratio"), Some(1.0));
    }

    #[test]
    fn counts_add_up_over_boots() {
        let boot = |number, ns| vec![row("qemu", number, "best", ns)];
        let rows = merged_threads(vec![boot(1, 1.0), boot(2, 3.0)]);
        let counts = ["stale", "iterations"].map(|key| rows[0].count(key));
        assert_eq!(counts, [3, 200]);
        let figures = ["ipis_per_op", "min_ns", "ratio"].map(|key| rows[0].number(key));
        // There is nothing to compare with.
        assert_eq!(figures, [Some(1.0), Some(1.0), None]);
        assert_eq!(rows[0].numbers("samples").count(), 4);
        assert!(rows[0].0.contains_key("ratio"));
    }
}
