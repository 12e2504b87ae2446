//! What `./lab torture --machine hosted` runs: the whole mix for some seconds, with a line of progress each second and the
//! summary at the end, as lines that begin with `torture:`. Exit code 0 if every promise was kept, else 1.

use std::io::Write;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use shootdown::{Capacity, Cpus, watch::Stall};
use shootdown_hosted::{Config, Machine};
use shootdown_torture::{Context, LANES, Plan, Torture, WorkerId};

/// As many CPUs as one word of the engine holds.
const MOST_CPUS: usize = 64;
/// Numbers below this, where some are unused: two words.
const NUMBERS: usize = 128;
/// A target that is silent for so long gets a line.
const STALL_NS: u64 = 2_000_000_000;

static TORTURE: Torture<MOST_CPUS> = Torture::new();
static WIDE_TORTURE: Torture<NUMBERS> = Torture::new();

/// Tortures the engine on CPUs that are threads.
#[derive(Debug, Parser)]
struct Arguments {
    /// For how long
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// CPUs (1 to 64); more than the host has cores is fine
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=MOST_CPUS as i64))]
    cpus: u16,
    /// Numbers below 128 that no CPU has, as 12..60
    #[arg(long, value_parser = read_range)]
    unused: Option<Range<usize>>,
    /// Tasks that share them; without it three for two CPUs
    #[arg(long)]
    tasks: Option<u16>,
    /// Where all random choices begin
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Microseconds between two ticks of a CPU, about
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u64).range(50..))]
    tick_us: u64,
    /// Calls of the platform from one hiccup to the next, about; 0 for none
    #[arg(long, default_value_t = 2048)]
    hiccup_one_in: u32,
}

fn read_range(words: &str) -> Result<Range<usize>, String> {
    let ends = words.split_once("..").and_then(|(start, end)| {
        let range = start.parse().ok()?..end.parse().ok()?;
        (range.start <= range.end).then_some(range)
    });
    ends.ok_or_else(|| "two numbers, as in 12..60".to_owned())
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let cpus = usize::from(arguments.cpus);
    let tasks = arguments.tasks.map_or(cpus + cpus.div_ceil(2), usize::from);
    if tasks == 0 || tasks > cpus * (LANES - 1) {
        eprintln!(
            "{tasks} tasks on {cpus} CPUs: name 1 to {} with --tasks",
            cpus * (LANES - 1)
        );
        return ExitCode::from(2);
    }
    let config = Config {
        tasks,
        spaces: 3,
        tick: Some(Duration::from_micros(arguments.tick_us)),
        hiccup_one_in: (arguments.hiccup_one_in > 0).then_some(arguments.hiccup_one_in),
        unused: arguments.unused.clone().unwrap_or(0..0),
        ..Config::new(cpus)
    };
    match arguments.unused {
        None => start(&config, &arguments, &TORTURE),
        Some(_) => start(&config, &arguments, &WIDE_TORTURE),
    }
}

fn start<const N: usize>(
    config: &Config,
    arguments: &Arguments,
    torture: &'static Torture<N>,
) -> ExitCode
where
    Cpus<N>: Capacity,
{
    match Machine::start(config) {
        Ok(machine) => run(
            Box::leak(Box::new(machine)),
            arguments,
            config.tasks,
            torture,
        ),
        Err(refused) => {
            eprintln!("{refused}");
            ExitCode::from(2)
        }
    }
}

fn run<const N: usize>(
    machine: &'static Machine<N>,
    arguments: &Arguments,
    tasks: usize,
    torture: &'static Torture<N>,
) -> ExitCode
where
    Cpus<N>: Capacity,
{
    torture.begin(machine, &Plan::new(arguments.seed));
    machine.engine().watch().set_stall_ns(STALL_NS);
    machine.on_stall(report);
    machine.on_tick(Box::leak(Box::new(|cpu| {
        torture.step(machine, WorkerId::interrupts_of(cpu), Context::Interrupt);
    })));
    let started = Instant::now();
    let elapsed_ns = move || started.elapsed().as_nanos() as u64;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..arguments.seconds {
                std::thread::sleep(Duration::from_secs(1));
                println!("{}", torture.progress(machine, elapsed_ns()));
            }
            stop.store(true, Ordering::Relaxed);
        });
        let ran = machine.run_tasks(tasks, |task| {
            while !stop.load(Ordering::Relaxed) {
                torture.step(machine, WorkerId::task(task), Context::Task);
            }
            machine.enter(None);
        });
        ran.expect("the machine was built for as many");
    });
    shootdown_hosted::torture::finish(machine, torture);
    let summary = torture.summary(machine, elapsed_ns());
    println!("{}", summary.protocol());
    ExitCode::from(u8::from(summary.violations() > 0))
}

/// A stall as one line, from interrupt context: neither allocation nor locks.
fn report(stall: &Stall) {
    const ROOM: usize = 512;
    let mut line = [b'\n'; ROOM];
    let mut rest = &mut line[..ROOM - 1];
    // What does not fit is cut; the line end stays.
    let _ = write!(rest, "torture: stall {stall}");
    let length = ROOM - rest.len();
    // SAFETY: the bytes are ours, and as many as we say.
    unsafe { libc::write(1, line.as_ptr().cast(), length) };
}
