//! Fuzzes the engine: what `./lab sim fuzz` does, without the lab. `lab mutants` builds this against a changed engine.
//!
//! `cargo run --release -p shootdown-sim --example fuzz -- --runs N --seed S [--cpus N] [--guests true|false] [--tracked true|false] [--scenario NAME]`

use std::process::ExitCode;

use shootdown_sim::fuzz::{Campaign, Case, campaign, shrink};

fn main() -> ExitCode {
    let options = match parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(message) => {
            eprintln!(
                "fuzz: {message}: use --runs N --seed S [--cpus 1..{}] [--guests true|false] [--tracked true|false] [--scenario NAME]",
                Case::MOST_CPUS
            );
            return ExitCode::from(2);
        }
    };
    let report = campaign(options, |_| ());
    let progress = report.progress;
    let Some((case, failed)) = report.failure else {
        let (runs, totals) = (progress.runs, &progress.totals);
        let rate = progress.per_second(runs);
        println!("{} events, {rate:.0} schedules/s", totals.events);
        println!("{}", totals.sightings.summary());
        println!("ok: {runs} schedules");
        return ExitCode::SUCCESS;
    };
    let small = shrink(&case, &failed);
    println!("./lab sim replay {case}");
    println!("./lab sim replay {small}");
    if let Some(failure) = failed.failure {
        let schedules = case.seed.wrapping_sub(options.seed) + 1;
        println!("failed after {schedules} schedules: {failure}");
    }
    ExitCode::FAILURE
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Campaign, String> {
    let mut options = Campaign::default();
    while let Some(word) = words.next() {
        let value = words
            .next()
            .ok_or_else(|| format!("{word} wants a value"))?;
        match word.as_str() {
            "--scenario" => {
                options.scenario = Some(value.parse()?);
                continue;
            }
            "--guests" => {
                let says = |_| format!("--guests is true or false, not `{value}`");
                options.guests = Some(value.parse().map_err(says)?);
                continue;
            }
            "--tracked" => {
                let says = |_| format!("--tracked is true or false, not `{value}`");
                options.tracked = Some(value.parse().map_err(says)?);
                continue;
            }
            _ => {}
        }
        let number: u64 = value
            .parse()
            .map_err(|_| format!("{word} wants a number, not `{value}`"))?;
        match word.as_str() {
            "--runs" => options.runs = number,
            "--seed" => options.seed = number,
            "--threads" => options.threads = number as usize,
            "--cpus" if (1..=Case::MOST_CPUS as u64).contains(&number) => {
                options.cpus = Some(number as usize);
            }
            _ => return Err(format!("`{word} {value}` makes no sense")),
        }
    }
    Ok(options)
}
