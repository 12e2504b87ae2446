//! What `./lab bench selected --machine hosted` runs: the engine and its peers in turn on threads that play CPUs, with the lines of
//! a bench. `cargo run --release -p shootdown-hosted --example calls -- --cpus 2 selected,ns=0`. Exit code 0 if every call was
//! carried out as it should, else 1.

use std::process::ExitCode;

use clap::Parser;
use shootdown_callbench::Plan;
use shootdown_hosted::{Config, Machine, calls};

/// As many CPUs as the reference kernel has at most.
const MOST_CPUS: usize = 64;

/// Measures cross-CPU calls of the engine and its peers on CPUs that are threads.
#[derive(Debug, Parser)]
struct Arguments {
    /// CPUs (2 to 64); with more than the host has cores only counts mean something
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(2..=MOST_CPUS as i64))]
    cpus: u16,
    /// What to measure, as crate `shootdown-callbench` reads it
    #[arg(default_value = "selected", value_parser = read_plan)]
    plan: Plan,
}

fn read_plan(words: &str) -> Result<Plan, String> {
    Plan::parse(words).map_err(|mistake| mistake.to_string())
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let machine = match Machine::<MOST_CPUS>::start(&Config::new(usize::from(arguments.cpus))) {
        Ok(machine) => Box::leak(Box::new(machine)),
        Err(refused) => {
            eprintln!("{refused}");
            return ExitCode::from(2);
        }
    };
    let verdict = calls::measure(machine, arguments.plan, |line| println!("{line}"));
    println!("calls: done rows={} wrong={}", verdict.rows, verdict.wrong);
    ExitCode::from(u8::from(verdict.wrong > 0))
}
