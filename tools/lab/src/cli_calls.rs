//! The command line of the contests of cross-CPU calls.

use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{ArgMatches, Args, Command, Error, FromArgMatches, Subcommand, ValueEnum};

use crate::bench::{CONTESTS, Contest};
use crate::cli::Emulator;
use crate::machine::AccelChoice;

/// A contest of cross-CPU calls: each is a command of bench.
#[derive(Debug)]
pub struct CallsBench {
    /// Which.
    pub contest: &'static Contest,
    /// What and where.
    pub calls: Calls,
}

impl Subcommand for CallsBench {
    fn augment_subcommands(command: Command) -> Command {
        CONTESTS.iter().fold(command, |command, contest| {
            let own = Calls::augment_args(Command::new(contest.name));
            command.subcommand(own.about(contest.about).long_about(None))
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
        let contest = CONTESTS.into_iter().find(|contest| contest.name == name);
        Ok(Self {
            contest: contest.ok_or_else(|| Error::new(ErrorKind::InvalidSubcommand))?,
            calls: Calls::from_arg_matches(matches)?,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Where calls are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CallsMachine {
    /// Ring 0 of the reference kernel in the emulator.
    Qemu,
    /// Threads as CPUs and signals as interrupts, on this host.
    Hosted,
    /// The simulated machine that is built into the lab.
    Sim,
}

impl CallsMachine {
    /// As the option names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Qemu => "qemu",
            Self::Hosted => "hosted",
            Self::Sim => "sim",
        }
    }
}

impl Calls {
    /// Whether times are to be counts of guest instructions.
    pub fn counts_instructions(&self) -> bool {
        self.emulator.accel == AccelChoice::Icount
    }
}

/// What and where. Lists that are not given have what suits the machine.
#[derive(Debug, Args)]
pub struct Calls {
    /// Where to measure; without it on sim
    #[arg(long, value_enum)]
    pub machine: Option<CallsMachine>,
    /// CPUs (2 to 16, on sim 2 to 4096); without it a machine for times, and a larger one for counts; on sim 128, and 192 for
    /// random masks; shoot on sim: as many as a lone initiator needs, and 16, 64 and 256 that all call
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub cpus: Option<i64>,
    /// CPUs that call, one row each: numbers, or all
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub initiators: Option<Vec<String>>,
    /// Targets of a call, one row each: numbers, or all
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub targets: Option<Vec<String>>,
    /// How targets are drawn: disjoint, random, identical, idempotent (identical, and functions that may be merged)
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub masks: Option<Vec<String>>,
    /// How long a function takes on each target, in microseconds (selected) [default: 0,500]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub function_us: Option<Vec<u64>>,
    /// The simulated machine's figures: haswell-ep, skylake-laptop, 40-core, 40-core-2018, 16-core or large-server [default: 40-core; shoot:
    /// large-server and 40-core]
    #[arg(long, value_name = "NAME")]
    pub preset: Option<String>,
    /// Change a figure of the simulated machine; may be given again
    #[arg(long, value_name = "NAME=VALUE")]
    pub set: Vec<String>,
    /// On sim: draw the tables into this directory, as SVG
    #[arg(long, value_name = "DIR")]
    pub plot: Option<PathBuf>,
    /// Whose calls: mailbox, xen-before, xen, linux, freebsd, best
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub peers: Option<Vec<String>>,
    /// Calls of each initiator in one turn
    #[arg(long, value_name = "N")]
    pub calls: Option<u64>,
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
