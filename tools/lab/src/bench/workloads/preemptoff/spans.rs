//! The longest spans with preemption off, and the waits for other CPUs in them, as the reference kernel's tracer records them.

use crate::bench::columns::{Column, Format, table};
use crate::bench::row::Row;

/// The spans of a program's row.
const SPANS: [Column; 10] = [
    Column::new("threads", "threads", Format::Actors),
    Column::new("policy", "policy", Format::Words),
    Column::new("off_spans", "spans", Format::Digits(0)),
    Column::new("off_p50_ns", "p50 us", Format::Micros),
    Column::new("off_p99_ns", "p99 us", Format::Micros),
    Column::new("off_ratio", "p99 / before", Format::Digits(3)),
    Column::new("off_max_ns", "max us", Format::Micros),
    Column::new("ipi_wait_p50_ns", "IPI wait p50 us", Format::Micros),
    Column::new("ipi_wait_p99_ns", "IPI wait p99 us", Format::Micros),
    Column::new("off_at", "the longest began at", Format::Words),
];
/// Of the longest spans with preemption off, one for each CPU and interval, and of the longest waits for other CPUs in them: one
/// distribution over all boots. Nothing where no kernel keeps a record of them.
pub fn pool(row: &mut Row, own: &[&Row], reference: &[&Row]) {
    let (spans, before) = (pooled(own, "off_samples"), pooled(reference, "off_samples"));
    let waits = pooled(own, "ipi_wait_samples");
    let Some(off_p99_ns) = quantile(&spans, 99) else {
        return;
    };
    let off_max_ns = |row: &Row| row.number("off_max_ns").unwrap_or(0.0);
    let by_length = |a: &&&Row, b: &&&Row| off_max_ns(a).total_cmp(&off_max_ns(b));
    let longest = own.iter().max_by(by_length);
    let at = longest.and_then(|longest| longest.0.get("off_at"));
    let before = quantile(&before, 99).filter(|&ns| ns > 0.0);
    row.set("off_spans", spans.len());
    row.set("off_p50_ns", quantile(&spans, 50));
    row.set("off_p99_ns", off_p99_ns);
    row.set("off_max_ns", longest.map_or(0.0, |row| off_max_ns(row)));
    row.set("off_at", at.cloned());
    row.set("off_ratio", before.map(|ns| off_p99_ns / ns));
    row.set("ipi_wait_p50_ns", quantile(&waits, 50));
    row.set("ipi_wait_p99_ns", quantile(&waits, 99));
}

/// All samples of all boots, sorted.
fn pooled(rows: &[&Row], samples: &str) -> Vec<f64> {
    let mut pooled: Vec<f64> = rows.iter().flat_map(|row| row.numbers(samples)).collect();
    pooled.sort_by(f64::total_cmp);
    pooled
}

/// By nearest rank.
fn quantile(sorted: &[f64], percent: usize) -> Option<f64> {
    let rank = (sorted.len() * percent).div_ceil(100).max(1) - 1;
    sorted.get(rank).copied()
}

/// Whether a row has them.
pub fn are_in(row: &Row) -> bool {
    row.0.contains_key("off_spans")
}

/// The table, where there is something in it.
pub fn render(rows: &[&Row]) -> Option<String> {
    let rows: Vec<&Row> = rows.iter().copied().filter(|row| are_in(row)).collect();
    let heading = "the longest span with preemption off, for each CPU and interval";
    (!rows.is_empty()).then(|| format!("{heading}\n{}", table(&SPANS, rows)))
}

#[cfg(test)]
mod tests {
    use super::super::tests::row;
    use super::*;
    use crate::bench::program::merged;

    fn with_spans(boot: u32, policy: &str, samples: &str, most: u32, place: &str) -> Row {
        let further = format!(
            r#","keepers":1,"off_samples":{samples},"off_max_ns":{most},"off_at":"{place}""#
        );
        row("qemu", boot, policy, &further)
    }

    #[test]
    fn the_spans_of_all_boots_are_one_distribution() {
        let rows = merged(
            &super::super::PROGRAM,
            vec![
                vec![
                    with_spans(1, "before", "[1000,4000]", 4000, "a.rs:1"),
                    with_spans(1, "best", "[100,300]", 300, "b.rs:1"),
                ],
                vec![
                    with_spans(2, "before", "[2000,8000]", 8000, "a.rs:2"),
                    with_spans(2, "best", "[200,250]", 250, "b.rs:2"),
                ],
            ],
        );
        let figures = |row: &Row, keys: [&str; 4]| keys.map(|key| row.number(key).unwrap());
        let [before, best] = [&rows[0], &rows[1]];
        assert_eq!(
            figures(before, ["wakeups", "missed", "max_ns", "off_spans"]),
            [20.0, 3.0, 200.0, 4.0]
        );
        let keys = ["off_p50_ns", "off_p99_ns", "off_ratio", "off_max_ns"];
        assert_eq!(figures(before, keys), [2000.0, 8000.0, 1.0, 8000.0]);
        assert_eq!(figures(best, keys), [200.0, 300.0, 0.0375, 300.0]);
        assert_eq!(best.text("off_at"), "b.rs:1");
        let text = render(&[before, best]).unwrap();
        assert!(text.contains("a.rs:2") && text.contains("0.037") && text.contains("8.0"));
    }
}
