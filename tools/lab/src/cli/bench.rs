//! The command line of `lab bench`: of programs, and of the contests of cross-CPU calls.

use std::path::{Path, PathBuf};

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{ArgMatches, Args, Command, Error, FromArgMatches, Subcommand};

use super::{ContestMachine, Emulator, MachineKind, Wis};
use crate::bench::{CONTESTS, Contest, PROGRAMS, Program};
use crate::machine::AccelChoice;

/// A workload by its name.
fn program() -> impl TypedValueParser<Value = &'static Program> {
    let names = PROGRAMS.iter();
    let names = names.map(|program| PossibleValue::new(program.name).help(program.about));
    let named = |name: String| {
        *PROGRAMS
            .iter()
            .find(|program| program.name == name)
            .expect("a possible value")
    };
    PossibleValuesParser::new(names).map(named)
}

/// `lab bench`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Bench {
    /// Cross-CPU calls and others' benches have options of their own
    #[command(subcommand)]
    pub own: Option<OwnBench>,
    /// What to measure
    #[arg(value_parser = program(), default_value = PROGRAMS[0].name)]
    pub workload: &'static Program,
    /// Where to measure; without it on qemu, and on linux too if an image is found; on sim where there is no QEMU, and zerocopy, overcommit
    #[arg(long, value_enum, value_delimiter = ',')]
    pub machine: Vec<MachineKind>,
    /// Instead, a machine of another architecture: a folder of ports/ (pingpong)
    #[arg(long, value_name = "ARCH", conflicts_with = "machine")]
    pub arch: Option<String>,
    /// Virtual CPUs (1 to 64, on sim 1 to 4096); without it 2, and as many as threads where a row has more (on sim preemptoff 16, zerocopy 40)
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub cpus: Option<i64>,
    /// The simulated machine's figures: haswell-ep, skylake-laptop, 40-core, 40-core-2018, 16-core, large-server, ten-guests, kvm-2-to-1, xeon-far or xeon-near
    #[arg(long, value_name = "NAME")]
    pub preset: Option<String>,
    /// Change a figure of the simulated machine; may be given again
    #[arg(long, value_name = "NAME=VALUE")]
    pub set: Vec<String>,
    /// Also halve and double every figure of the simulated machine, and show what that does
    #[arg(long)]
    pub sweep: bool,
    /// Show every figure of the simulated machine, with its source
    #[arg(long)]
    pub figures: bool,
    /// Show all tables, not only the main result
    #[arg(long)]
    pub tables: bool,
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
    /// Write a page here that walks through one shootdown on the simulated machine, step by step
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Seed of the program's random choices
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Busy threads, each on its CPU, one row each (not pingpong) [default: 1,2,4; preemptoff: 2,4, on sim 16; zerocopy: 1,2, on sim 1 to 48; overcommit: 8,16,64, on qemu 4]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub threads: Option<Vec<u32>>,
    /// pingpong: processes on the CPU, one row each [default: 2,3,6,8,12]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub spaces: Option<Vec<u32>>,
    /// Pages a flush or a turn, one table each [default: 1,8,32; pingpong: 0,512; preemptoff: 8; zerocopy: 1]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub pages: Option<Vec<u32>>,
    /// Policies to compare [default: before,published,best; on qemu zerocopy: before,best+ordinary,best, syscall: before,best,best+defer; overcommit: interrupts,kvm,best]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub policies: Vec<String>,
    #[command(flatten)]
    pub emulator: Emulator,
}

impl Bench {
    /// Fills in the policies where none were asked for.
    #[must_use]
    pub fn settle(mut self) -> Self {
        if self.policies.is_empty() {
            let is_booted = match &self.machine[..] {
                [] => !self.workload.is_simulated_first,
                asked => !asked.contains(&MachineKind::Sim),
            };
            let policies = match is_booted {
                true => self.workload.default_policies,
                false => self.workload.simulated_policies(),
            };
            self.policies = policies.map(str::to_owned).to_vec();
        }
        self
    }

    /// The other architecture, if one is meant.
    pub fn arch(&self) -> Option<&str> {
        let of_calls = self.calls().and_then(|it| it.calls.arch.as_deref());
        of_calls.or(self.arch.as_deref())
    }

    /// Whether the simulated machine's figures are shown.
    pub fn shows_figures(&self) -> bool {
        self.calls().map_or(self.figures, |it| it.calls.figures)
    }

    /// Whether all tables are shown; those of lines are among them.
    pub fn shows_tables(&self) -> bool {
        match self.calls() {
            None => self.tables,
            Some(CallsBench { calls, .. }) => calls.tables || calls.lines,
        }
    }

    /// Where the result is written, besides where it is kept.
    pub fn result(&self) -> Option<&Path> {
        let json = match &self.own {
            None => &self.json,
            Some(OwnBench::Calls(it)) => &it.calls.json,
            Some(OwnBench::Wis(wis)) => &wis.json,
        };
        json.as_deref()
    }

    /// The contest of calls, if it is one.
    pub fn calls(&self) -> Option<&CallsBench> {
        match &self.own {
            Some(OwnBench::Calls(calls)) => Some(calls),
            _ => None,
        }
    }
}

