//! Real cores as a machine: one pinned thread a core, no signals; an interrupt is a flag in a line of its own, which a CPU looks at where it
//! could take one (idle, [`relax`](shootdown::Platform::relax), interrupts turned on), and it costs as many cycles as is said.
//!
//! So all contenders pay the same for interrupts, and their instructions and cache lines are what the processor makes of them. They take turns
//! in one process; a round is filed under the placement that its lines had. Rows go to the lab (`lab bench shoot --machine cores`).
//!
//! | file | what |
//! |---|---|
//! | `lines` | what transfers of cache lines cost, and the placement that this shows |
//! | `cpu`, `platform` | pinned threads and their interrupts; what the engine and its peers run on |
//! | `contender` | whose calls and flushes |
//! | `operation` | what is measured: who asks whom for what |
//! | `turn` | one contender's operations of one kind: its threads, its checks |
//! | `rounds` | all of them in turns, and the rows that come of it |

/// The program; there is nothing to measure on other processors.
#[cfg(not(target_arch = "x86_64"))]
pub fn main() -> std::process::ExitCode {
    eprintln!("shootdown-cores: cycles are read from an x86-64 processor: run it on one");
    std::process::ExitCode::from(2)
}

#[cfg(target_arch = "x86_64")]
mod contender;
#[cfg(target_arch = "x86_64")]
mod cpu;
#[cfg(target_arch = "x86_64")]
mod lines;
#[cfg(target_arch = "x86_64")]
mod operation;
#[cfg(target_arch = "x86_64")]
mod platform;
#[cfg(target_arch = "x86_64")]
mod rounds;
#[cfg(target_arch = "x86_64")]
mod turn;

/// What is measured.
#[cfg(target_arch = "x86_64")]
#[derive(Debug, clap::Parser)]
struct Options {
    /// CPUs, no more than there are cores; without it as many, at most 16
    #[arg(long)]
    cpus: Option<usize>,
    /// Who takes turns
    #[arg(long, value_enum, default_value_t = contender::Who::All)]
    contenders: contender::Who,
    /// Which operations
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["calls", "flushes"])]
    operations: Vec<operation::Kind>,
    /// Pages of a flush
    #[arg(long, value_delimiter = ',', default_values = ["1", "32"], value_parser = clap::value_parser!(u32).range(1..=4096))]
    pages: Vec<u32>,
    /// Cycles of the called function, besides the reading of the counter
    #[arg(long, default_value_t = 0)]
    function: u64,
    /// Cycles of an interrupt, from the flag to the handler
    #[arg(long, value_delimiter = ',', default_value = "0")]
    interrupt: Vec<u64>,
    /// Cycles of a local flush, of one page
    #[arg(long, default_value_t = 200)]
    local: u64,
    /// Operations of an initiator in one turn
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(10..=100_000))]
    calls: u32,
    /// Rounds
    #[arg(long, default_value_t = 21, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Also note when the interrupt leaves, and when it arrives
    #[arg(long)]
    steps: bool,
}

/// The program: measures what its arguments say, and prints rows.
#[cfg(target_arch = "x86_64")]
pub fn main() -> std::process::ExitCode {
    use clap::Parser;
    match rounds::run(&Options::parse()) {
        Ok(0) => std::process::ExitCode::SUCCESS,
        Ok(_) => std::process::ExitCode::FAILURE,
        Err(message) => {
            eprintln!("shootdown-cores: {message}");
            std::process::ExitCode::from(2)
        }
    }
}
