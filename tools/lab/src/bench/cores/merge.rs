//! Rows of several processes as one: where its memory lies decides some of what an operation takes.

use serde_json::Value;

use crate::bench::row::Row;

/// What tells rows apart.
const AXES: [&str; 4] = ["placement", "interrupt_cycles", "operation", "peer"];
const SUMS: [&str; 3] = ["rounds", "calls", "wrong"];
const LISTS: [&str; 3] = ["medians_cycles", "p99s_cycles", "samples_cycles"];
/// What follows from a list: the figure, the list, and which share of it is smaller.
const QUANTILES: [(&str, &str, f64); 4] = [
    ("median_cycles", "medians_cycles", 0.5),
    ("low_cycles", "medians_cycles", 0.1),
    ("high_cycles", "medians_cycles", 0.9),
    ("p99_cycles", "p99s_cycles", 0.5),
];

/// One row for all that differ in their process only. Steps are the first one's.
pub fn merged(rows: impl Iterator<Item = Row>) -> Vec<Row> {
    let mut all: Vec<Row> = Vec::new();
    for row in rows {
        let is_same = |one: &&mut Row| AXES.iter().all(|axis| one.0.get(*axis) == row.0.get(*axis));
        match all.iter_mut().find(is_same) {
            Some(one) => add(one, row),
            None => all.push(row),
        }
    }
    for row in &mut all {
        for (figure, list, share) in QUANTILES {
            let value = quantile(row, list, share);
            row.0.insert(figure.into(), value);
        }
    }
    all
}

fn add(one: &mut Row, other: Row) {
    for sum in SUMS {
        let both = one.count(sum) + other.count(sum);
        one.0.insert(sum.into(), both.into());
    }
    for (key, more) in other.0 {
        let list = one
            .0
            .get_mut(&key)
            .filter(|_| LISTS.contains(&key.as_str()));
        if let (Some(Value::Array(list)), Value::Array(more)) = (list, more) {
            list.extend(more);
        }
    }
}

fn quantile(row: &Row, list: &str, share: f64) -> Value {
    let values = row.0.get(list).and_then(Value::as_array);
    let values = values.into_iter().flatten().filter_map(Value::as_u64);
    let mut sorted: Vec<u64> = values.collect();
    sorted.sort_unstable();
    let index = (sorted.len() as f64 * share) as usize;
    sorted.get(index).copied().into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::merged;
    use crate::bench::row::Row;

    #[test]
    fn processes_are_one_row_and_operations_are_not() {
        let row = |operation: &str, medians: [u64; 2]| {
            Row::of(json!({
                "placement": "far", "interrupt_cycles": 0, "operation": operation, "peer": "best",
                "rounds": 2, "calls": 10, "wrong": 1, "median_cycles": medians[1],
                "medians_cycles": medians, "p99s_cycles": [7, 9], "samples_cycles": [1],
            }))
        };
        let rows = [
            row("call 1", [10, 20]),
            row("flush 1 page", [1, 2]),
            row("call 1", [30, 40]),
        ];
        let all = merged(rows.into_iter());
        assert_eq!(all.len(), 2);
        let counts = [
            "rounds",
            "calls",
            "wrong",
            "median_cycles",
            "low_cycles",
            "high_cycles",
        ];
        assert_eq!(counts.map(|key| all[0].count(key)), [4, 20, 2, 30, 10, 40]);
        assert_eq!(all[0].0["samples_cycles"], json!([1, 1]));
        assert_eq!(all[1].count("median_cycles"), 2);
    }
}
