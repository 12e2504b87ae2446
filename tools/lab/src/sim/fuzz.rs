//! `lab sim fuzz`: many schedules, until one fails.

use std::process::ExitCode;

use shootdown_sim::fuzz::{self, Campaign, CampaignReport, shrink};

use crate::cli::SimFuzz;
use crate::progress::Progress;

/// Fuzzes and reports; the last line is the verdict.
pub fn command(arguments: &SimFuzz) -> ExitCode {
    let mut plan = Campaign {
        runs: arguments.runs,
        seed: arguments.seed,
        cpus: arguments.cpus.map(usize::from),
        scenario: arguments.scenario,
        ..Campaign::default()
    };
    if let Some(threads) = arguments.threads {
        plan.threads = threads.into();
    }
    let report = campaign(plan);
    let Some((case, failed)) = &report.failure else {
        println!("{}", rate(&report));
        println!("{}", report.progress.totals.sightings);
        println!("ok: {} schedules", report.progress.runs);
        return ExitCode::SUCCESS;
    };
    println!("replay with    ./lab sim replay {case}");
    println!("or, shrunk,    ./lab sim replay {}", shrink(case, failed));
    if let Some(failure) = &failed.failure {
        let schedules = case.seed.wrapping_sub(plan.seed) + 1;
        println!("failed after {schedules} schedules: {failure}");
    }
    ExitCode::FAILURE
}

/// Runs a campaign and shows how it gets on.
pub fn campaign(plan: Campaign) -> CampaignReport {
    let mut progress = Progress::new();
    fuzz::campaign(plan, |so_far| {
        let label = format!("{:.0} schedules/s", so_far.per_second(so_far.runs));
        progress.step(so_far.runs, plan.runs, &label);
    })
}

fn rate(report: &CampaignReport) -> String {
    let progress = &report.progress;
    let events = progress.totals.events;
    format!(
        "{events} events in {:.1} s: {:.0} schedules/s, {:.2} million events/s",
        progress.elapsed.as_secs_f64(),
        progress.per_second(progress.runs),
        progress.per_second(events) / 1e6
    )
}
