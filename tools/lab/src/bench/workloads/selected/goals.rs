//! What the engine is to reach in table T5, and where it does not.

use shootdown_sim::workload::Peer;

use super::REFERENCE;
use crate::bench::row::Row;

/// So many points may be between a change and the limit of its masks.
const NEAR_LIMIT: f64 = 2.0;
/// One initiator may be so many percent slower than under one lock.
const LONE: f64 = 1.0;
/// The slowest initiator's p99 by the fastest's.
const UNFAIR: f64 = 1.5;
/// With fewer calls of an initiator their 99th percentile is the longest of them, and depends on chance.
const CALLS_TO_JUDGE: usize = 300;

/// One line for each row that misses, or one for all.
pub fn verdict(rows: &[Row], calls: usize) -> String {
    let is_judged = |row: &&Row| {
        row.text("peer") == Peer::Shootdown.name() && row.number("function_ns") > Some(0.0)
    };
    let judged: Vec<&Row> = rows.iter().filter(is_judged).collect();
    if judged.is_empty() {
        return String::new();
    }
    let missed: String = judged.iter().flat_map(|row| misses(row, calls)).collect();
    match missed.is_empty() {
        true => format!(
            "{} meets what it is to reach in all {} rows with functions that take time\n",
            Peer::Shootdown,
            judged.len()
        ),
        false => {
            missed + &format!("with fewer than {CALLS_TO_JUDGE} --calls the p99s are not judged\n")
        }
    }
}

fn misses(row: &Row, calls: usize) -> Vec<String> {
    let (initiators, masks) = (row.count("initiators"), row.text("masks"));
    let mut misses = Vec::new();
    let mut expect = |holds: bool, what: String| {
        if !holds {
            let (targets, cpus) = (row.count("targets"), row.count("cpus"));
            misses.push(format!(
                "missed: {initiators} initiators, {targets} {masks} targets of {cpus} CPUs: {what}\n"
            ));
        }
    };
    let change = row.number("change_percent").unwrap_or(0.0);
    if initiators == 1 {
        let reference = REFERENCE.name();
        let most = format!("{change:+.1} % against {reference}, at most {LONE:+.0} %");
        expect(change <= LONE, most);
        return misses;
    }
    if let Some(limit) = row.number("limit_percent") {
        let most = limit + NEAR_LIMIT;
        let what = format!("{change:+.1} %, at most {most:+.1} %");
        expect(change <= most, what);
    }
    let unfairness = row.number("unfairness").unwrap_or(1.0);
    let is_fair = unfairness <= UNFAIR || calls < CALLS_TO_JUDGE;
    let what = format!("p99 of one initiator {unfairness:.1} times another's");
    expect(is_fair, what);
    misses
}
