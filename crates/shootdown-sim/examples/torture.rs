//! The torture on explored machines: what `./lab torture --machine sim` does, without the lab.
//!
//! `cargo run --release -p shootdown-sim --example torture -- RUNS [SEED [CPUS [story]]]`

use std::process::ExitCode;

use shootdown_sim::torture::{Campaign, Case, campaign, run_with_story};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize| -> Option<u64> {
        let word = words.get(index)?;
        Some(
            word.parse()
                .unwrap_or_else(|_| panic!("`{word}` is no number: use RUNS [SEED [CPUS]]")),
        )
    };
    let (runs, seed) = (number(0).unwrap_or(1000), number(1).unwrap_or(1));
    let cpus = number(2).map(|cpus| cpus as usize);
    if words.get(3).is_some_and(|word| word == "story") {
        let report = run_with_story(&Case::new(cpus.unwrap_or(2), seed));
        println!("{}\n{:?}", report.story.join("\n"), report.failure);
        return ExitCode::from(u8::from(report.failure.is_some()));
    }
    let plan = Campaign {
        seed,
        cpus,
        threads: 1,
    };
    let report = campaign(plan, |progress| progress.runs < runs);
    let progress = &report.progress;
    let seconds = progress.elapsed.as_secs_f64();
    println!(
        "{} runs, {} steps, {} events, {:.0} runs/s",
        progress.runs,
        progress.steps,
        progress.events,
        progress.runs as f64 / seconds
    );
    println!("{:?}", progress.done);
    match report.failure {
        None => ExitCode::SUCCESS,
        Some((case, report)) => {
            println!("failed: {case}: {:?}", report.failure);
            ExitCode::FAILURE
        }
    }
}
