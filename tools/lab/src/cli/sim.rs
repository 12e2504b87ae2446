//! The command lines of `lab sim`, `lab stories` and `lab torture`.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use shootdown_sim::explore::Schedule;
use shootdown_sim::fuzz::Case;
use shootdown_sim::kernel::Scenario;
use shootdown_sim::stories::{STORIES, Story};

use super::{CpuMachine, Emulator};
use crate::cargo::Sanitizer;

/// The most virtual CPUs of one exploration.
const MOST_SIM_CPUS: i64 = Case::MOST_CPUS as i64;

/// `lab sim`
#[derive(Debug, Subcommand)]
pub enum Sim {
    /// Try many schedules, with progress and rate; a failure prints the command that replays it
    #[command(after_help = "Example: ./lab sim fuzz --runs 20000 --cpus 4")]
    Fuzz(SimFuzz),
    /// Run one schedule again, exactly as it was
    #[command(after_help = "Example: ./lab sim replay --cpus 4 --seed 7 --story")]
    Replay(SimReplay),
}

/// `lab sim fuzz`
#[derive(Debug, Args)]
pub struct SimFuzz {
    /// How many schedules
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub runs: u64,
    /// Seed of the first schedule; each further one has the next
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// Virtual CPUs; without it 2 to 6 in turn
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=MOST_SIM_CPUS))]
    pub cpus: Option<u8>,
    /// Whether the machines have guests; without it one in four has
    #[arg(long, value_name = "BOOL", conflicts_with = "scenario")]
    pub guests: Option<bool>,
    /// Whether spaces may be tracked; without it in one schedule of four
    #[arg(long, value_name = "BOOL", conflicts_with = "scenario")]
    pub tracked: Option<bool>,
    /// A fixed story of two CPUs instead of drawn programs: published-flag (fails, as it should), private-roots, remap-and-flush,
    /// remap-and-unlink, remap-and-switch
    #[arg(long, value_name = "NAME", conflicts_with = "cpus")]
    pub scenario: Option<Scenario>,
    /// Also list how often the schedules came upon each situation that the fuzzer is to come upon
    #[arg(long)]
    pub sightings: bool,
    /// Threads of this host; without it one a processor. They change nothing but the time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    pub threads: Option<u8>,
}

/// `lab sim replay`
#[derive(Debug, Args)]
pub struct SimReplay {
    /// Virtual CPUs
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=MOST_SIM_CPUS))]
    pub cpus: u8,
    /// Seed of the programs and, without a schedule, of the answers
    #[arg(long, value_name = "S")]
    pub seed: u64,
    /// Operations of each CPU; without it as many as the fuzzer has drawn
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub operations: Option<u32>,
    /// Whether the machine has guests, if the seed does not say
    #[arg(long, value_name = "BOOL")]
    pub guests: Option<bool>,
    /// Whether spaces may be tracked, if the seed does not say
    #[arg(long, value_name = "BOOL")]
    pub tracked: Option<bool>,
    /// The fixed story that the CPUs play, if their programs are not drawn
    #[arg(long, value_name = "NAME")]
    pub scenario: Option<Scenario>,
    /// The unusual answers, as QUESTION:ANSWER,QUESTION:ANSWER,..; without it they are drawn from the seed
    #[arg(long, value_name = "ANSWERS")]
    pub schedule: Option<Schedule>,
    /// Tell what happens, a line each: event, CPU, what
    #[arg(long)]
    pub story: bool,
    /// Write a page here that walks through the run, step by step
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// `lab stories`
#[derive(Debug, Args)]
pub struct Stories {
    /// Which story
    #[arg(value_name = "NAME", value_parser = PossibleValuesParser::new(STORIES.iter().map(|story| story.name)).map(story_of))]
    pub story: Option<&'static Story>,
    /// So many schedules with the engine, in which nothing may go wrong; never fewer than the bug took
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub runs: u64,
    /// Write a page here that walks through the schedule that goes wrong, and through one with the engine
    #[arg(long, value_name = "FILE", requires = "story")]
    pub html: Option<PathBuf>,
}

fn story_of(name: String) -> &'static Story {
    let named = STORIES.iter().find(|story| story.name == name);
    named.expect("only names of stories are parsed")
}

/// `lab torture`
#[derive(Debug, Args)]
pub struct Torture {
    /// For how long
    #[arg(long, value_name = "N", default_value_t = 30)]
    pub seconds: u32,
    /// CPUs (1 to 64)
    #[arg(
        long,
        value_name = "N",
        default_value_t = 4,
        allow_negative_numbers = true
    )]
    pub cpus: i64,
    /// Where all random choices begin
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// Where; without it on qemu, or on hosted where there is no QEMU
    #[arg(long, value_enum)]
    pub machine: Option<CpuMachine>,
    /// Instead, a machine of another architecture: a folder of ports/
    #[arg(long, value_name = "ARCH", conflicts_with_all = ["machine", "sanitizer"])]
    pub arch: Option<String>,
    /// On hosted, under a sanitizer
    #[arg(long, value_enum)]
    pub sanitizer: Option<Sanitizer>,
    #[command(flatten)]
    pub emulator: Emulator,
}
