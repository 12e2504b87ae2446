//! Shrinking: fewer unusual answers, after which a run still fails in the same way.

use crate::explore::{Deviation, Schedule};

/// Runs that shrinking may take.
const MOST_RUNS: usize = 3000;

/// As short a schedule as is found. `fails` runs one, and returns what the run really took, which may be less, if it fails in the same way.
/// Removes runs of answers, halving their length (delta debugging).
pub(crate) fn shrink_schedule(
    schedule: &Schedule,
    mut fails: impl FnMut(&Schedule) -> Option<Schedule>,
) -> Schedule {
    let mut kept: Vec<Deviation> = schedule.0.clone();
    let mut runs = 0;
    let mut length = kept.len().div_ceil(2);
    while length > 0 {
        let mut from = 0;
        let mut removed = false;
        while from < kept.len() {
            let to = (from + length).min(kept.len());
            let mut fewer = kept[..from].to_vec();
            fewer.extend_from_slice(&kept[to..]);
            runs += 1;
            if runs > MOST_RUNS {
                return Schedule(kept);
            }
            match fails(&Schedule(fewer)) {
                Some(taken) if taken.0.len() < kept.len() => {
                    kept = taken.0;
                    removed = true;
                }
                _ => from = to,
            }
        }
        if length == 1 && !removed {
            break;
        }
        length = if length == 1 { 1 } else { length / 2 };
    }
    Schedule(kept)
}
