//! Shrinking: the same kind of failure with fewer unusual answers.

use crate::explore::{Deviation, Schedule};
use crate::fuzz::{Case, Report, run};

/// Runs that shrinking may take.
const MOST_RUNS: usize = 3000;

/// The case with as short a schedule as is found, which fails in the same way as `report` says. Removes runs of
/// answers, halving their length (delta debugging).
pub fn shrink(case: &Case, report: &Report) -> Case {
    let Some(failure) = &report.failure else {
        return case.clone();
    };
    let with = |deviations: &[Deviation]| Case {
        schedule: Some(Schedule(deviations.to_vec())),
        ..case.clone()
    };
    let mut kept = report.schedule.0.clone();
    let mut runs = 0;
    let mut fails = |deviations: &[Deviation]| {
        runs += 1;
        if runs > MOST_RUNS {
            return None;
        }
        let again = run(&with(deviations));
        let same = again
            .failure
            .as_ref()
            .is_some_and(|again| again.kind == failure.kind);
        // What the run really took, which may be less than it was told.
        Some(same.then_some(again.schedule.0))
    };
    let mut length = kept.len().div_ceil(2);
    while length > 0 {
        let mut from = 0;
        let mut removed = false;
        while from < kept.len() {
            let to = (from + length).min(kept.len());
            let mut fewer = kept[..from].to_vec();
            fewer.extend_from_slice(&kept[to..]);
            match fails(&fewer) {
                None => return with(&kept),
                Some(Some(taken)) if taken.len() < kept.len() => {
                    kept = taken;
                    removed = true;
                }
                Some(_) => from = to,
            }
        }
        if length == 1 && !removed {
            break;
        }
        length = if length == 1 { 1 } else { length / 2 };
    }
    with(&kept)
}
