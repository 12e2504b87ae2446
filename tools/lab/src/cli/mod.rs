//! The command line.

mod bench;
mod sim;
mod wis;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::machine::AccelChoice;
use crate::mutants::Effort;

pub use bench::{Bench, Calls, CallsBench, OwnBench};
pub use sim::{Sim, SimFuzz, SimReplay, Stories, Torture};
pub use wis::Wis;

/// How many virtual CPUs the reference kernel supports.
pub const MAX_CPUS: i64 = 64;

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
    #[command(after_help = "Example: ./lab bench madvise --machine qemu,linux --threads 1,2")]
    Bench(Box<Bench>),
    /// Make one HTML page of a result that bench wrote, or of two beside each other.
    #[command(after_help = "Example: ./lab report before.json after.json")]
    Report(Report),
    /// Boot a machine and run one program in it: a static one from this host, or one of an image.
    #[command(after_help = "Example: ./lab run --cpus 4 ./hello world")]
    Run(Run),
    /// Make a file system of Debian packages, from which `run --image` boots; installs nothing here.
    #[command(after_help = "Example: ./lab image stress-ng")]
    Image(Image),
    /// Run every check and end with the totals.
    #[command(after_help = "Example: ./lab test --only \"kernel: t_memory\"")]
    Test(Test),
    /// Run the engine on a simulated machine whose TLBs, interrupts and memory do their worst.
    #[command(subcommand, after_help = "Example: ./lab sim fuzz --runs 20000")]
    Sim(Sim),
    /// Play a bug that kernels have until it shows, then the same with this engine; without a name, list them.
    #[command(after_help = "Example: ./lab stories no-wait --html no-wait.html")]
    Stories(Stories),
    /// Make an image from which a PC boots and measures itself, or read what such a PC said.
    #[command(after_help = "Example: ./lab iso --read SERIAL.txt --json pc.json")]
    Iso(Iso),
    /// Do everything that the engine offers at once, at random, and check what it promises.
    #[command(
        after_help = "Example: ./lab torture --machine hosted --cpus 8 --seconds 60 --seed 3"
    )]
    Torture(Torture),
    /// Build and boot a kernel of a stranger's that uses the engine; without a name, list them.
    #[command(after_help = "Example: ./lab client c-kernel --cpus 4 --seconds 60")]
    Client(Client),
    /// Make deliberate mistakes in a copy of the code, and expect the checks to notice each.
    #[command(after_help = "Example: ./lab mutants clear-gen-after-ipi --keep")]
    Mutants(Mutants),
    /// Count the instructions of a call, and what each promise of the engine adds to them.
    #[command(after_help = "Example: ./lab footprint")]
    Footprint(Footprint),
    /// Make the tables of the documents anew from what the benches print.
    #[command(after_help = "Example: ./lab figures --check")]
    Figures(Figures),
    /// Print a script that completes the words of this command line in a shell.
    #[command(after_help = "Example: source <(./lab completions bash)")]
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Say what is present or missing, and the command that installs it.
    #[command(after_help = "Example: ./lab doctor --get-linux")]
    Doctor(Doctor),
}

/// Which emulator to use.
#[derive(Debug, Clone, Default, Args)]
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
    /// Build the reference kernel with page-table isolation: programs run on roots without it (on sim: pingpong)
    #[arg(long)]
    pub isolation: bool,
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
    /// Cores of this host, without a program around the flushes (for bench madvise).
    Cores,
}

impl MachineKind {
    /// As the option and results name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Qemu => "qemu",
            Self::Linux => "linux",
            Self::Sim => "sim",
            Self::Cores => "cores",
        }
    }
}

/// A machine on which CPUs call each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CpuMachine {
    /// Ring 0 of the reference kernel in the emulator.
    Qemu,
    /// Threads as CPUs and signals as interrupts, on this host.
    Hosted,
    /// The simulated machine that is built into the lab.
    Sim,
}

impl CpuMachine {
    /// As the option and results name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Qemu => "qemu",
            Self::Hosted => "hosted",
            Self::Sim => "sim",
        }
    }
}

/// A machine on which contests of calls are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ContestMachine {
    /// Ring 0 of the reference kernel in the emulator.
    Qemu,
    /// Threads as CPUs and signals as interrupts, on this host.
    Hosted,
    /// One pinned thread a core of this host and flags as interrupts, in cycles.
    Cores,
    /// The simulated machine that is built into the lab.
    Sim,
}

impl ContestMachine {
    /// As the option and results name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Qemu => "qemu",
            Self::Hosted => "hosted",
            Self::Cores => "cores",
            Self::Sim => "sim",
        }
    }
}

/// `lab report`
#[derive(Debug, Args)]
pub struct Report {
    /// A result: what `lab bench --json FILE` or `lab iso --read` wrote, or one of .lab/runs
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Another result of the same workload, to compare with the first
    #[arg(value_name = "FILE2")]
    pub other: Option<PathBuf>,
    /// Where to write the page [default: FILE with .html]
    #[arg(short, long, value_name = "OUT.html")]
    pub out: Option<PathBuf>,
}

