//! `lab sim fuzz`: many schedules, until one fails.

use std::process::ExitCode;

use shootdown_sim::fuzz::{self, Campaign, CampaignReport, shrink};

use crate::cli::SimFuzz;
use crate::progress::Progress;

/// Fuzzes and reports; the last line is the verdict.
pub fn command(arguments: &SimFuzz) -> ExitCode {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let plan = Campaign {
        runs: arguments.runs,
        seed: arguments.seed,
        cpus: arguments.cpus.map(usize::from),
        scenario: arguments.scenario,
        threads: arguments.threads.map_or(cores, usize::from),
    };
    let report = campaign(plan);
    let Some((case, failed)) = &report.failure else {
        println!("{}", rate(&report));
        println!("{}", report.sightings);
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
        let seconds = so_far.elapsed.as_secs_f64().max(1e-9);
        let label = format!("{:.0} schedules/s", so_far.runs as f64 / seconds);
        progress.step(so_far.runs, plan.runs, &label);
    })
}

fn rate(report: &CampaignReport) -> String {
    let progress = &report.progress;
    let seconds = progress.elapsed.as_secs_f64().max(1e-9);
    format!(
        "{} events in {seconds:.1} s: {:.0} schedules/s, {:.2} million events/s",
        progress.events,
        progress.runs as f64 / seconds,
        progress.events as f64 / seconds / 1e6
    )
}
