//! What is shown of each bench's rows.

use serde_json::Value;

use super::table::{Table, time};
use crate::policy::REFERENCE_POLICY;

/// What stands where a row has no such figure.
const NOTHING: &str = "-";
/// The other policies that are measured.
const PUBLISHED: &str = "published";
const BEST: &str = "best";
/// Whose calls are measured.
const PEERS: [&str; 6] = ["mailbox", "xen-before", "xen", "linux", "freebsd", BEST];

/// `madvise`: its call.
pub fn madvise(rows: &[Value]) -> Table {
    let title = "madvise: median of a call that drops pages, published and best to before";
    let heads = [
        "pages",
        "threads",
        "before",
        "p99",
        "published",
        "best",
        "best p99",
        "IPIs",
        "stale",
    ];
    let mut table = Table::new(title, &heads);
    for shape in shapes(rows, ["pages", "threads"]) {
        let of = |policy| shape.iter().find(|row| row["policy"] == policy);
        let figure = |policy, key| of(policy).and_then(|row| row[key].as_f64());
        table.add(vec![
            word(&shape[0]["pages"]),
            word(&shape[0]["threads"]),
            duration(figure(REFERENCE_POLICY, "call_median_ns")),
            duration(figure(REFERENCE_POLICY, "call_p99_ns")),
            decimal(figure(PUBLISHED, "call_ratio"), 3),
            decimal(figure(BEST, "call_ratio"), 3),
            duration(figure(BEST, "call_p99_ns")),
            decimal(figure(BEST, "ipis_per_op"), 2),
            sum(&shape, "stale"),
        ]);
    }
    table
}

/// `pingpong`: a turn.
pub fn pingpong(rows: &[Value]) -> Table {
    let title = "pingpong: median of a turn of spaces on one CPU, published and best to before";
    let heads = [
        "pages",
        "spaces",
        "before",
        "p99",
        "published",
        "best",
        "best p99",
        "kept",
        "stale",
    ];
    let mut table = Table::new(title, &heads);
    for shape in shapes(rows, ["pages", "spaces"]) {
        let of = |policy| shape.iter().find(|row| row["policy"] == policy);
        let figure = |policy, key| of(policy).and_then(|row| row[key].as_f64());
        // Counters that did not move are left out.
        let kept = of(BEST).map(|row| row["counters"]["tags_kept"].as_f64().unwrap_or(0.0));
        table.add(vec![
            word(&shape[0]["pages"]),
            word(&shape[0]["spaces"]),
            duration(figure(REFERENCE_POLICY, "median_ns")),
            duration(figure(REFERENCE_POLICY, "p99_ns")),
            decimal(figure(PUBLISHED, "ratio"), 3),
            decimal(figure(BEST, "ratio"), 3),
            duration(figure(BEST, "p99_ns")),
            decimal(kept, 2),
            sum(&shape, "stale"),
        ]);
    }
    table
}

/// `preemptoff`: wake-ups, and spans with preemption off.
pub fn preemptoff(rows: &[Value]) -> Table {
    let title = "preemptoff: late wake-ups, longest spans with preemption off, waits in them";
    let heads = [
        "policy", "threads", "late", "p99", "span", "p99", "wait", "p99", "stale",
    ];
    let mut table = Table::new(title, &heads);
    for row in rows {
        let times = [
            "median_ns",
            "p99_ns",
            "off_p50_ns",
            "off_p99_ns",
            "ipi_wait_p50_ns",
            "ipi_wait_p99_ns",
        ];
        let mut cells = vec![word(&row["policy"]), word(&row["threads"])];
        cells.extend(times.map(|key| duration(row[key].as_f64())));
        cells.push(word(&row["stale"]));
        table.add(cells);
    }
    table
}