/// `lab run`
#[derive(Debug, Args)]
pub struct Run {
    /// A static x86-64 Linux program and its arguments, with --image a program in it; options of `run` stand before it
    #[arg(
        value_name = "PROGRAM [ARGS]",
        required = true,
        trailing_var_arg = true
    )]
    pub words: Vec<String>,
    /// Which kernel to run it on
    #[arg(long, value_enum, default_value = "qemu")]
    pub machine: MachineKind,
    /// Virtual CPUs (1 to 64)
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
    /// Boot with this file system, which `lab image` made, and run a program in it
    #[arg(long, value_name = "NAME", conflicts_with = "guest")]
    pub image: Option<String>,
    /// Where the program of an image starts
    #[arg(
        long,
        value_name = "DIRECTORY",
        default_value = "/",
        requires = "image"
    )]
    pub directory: String,
    /// Memory of the machine [default: 512; with an image three times its size more]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(64..=1 << 20))]
    pub memory: Option<u32>,
    /// Further words for the kernel's command line
    #[arg(
        long,
        value_name = "WORDS",
        default_value = "",
        allow_hyphen_values = true
    )]
    pub options: String,
    /// Run it in the reference kernel as a guest of that kernel, with N virtual CPUs (1 to 8); --options go to the guest
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=8))]
    pub guest: Option<u8>,
    /// Options of vmm, which runs the guest
    #[arg(
        long,
        value_name = "WORDS",
        default_value = "",
        allow_hyphen_values = true,
        requires = "guest"
    )]
    pub vmm: String,
    /// Show the kernel's own messages too (on standard error)
    #[arg(long)]
    pub verbose: bool,
    #[command(flatten)]
    pub emulator: Emulator,
}

/// `lab image`
#[derive(Debug, Args)]
pub struct Image {
    /// Packages of Debian; what they depend on comes with them, what they recommend does not
    #[arg(value_name = "PACKAGE", required = true)]
    pub packages: Vec<String>,
    /// What the image is called [default: as the first package]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
}

/// `lab iso`
#[derive(Debug, Args)]
pub struct Iso {
    /// Where to write the image
    #[arg(
        short,
        long,
        value_name = "FILE",
        default_value = "shootdown.iso",
        conflicts_with = "read"
    )]
    pub output: PathBuf,
    /// Have it measure for a look only: done within a minute
    #[arg(long, conflicts_with = "read")]
    pub quick: bool,
    /// Make no image, but read the text that the serial port of a PC has sent, and show its last page
    #[arg(long, value_name = "SERIAL.txt")]
    pub read: Option<PathBuf>,
    /// Write what was read to a file as JSON
    #[arg(long, value_name = "FILE", requires = "read")]
    pub json: Option<PathBuf>,
}

/// `lab test`
#[derive(Debug, Args)]
pub struct Test {
    /// Leave out what takes long: done within 3 minutes
    #[arg(long)]
    pub fast: bool,
    /// Let tlbtorture run for 60 s on 2, 4 and 8 CPUs under every policy, every program on Linux too, all checks on Bochs, clients that take minutes to build, and the documentation of everything
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

/// `lab client`
#[derive(Debug, Args)]
pub struct Client {
    /// A folder of clients/
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// For how long it is to run
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub seconds: u32,
    /// Virtual CPUs (1 to 64; some clients take fewer)
    #[arg(
        long,
        value_name = "N",
        default_value_t = 2,
        allow_negative_numbers = true
    )]
    pub cpus: i64,
    /// Further words for its command line
    #[arg(
        long,
        value_name = "WORDS",
        default_value = "",
        allow_hyphen_values = true
    )]
    pub options: String,
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

/// `lab footprint`
#[derive(Debug, Args)]
pub struct Footprint {
    /// Instead: what each mechanism takes, and what is lost without it on this host's cores and on the simulated machine (an hour)
    #[arg(long)]
    pub mechanisms: bool,
    /// Instead: the lines of code of the engine that a kernel links, and those of each mechanism (a second)
    #[arg(long, conflicts_with = "mechanisms")]
    pub lines: bool,
    /// Which mechanisms, by the names of their files in verify/mechanisms; without it all
    #[arg(value_name = "NAME", requires = "mechanisms")]
    pub names: Vec<String>,
    /// Also write the counts here
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// `lab figures`
#[derive(Debug, Args)]
pub struct Figures {
    /// Which, by the names of their files in docs/figures; without it all of the simulated machine
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// Write nothing: fail if a table is not what its record says, or a record not what a fresh run prints
    #[arg(long)]
    pub check: bool,
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

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// What `lab bench` with these words asks for.
    pub(crate) fn bench(words: &str) -> Bench {
        let words = ["lab", "bench"].into_iter().chain(words.split_whitespace());
        match Cli::parse_from(words).command {
            Command::Bench(bench) => bench.settle(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_command_has_an_example() {
        fn visit(command: &clap::Command) {
            for command in command.get_subcommands() {
                let example = command.get_after_help().map(ToString::to_string);
                let is_one =
                    |text: String| text.starts_with("Example: ") && text.contains("./lab ");
                let has = example.is_some_and(is_one);
                assert!(has, "{}", command.get_name());
                visit(command);
            }
        }
        visit(&<Cli as clap::CommandFactory>::command());
    }
}
