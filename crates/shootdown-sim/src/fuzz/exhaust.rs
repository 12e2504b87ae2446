//! Every schedule of one case that deviates at most a few times.

use crate::explore::{Deviation, Schedule};
use crate::fuzz::{Case, Report, run};

/// What an exhaustive search came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExhaustReport {
    /// Schedules that were run.
    pub schedules: u64,
    /// Whether there was none left, as far as the bounds go.
    pub complete: bool,
    /// The first that failed.
    pub failure: Option<(Case, Report)>,
}

/// Runs every schedule of `case` that has at most `deviations` unusual answers, each among the first `answers`
/// possible ones, as long as `most_schedules` allow.
pub fn exhaust(case: &Case, deviations: usize, answers: u16, most_schedules: u64) -> ExhaustReport {
    let mut report = ExhaustReport {
        schedules: 0,
        complete: true,
        failure: None,
    };
    let mut open = vec![Schedule::default()];
    while let Some(schedule) = open.pop() {
        if report.schedules == most_schedules {
            report.complete = false;
            break;
        }
        let next = Case {
            schedule: Some(schedule.clone()),
            ..case.clone()
        };
        let outcome = run(&next);
        report.schedules += 1;
        if outcome.failure.is_some() {
            report.failure = Some((next, outcome));
            report.complete = false;
            break;
        }
        // An answer that the run cut down to a possible one is another schedule's.
        if schedule.0.len() == deviations || outcome.schedule != schedule {
            continue;
        }
        let from = schedule.0.last().map_or(0, |last| last.at + 1);
        for at in (from..outcome.questions).rev() {
            for answer in (1..=answers).rev() {
                let mut longer = schedule.clone();
                longer.0.push(Deviation { at, answer });
                open.push(longer);
            }
        }
    }
    report
}