/// A bench with options of its own.
#[derive(Debug, Subcommand)]
pub enum OwnBench {
    /// A contest of calls.
    #[command(flatten)]
    Calls(CallsBench),
    /// Run will-it-scale's tests on both kernels, built from the sources that you have
    #[command(
        after_help = "Example: ./lab bench wis --source ../will-it-scale --tests page_fault1,context_switch1"
    )]
    Wis(Wis),
}

/// A contest of cross-CPU calls: each is a command of bench.
#[derive(Debug)]
pub struct CallsBench {
    /// Which.
    pub contest: &'static Contest,
    /// What and where.
    pub calls: Box<Calls>,
}

impl Subcommand for CallsBench {
    fn augment_subcommands(command: Command) -> Command {
        CONTESTS.iter().fold(command, |command, contest| {
            let own = Calls::augment_args(Command::new(contest.name));
            let example = format!(
                "Example: ./lab bench {} --cpus 64 --targets 1,8",
                contest.name
            );
            command.subcommand(
                own.about(contest.about)
                    .long_about(None)
                    .after_help(example),
            )
        })
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        CONTESTS.iter().any(|contest| contest.name == name)
    }
}

impl FromArgMatches for CallsBench {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let (name, matches) = matches
            .subcommand()
            .ok_or_else(|| Error::new(ErrorKind::MissingSubcommand))?;
        let contest = CONTESTS.iter().find(|contest| contest.name == name);
        Ok(Self {
            contest: contest.ok_or_else(|| Error::new(ErrorKind::InvalidSubcommand))?,
            calls: Box::new(Calls::from_arg_matches(matches)?),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Calls {
    /// Whether times are to be counts of guest instructions.
    pub fn counts_instructions(&self) -> bool {
        self.emulator.accel == AccelChoice::Icount
    }
}

/// Longer ones would keep a bench on cores for minutes.
const MOST_CYCLES: u64 = 20_000;

/// What and where. Lists that are not given have what suits the machine.
#[derive(Debug, Args)]
pub struct Calls {
    /// Where to measure; without it on sim
    #[arg(long, value_enum)]
    pub machine: Option<ContestMachine>,
    /// Instead, a machine of another architecture: a folder of ports/ (shoot)
    #[arg(long, value_name = "ARCH", conflicts_with = "machine")]
    pub arch: Option<String>,
    /// Numbers of CPUs (2 to 64, on sim 2 to 4096); without it a machine for times, and a larger one for counts; on sim 128, and 192 for
    /// random masks; shoot on sim: as many as a lone initiator needs, and 16, 64 and 256 that all call
    #[arg(
        long,
        value_name = "N,..",
        value_delimiter = ',',
        allow_negative_numbers = true
    )]
    pub cpus: Option<Vec<i64>>,
    /// CPUs that call, one row each: numbers, or all
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub initiators: Option<Vec<String>>,
    /// Targets of a call, one row each: numbers, or all
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub targets: Option<Vec<String>>,
    /// How targets are drawn: disjoint, random, identical
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub masks: Option<Vec<String>>,
    /// How long a function takes on each target, in microseconds (selected) [default: 0,500]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub function_us: Option<Vec<u64>>,
    /// The simulated machine's figures: haswell-ep, skylake-laptop, 40-core, 40-core-2018, 16-core, large-server, ten-guests, kvm-2-to-1, xeon-far or xeon-near [default: 40-core; shoot:
    /// large-server and 40-core]
    #[arg(long, value_name = "NAME")]
    pub preset: Option<String>,
    /// Change a figure of the simulated machine; may be given again
    #[arg(long, value_name = "NAME=VALUE")]
    pub set: Vec<String>,
    /// Show every figure of the simulated machine, with its source
    #[arg(long)]
    pub figures: bool,
    /// Show all tables, not only the main result
    #[arg(long)]
    pub tables: bool,
    /// shoot on sim: also tell which cache lines moved, by what they hold
    #[arg(long)]
    pub lines: bool,
    /// Whose calls: mailbox, xen-before, xen, linux, freebsd, best; not on sim also plain, the engine as an ordinary kernel builds it; on cores only series, T1's without each small patch
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub peers: Option<Vec<String>>,
    /// Calls of each initiator in one turn
    #[arg(long, value_name = "N")]
    pub calls: Option<u64>,
    /// cores: cycles of an interrupt, from the flag to the handler, one part each [default: 0,2000]
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = clap::value_parser!(u64).range(..=MOST_CYCLES))]
    pub interrupt_cycles: Option<Vec<u64>>,
    /// cores: cycles of a local flush of one page [default: 200]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=MOST_CYCLES))]
    pub local_cycles: Option<u64>,
    /// cores: also tell where the time goes
    #[arg(long)]
    pub steps: bool,
    /// Seed of the random masks
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// What CPUs do while nobody wants anything of them: busy or halt
    #[arg(long, value_name = "WHAT", default_value = "busy")]
    pub rest: String,
    /// Fewer calls, for a look
    #[arg(long)]
    pub quick: bool,
    /// Also write the result here
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    #[command(flatten)]
    pub emulator: Emulator,
}
