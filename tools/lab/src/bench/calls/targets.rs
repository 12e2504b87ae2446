//! What the engine is to reach in table T5, and where it does not.

use shootdown_sim::workload::Peer;

use super::lists::Draw;
use super::selected::{Line, Measured, REFERENCE};

/// So many points may be between a change and the limit of its masks.
const NEAR_LIMIT: f64 = 2.0;
/// One initiator may be so many percent slower than under one lock.
const LONE: f64 = 1.0;
/// From so many initiators on, merged calls take less than half the time.
const MERGING: (usize, f64) = (4, -50.0);
/// The slowest initiator's p99 by the fastest's.
const UNFAIR: f64 = 1.5;
/// With fewer calls of an initiator their 99th percentile is the longest of them, and depends on chance.
const CALLS_TO_JUDGE: usize = 300;

/// One line for each row that misses, or one for all.
pub fn verdict(measured: &[Measured]) -> String {
    let judged: Vec<&Measured> = measured
        .iter()
        .filter(|one| one.line.function_ps > 0 && one.of(Peer::Shootdown).is_some())
        .collect();
    if judged.is_empty() {
        return String::new();
    }
    let missed: String = judged.iter().flat_map(|one| misses(one)).collect();
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

fn misses(measured: &Measured) -> Vec<String> {
    let Line {
        cpus,
        draw,
        initiators,
        targets,
        ..
    } = measured.line;
    let mut misses = Vec::new();
    let mut expect = |holds: bool, what: String| {
        if !holds {
            misses.push(format!(
                "missed: {initiators} initiators, {targets} {} targets of {cpus} CPUs: {what}\n",
                draw.name()
            ));
        }
    };
    let change = measured.change_of(Peer::Shootdown).unwrap_or(0.0);
    let (unfairness, calls) = measured.of(Peer::Shootdown).map_or((1.0, 0), |result| {
        (result.unfairness(), result.calls_ps[0].len())
    });
    if initiators == 1 {
        let most = format!("{change:+.1} % against {REFERENCE}, at most {LONE:+.0} %");
        expect(change <= LONE, most);
        return misses;
    }
    if let Some(limit) = measured.limit() {
        let most = limit + NEAR_LIMIT;
        expect(
            change <= most,
            format!("{change:+.1} %, at most {most:+.1} %"),
        );
    }
    let (merging, most) = MERGING;
    if draw == Draw::Idempotent && initiators >= merging {
        expect(
            change <= most,
            format!("{change:+.1} %, at most {most:+.0} %"),
        );
    }
    expect(
        unfairness <= UNFAIR || calls < CALLS_TO_JUDGE,
        format!("p99 of one initiator {unfairness:.1} times another's"),
    );
    misses
}
