//! The command line.

use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use shootdown_sim::explore::Schedule;
use shootdown_sim::fuzz::Case;
use shootdown_sim::kernel::Scenario;

use crate::bench::{self, Program};
use crate::cli_calls::CallsBench;
use crate::machine::AccelChoice;
use crate::mutants::Effort;

/// How many virtual CPUs the reference kernel supports.
pub const MAX_CPUS: i64 = 16;

/// Build, boot, measure and test the shootdown engine.
#[derive(Debug, Parser)]
#[command(name = "lab", version, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Measure a workload under every policy and print the table.
    Bench(Box<Bench>),
    /// Boot a machine and run one static program from this host in it.
    Run(Run),
    /// Run every check and end with the totals.
    Test(Test),
    /// Run the engine on a simulated machine whose TLBs, interrupts and memory do their worst.
    #[command(subcommand)]
    Sim(Sim),
    /// Do everything that the engine offers at once, at random, and check what it promises.
    Torture(Torture),
    /// Make deliberate mistakes in a copy of the code, and expect the checks to notice each.
    Mutants(Mutants),
    /// Say what is present or missing, and the command that installs it.
    Doctor(Doctor),
}

/// Which emulator to use.
#[derive(Debug, Clone, Args)]
pub struct Emulator {
    /// The emulator to use instead of qemu-system-x86_64 from the path [env: SHOOTDOWN_QEMU]
    #[arg(long, value_name = "PATH")]
    pub qemu: Option<PathBuf>,
    /// What the virtual CPUs run on
    #[arg(long, value_enum, default_value = "auto")]
    pub accel: AccelChoice,
    /// The Linux image to compare with [env: SHOOTDOWN_LINUX; else .lab/linux, else /boot]
    #[arg(long, value_name = "IMAGE")]
    pub kernel: Option<PathBuf>,
}

/// Which kernel runs in the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, ValueEnum)]
pub enum MachineKind {
    /// The reference kernel of this project.
    Qemu,
    /// A Linux kernel in the same emulator.
    Linux,
    /// The simulated machine that is built into the lab (for bench).
    Sim,
}

impl MachineKind {
    /// As the option and results name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Qemu => "qemu",
            Self::Linux => "linux",
            Self::Sim => "sim",
        }
    }
}

/// A workload by its name.
fn program() -> impl TypedValueParser<Value = &'static Program> {
    let names = bench::PROGRAMS.map(|program| PossibleValue::new(program.name).help(program.about));
    let named = |name: String| {
        bench::PROGRAMS
            .into_iter()
            .find(|program| program.name == name)
    };
    PossibleValuesParser::new(names).map(move |name| named(name).expect("a possible value"))
}

/// `lab bench`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Bench {
    /// Cross-CPU calls have options of their own
    #[command(subcommand)]
    pub calls: Option<CallsBench>,
    /// What to measure
    #[arg(value_parser = program(), default_value = bench::PROGRAMS[0].name)]
    pub workload: &'static Program,
    /// Where to measure; without it on qemu, and on linux too if an image is found; on sim where there is no QEMU, and zerocopy
    #[arg(long, value_enum, value_delimiter = ',')]
    pub machine: Vec<MachineKind>,
    /// Virtual CPUs (1 to 16, on sim 1 to 4096); without it 2, and as many as threads where a row has more (on sim preemptoff 16, zerocopy 40)
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub cpus: Option<i64>,
    /// The simulated machine's figures: haswell-ep, skylake-laptop, 40-core, 40-core-2018, 16-core or large-server
    #[arg(long, value_name = "NAME")]
    pub preset: Option<String>,
    /// Change a figure of the simulated machine; may be given again
    #[arg(long, value_name = "NAME=VALUE")]
    pub set: Vec<String>,
    /// Also halve and double every figure of the simulated machine, and show what that does
    #[arg(long)]
    pub sweep: bool,
    /// Fewer and shorter boots: done within 45 s
    #[arg(long)]
    pub quick: bool,
    /// Also write the result here
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write a trace of one iteration on the simulated machine here, for ui.perfetto.dev
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Draw one shootdown on the simulated machine here, as SVG
    #[arg(long, value_name = "FILE")]
    pub picture: Option<PathBuf>,
    /// Seed of the program's random choices
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Busy threads, each on its CPU, one row each (not pingpong) [default: 1,2,4; preemptoff: 2,4, on sim 16; zerocopy: 1,2, on sim 1 to 48]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub threads: Option<Vec<u32>>,
    /// pingpong: processes on the CPU, one row each [default: 2,3,6,8,12]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub spaces: Option<Vec<u32>>,
    /// Pages a flush or a turn, one table each [default: 1,8,32; pingpong: 0,512; preemptoff: 8; zerocopy: 1]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub pages: Option<Vec<u32>>,
    /// Policies to compare [default: before,published,best; zerocopy on qemu: before,best+ordinary,best]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub policies: Vec<String>,
    #[command(flatten)]
    pub emulator: Emulator,
}

