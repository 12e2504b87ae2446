//! The command line of `lab bench wis`.

use std::path::PathBuf;

use clap::Args;

use super::{Emulator, MachineKind};

/// What of will-it-scale is measured, and where.
#[derive(Debug, Args)]
pub struct Wis {
    /// A clone of <https://github.com/antonblanchard/will-it-scale>; nothing of it is in this repository
    #[arg(long, value_name = "DIR")]
    pub source: PathBuf,
    /// Which tests; without it all but that of sockets
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub tests: Vec<String>,
    /// Threads, and processes, each on its CPU, one row each
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "LIST",
        default_value = "1,2",
        value_parser = clap::value_parser!(u32).range(1..=64)
    )]
    pub tasks: Vec<u32>,
    /// Where to measure; without it on qemu, and on linux too if an image is found
    #[arg(long, value_enum, value_delimiter = ',')]
    pub machine: Vec<MachineKind>,
    /// One boot each, of shorter slices: for a look
    #[arg(long)]
    pub quick: bool,
    /// Also write the result here
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    #[command(flatten)]
    pub emulator: Emulator,
}
