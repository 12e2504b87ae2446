//! Shrinking: the same kind of failure with fewer unusual answers.

use crate::explore::{Schedule, shrink_schedule};
use crate::fuzz::{Case, Report, run};

/// The case with as short a schedule as is found, which fails in the same way as `report` says.
pub fn shrink(case: &Case, report: &Report) -> Case {
    let Some(failure) = &report.failure else {
        return case.clone();
    };
    let with = |schedule: &Schedule| Case {
        schedule: Some(schedule.clone()),
        ..case.clone()
    };
    let shrunk = shrink_schedule(&report.schedule, |schedule| {
        let again = run(&with(schedule));
        let again_as = again.failure.map(|failure| failure.kind);
        (again_as == Some(failure.kind)).then_some(again.schedule)
    });
    with(&shrunk)
}