/// `lab run`
#[derive(Debug, Args)]
pub struct Run {
    /// A static x86-64 Linux program and its arguments; options of `run` stand before it
    #[arg(
        value_name = "PROGRAM [ARGS]",
        required = true,
        trailing_var_arg = true
    )]
    pub words: Vec<String>,
    /// Which kernel to run it on
    #[arg(long, value_enum, default_value = "qemu")]
    pub machine: MachineKind,
    /// Virtual CPUs (1 to 16)
    #[arg(
        long,
        value_name = "N",
        default_value_t = 2,
        allow_negative_numbers = true
    )]
    pub cpus: i64,
    /// Seconds until the machine is ended
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub deadline: u32,
    /// Further words for the kernel's command line
    #[arg(
        long,
        value_name = "WORDS",
        default_value = "",
        allow_hyphen_values = true
    )]
    pub options: String,
    /// Show the kernel's own messages too (on standard error)
    #[arg(long)]
    pub verbose: bool,
    #[command(flatten)]
    pub emulator: Emulator,
}

/// `lab test`
#[derive(Debug, Args)]
pub struct Test {
    /// Leave out what takes long: done within 3 minutes
    #[arg(long)]
    pub fast: bool,
    /// Let tlbtorture run for 60 s on 2, 4 and 8 CPUs under every policy, every program on Linux too, and all checks on Bochs
    #[arg(long, conflicts_with = "fast")]
    pub soak: bool,
    /// Run only the checks whose name contains this
    #[arg(long, value_name = "TEXT")]
    pub only: Option<String>,
    /// Run only the checks on another machine
    #[arg(long, value_enum)]
    pub machine: Option<TestMachine>,
    #[command(flatten)]
    pub emulator: Emulator,
}

/// A machine with checks of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TestMachine {
    /// Bochs, whose processors have tags (PCIDs); without it these checks fail instead of being skipped
    Bochs,
}

/// The most virtual CPUs of one exploration.
const MOST_SIM_CPUS: i64 = Case::MOST_CPUS as i64;

/// `lab sim`
#[derive(Debug, Subcommand)]
pub enum Sim {
    /// Try many schedules, with progress and rate; a failure prints the command that replays it
    Fuzz(SimFuzz),
    /// Run one schedule again, exactly as it was
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
    /// A fixed story of two CPUs instead of drawn programs: published-flag (fails, as it should), private-roots, remap-and-flush,
    /// remap-and-unlink, remap-and-switch
    #[arg(long, value_name = "NAME", conflicts_with = "cpus")]
    pub scenario: Option<Scenario>,
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
    /// The fixed story that the CPUs play, if their programs are not drawn
    #[arg(long, value_name = "NAME")]
    pub scenario: Option<Scenario>,
    /// The unusual answers, as QUESTION:ANSWER,QUESTION:ANSWER,..; without it they are drawn from the seed
    #[arg(long, value_name = "ANSWERS")]
    pub schedule: Option<Schedule>,
    /// Tell what happens, a line each: event, CPU, what
    #[arg(long)]
    pub story: bool,
}

/// Where to torture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TortureMachine {
    /// Ring 0 of the reference kernel in the emulator
    Qemu,
    /// Threads as CPUs and signals as interrupts, on this host
    Hosted,
    /// The simulated machine
    Sim,
}

impl TortureMachine {
    /// As the option names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Qemu => "qemu",
            Self::Hosted => "hosted",
            Self::Sim => "sim",
        }
    }
}

/// What watches the hosted machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Sanitizer {
    /// ThreadSanitizer: reports unordered accesses (takes a nightly compiler, and minutes to build)
    Thread,
}

/// `lab torture`
#[derive(Debug, Args)]
pub struct Torture {
    /// For how long
    #[arg(long, value_name = "N", default_value_t = 30)]
    pub seconds: u32,
    /// CPUs (1 to 16, on hosted 1 to 64)
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
    pub machine: Option<TortureMachine>,
    /// On hosted, under a sanitizer
    #[arg(long, value_enum)]
    pub sanitizer: Option<Sanitizer>,
    #[command(flatten)]
    pub emulator: Emulator,
}

/// `lab mutants`
#[derive(Debug, Args)]
pub struct Mutants {
    /// Which mistakes, by the names of their files in verify/mutants; without it all
    #[arg(value_name = "ID")]
    pub ids: Vec<String>,
    /// Schedules that the fuzzer may use on each
    #[arg(long, value_name = "N", default_value_t = Effort::default().runs, value_parser = clap::value_parser!(u64).range(1..))]
    pub runs: u64,
    /// Where the fuzzer's seeds begin
    #[arg(long, value_name = "S", default_value_t = Effort::default().seed)]
    pub seed: u64,
    /// How many to try at once, each in a copy of its own; a second one pays from 4 processors up
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub jobs: u8,
    /// Keep the copies and their builds in .lab/mutants: the next run is faster
    #[arg(long)]
    pub keep: bool,
}

/// `lab doctor`
#[derive(Debug, Args)]
pub struct Doctor {
    /// First fetch a Linux image to compare with into .lab/linux (Debian packages; needs no root)
    #[arg(long)]
    pub get_linux: bool,
    #[command(flatten)]
    pub emulator: Emulator,
}