/// The calls in ring 0.
pub fn shoot(rows: &[Value]) -> Table {
    let title = "shoot: median of a call in ring 0, other kernels' algorithms and this one's";
    let mut heads = vec!["callers", "targets"];
    heads.extend(PEERS);
    heads.push("wrong");
    let mut table = Table::new(title, &heads);
    for shape in shapes(rows, ["initiators", "targets"]) {
        let mut cells = vec![word(&shape[0]["initiators"]), word(&shape[0]["targets"])];
        for peer in PEERS {
            let row = shape.iter().find(|row| row["peer"] == peer);
            cells.push(duration(row.and_then(|row| row["median_ns"].as_f64())));
        }
        cells.push(sum(&shape, "wrong"));
        table.add(cells);
    }
    table
}

/// The rows that have the same two axes, in the order in which they came. None is empty.
fn shapes<'a>(rows: &'a [Value], axes: [&str; 2]) -> Vec<Vec<&'a Value>> {
    let mut shapes: Vec<Vec<&Value>> = Vec::new();
    for row in rows {
        let is_same =
            |shape: &&mut Vec<&Value>| axes.iter().all(|axis| shape[0][axis] == row[axis]);
        match shapes.iter_mut().find(is_same) {
            Some(shape) => shape.push(row),
            None => shapes.push(vec![row]),
        }
    }
    shapes
}

fn word(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => NOTHING.to_owned(),
        other => other.to_string(),
    }
}

fn duration(ns: Option<f64>) -> String {
    ns.map_or(NOTHING.to_owned(), time)
}

fn decimal(value: Option<f64>, places: usize) -> String {
    value.map_or(NOTHING.to_owned(), |value| format!("{value:.places$}"))
}

fn sum(rows: &[&Value], key: &str) -> String {
    let counts = rows.iter().filter_map(|row| row[key].as_u64());
    counts.sum::<u64>().to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::table::COLUMNS;
    use super::*;

    /// Rows of the screen.
    const ROWS: usize = 25;

    /// The widest figures that machines show: those of an emulator on a busy host.
    fn row(policy: &str, shape: u32) -> Value {
        json!({
            "policy": policy, "peer": policy, "threads": 16, "pages": shape, "spaces": 12, "initiators": 16, "targets": shape,
            "call_median_ns": 99_996_000, "call_p99_ns": 99_996_000, "call_ratio": 10.123, "median_ns": 99_996_000,
            "p99_ns": 99_996_000, "ratio": 10.123, "ipis_per_op": 10.25, "off_p50_ns": 99_996_000, "off_p99_ns": 99_996_000,
            "ipi_wait_p50_ns": 99_996_000, "ipi_wait_p99_ns": 99_996_000, "stale": 1, "wrong": 2,
        })
    }

    #[test]
    fn all_pages_together_fit_the_screen() {
        let policies = [REFERENCE_POLICY, PUBLISHED, BEST];
        let of = |names: &[&str], shapes: &[u32]| -> Vec<Value> {
            let rows = shapes
                .iter()
                .flat_map(|&shape| names.iter().map(move |name| row(name, shape)));
            rows.collect()
        };
        let pages = [
            madvise(&of(&policies, &[1, 32, 1000, 4096])),
            pingpong(&of(&policies, &[0, 128, 4096])),
            preemptoff(&of(&policies, &[8])),
            shoot(&of(&PEERS, &[1, 15, 2, 3])),
        ];
        let text = pages.map(|page| page.to_string()).concat();
        let widest = text.lines().map(str::len).max();
        assert!(widest < Some(COLUMNS), "{text}");
        // With a headline, a verdict and the kernel's last line they fill it.
        assert_eq!(text.lines().count() + 3, ROWS);
        assert!(text.contains("     32       16   100ms"), "{text}");
    }

    #[test]
    fn figures_that_are_missing_leave_a_mark() {
        let text = madvise(&[json!({"policy": "linux", "pages": 1, "threads": 1})]).to_string();
        let last = text.lines().last().unwrap_or_default();
        let cells: Vec<&str> = last.split_whitespace().collect();
        assert_eq!(cells, ["1", "1", "-", "-", "-", "-", "-", "-", "0"]);
    }
}
