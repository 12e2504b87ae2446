//! The whole run: workers, policies taking turns, rows, exit code.

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use serde_json::json;

use super::board::Board;
use super::churn::Churn;
use super::lending::Lent;
use super::options::{HELP, Options};
use super::probe;
use super::tally::Tally;
use super::worker::Worker;
use crate::args::UsageError;
use crate::clock::Clock;
use crate::policy::PolicySwitch;
use crate::{args, machine, program, report};

const PROGRAM: &str = "tlbtorture";
/// The longest time one policy stays in use.
const SLICE: Duration = Duration::from_secs(1);
/// How often the main thread looks whether something was found.
const LOOK: Duration = Duration::from_millis(50);
/// How long a worker may take to end.
const END_PATIENCE: Duration = Duration::from_secs(10);
/// Exit status of a run that found a violation, or that could not go on.
const FAILED: i32 = 1;

/// The program `tlbtorture`.
pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let options = Options::parse(arguments);
    program::run(PROGRAM, HELP, options, Run::new, |run| run.all())
}

type Joined<'a> = ScopedJoinHandle<'a, Vec<Tally>>;

/// Everything set up before the first worker starts.
struct Run {
    options: Options,
    cpus: Vec<usize>,
    workers: usize,
    policies: Vec<String>,
    switch: PolicySwitch,
    clock: Clock,
    board: Board,
    /// What servers and clients share, if there are any.
    lent: Option<Lent>,
    /// How often each CPU has left and come back.
    rounds: AtomicU64,
}

impl Run {
    fn new(options: Options) -> Result<Self, UsageError> {
        let cpus = args::cpus()?;
        let workers = options.workers(cpus.len())?;
        let switch = PolicySwitch::of_this_kernel();
        let policies = switch.resolve(&options.policies)?;
        let lent = options.windows.then(lent).transpose()?;
        probe::catch_faults()
            .map_err(|error| UsageError::new(format!("cannot handle SIGSEGV: {error}")))?;
        let clock = Clock::calibrate();
        let board = Board::new(workers, policies.len());
        Ok(Self {
            options,
            cpus,
            workers,
            policies,
            switch,
            clock,
            board,
            lent,
            rounds: AtomicU64::new(0),
        })
    }

    fn all(&self) -> ExitCode {
        report::info(&json!({
            "program": PROGRAM,
            "kernel": machine::kernel_name(),
            "cpus": self.cpus.len(),
            "threads": self.workers,
            "policies": self.policies,
            "seconds": self.options.length.as_secs(),
            "seed": self.options.seed,
            "long_probe_ns": self.clock.to_ns(probe::long_probe_ticks()),
        }));
        let (tallies, times) = thread::scope(|scope| {
            let churn = self.options.churn.map(|_| scope.spawn(|| self.churn()));
            let start = |number| scope.spawn(move || self.worker(number));
            let workers: Vec<_> = (0..self.workers).map(start).collect();
            let lending = self.start_lending(scope);
            let times = self.watch_over();
            self.board.stop();
            let tallies = self.gather(workers, &times);
            self.conclude_churn(churn);
            self.conclude_lending(&lending);
            (tallies, times)
        });
        self.conclude(&tallies, &times)
    }

    fn worker(&self, number: usize) -> Vec<Tally> {
        let policies = self.policies.len();
        let seed = self.options.seed;
        match Worker::new(&self.board, number, &self.cpus, self.clock, seed, policies) {
            Ok(worker) => worker.run(),
            Err(error) => {
                let what = format!("worker {number} could not start: {error}");
                self.board.fail(what);
                Vec::new()
            }
        }
    }

    /// A server and a client on each CPU, if there are to be any.
    fn start_lending<'a>(&'a self, scope: &'a Scope<'a, '_>) -> Vec<ScopedJoinHandle<'a, ()>> {
        let lent = self.lent.iter();
        let threads = lent.flat_map(|lent| (0..self.cpus.len()).map(move |own| (lent, own)));
        threads
            .flat_map(|(lent, own)| {
                let (board, cpus, seed) = (&self.board, &self.cpus, self.options.seed);
                [
                    scope.spawn(move || lent.serve(board, cpus[own])),
                    scope.spawn(move || lent.lend(board, cpus, own, seed)),
                ]
            })
            .collect()
    }

    /// Ends servers and clients; those that do not end, the process.
    fn conclude_lending(&self, threads: &[ScopedJoinHandle<'_, ()>]) {
        let Some(lent) = &self.lent else { return };
        let start = Instant::now();
        lent.stop(&self.cpus, || {
            if start.elapsed() > END_PATIENCE {
                give_up("a server or a client of a window does not end");
            }
            threads.iter().all(ScopedJoinHandle::is_finished)
        });
        let (answered, refused) = lent.counts();
        report::say(&format!(
            "{PROGRAM}: {answered} calls through windows, {refused} without a server"
        ));
    }

    fn churn(&self) {
        match Churn::new(&self.cpus, self.options.seed) {
            Ok(churn) => churn.run(&self.board, &self.rounds),
            Err(error) => self.board.fail(error.to_string()),
        }
    }

    /// Whether CPUs have left as often as was asked for.
    fn churned_enough(&self) -> bool {
        let due = self.options.churn.unwrap_or(0);
        self.rounds.load(Ordering::Relaxed) >= due
    }

    /// Waits for the last CPU to be back; one that is not ends the process.
    fn conclude_churn(&self, churn: Option<ScopedJoinHandle<'_, ()>>) {
        let Some(churn) = churn else {
            return;
        };
        let start = Instant::now();
        while !churn.is_finished() {
            if start.elapsed() > END_PATIENCE {
                give_up("a CPU does not leave or does not come back");
            }
            thread::sleep(Duration::from_millis(1));
        }
        match churn.join() {
            Ok(()) => {
                let rounds = self.rounds.load(Ordering::Relaxed);
                let left = format!("{PROGRAM}: each CPU left and came back {rounds} times");
                report::say(&left);
            }
            Err(_) => self.board.fail("the churning thread panicked".to_owned()),
        }
    }

    /// Lets policies take turns until time is up or something is found; returns each one's time.
    fn watch_over(&self) -> Vec<Duration> {
        let mut times = vec![Duration::ZERO; self.policies.len()];
        let slice = SLICE.min(self.options.length / self.policies.len() as u32);
        let length_ms = self.options.length.as_millis();
        let total = length_ms.div_ceil(slice.as_millis().max(1)) as usize;
        for turn in 0.. {
            if turn >= total && self.churned_enough() {
                break;
            }
            let policy = turn % self.policies.len();
            if let Err(error) = self.switch.select(&self.policies[policy]) {
                self.board.fail(error.to_string());
            }
            self.board.set_policy(policy);
            report::progress(turn.min(total), total, &self.policies[policy]);
            let start = Instant::now();
            while start.elapsed() < slice && !self.over() {
                thread::sleep(LOOK.min(slice));
            }
            times[policy] += start.elapsed();
            if self.over() {
                // Others may be about to find more.
                thread::sleep(LOOK);
                return times;
            }
        }
        report::progress(total, total, "done");
        times
    }

    fn over(&self) -> bool {
        self.board.stopped() || self.violations() > 0
    }

    fn violations(&self) -> u64 {
        let policies = 0..self.policies.len();
        policies.map(|policy| self.board.violations(policy)).sum()
    }

    /// Joins all workers; one that does not end ends the process, after `times` under each policy.
    fn gather(&self, workers: Vec<Joined<'_>>, times: &[Duration]) -> Vec<Tally> {
        let start = Instant::now();
        let mut sums = vec![Tally::default(); self.policies.len()];
        for (number, worker) in workers.into_iter().enumerate() {
            while !worker.is_finished() {
                if start.elapsed() > END_PATIENCE {
                    self.abandon(number, &sums, times);
                }
                thread::sleep(Duration::from_millis(1));
            }
            match worker.join() {
                Ok(tallies) => {
                    let sums = sums.iter_mut().zip(&tallies);
                    sums.for_each(|(sum, one)| sum.add(one));
                }
                Err(_) => self.board.fail(format!("worker {number} panicked")),
            }
        }
        sums
    }

    fn print_rows(&self, tallies: &[Tally], times: &[Duration]) {
        for (policy, (tally, time)) in tallies.iter().zip(times).enumerate() {
            report::row(&json!({
                "policy": self.policies[policy],
                "threads": self.workers,
                "seconds": (time.as_secs_f64() * 1000.0).round() / 1000.0,
                "operations": tally.operations(),
                "stale": self.board.violations(policy),
                "faults_expected": tally.faults,
                "accesses": tally.accesses,
                "accesses_exact": tally.exact,
                "maps": tally.maps,
                "fills": tally.fills,
                "protects": tally.protects,
                "discards": tally.discards,
                "unmaps": tally.unmaps,
                "private_touches": tally.touches,
                "forks": tally.forks,
            }));
        }
    }

    fn conclude(&self, tallies: &[Tally], times: &[Duration]) -> ExitCode {
        self.print_rows(tallies, times);
        self.print_findings();
        if let Some(failure) = self.board.failure() {
            eprintln!("{PROGRAM}: {failure}");
            return ExitCode::from(FAILED as u8);
        }
        if self.violations() > 0 {
            return ExitCode::from(FAILED as u8);
        }
        let operations: u64 = tallies.iter().map(Tally::operations).sum();
        let verdict = format!("{PROGRAM}: OK: {operations} changes, no violation");
        report::say(&verdict);
        ExitCode::SUCCESS
    }

    /// Prints the first few violations and their number, if there are any.
    fn print_findings(&self) {
        for violation in self.board.kept() {
            let policy = &self.policies[violation.policy];
            report::say(&format!("{PROGRAM}: {policy}: {violation}"));
        }
        let violations = self.violations();
        if violations > 0 {
            let (seed, cpus, workers) = (self.options.seed, self.cpus.len(), self.workers);
            report::say(&format!(
                "{PROGRAM}: FAILED: {violations} violations; \
                 seed {seed}, {workers} workers on {cpus} CPUs"
            ));
        }
    }

    /// Ends the process, because worker `number` does not end: it lost its CPU or a wake-up, or
    /// what was done to its memory made it run wild. What the others found is told all the same.
    fn abandon(&self, number: usize, tallies: &[Tally], times: &[Duration]) -> ! {
        self.print_rows(tallies, times);
        self.print_findings();
        give_up(&format!("worker {number} does not end"))
    }
}

/// Ends the process, whatever its threads do.
fn give_up(why: &str) -> ! {
    eprintln!("{PROGRAM}: {why}");
    report::drain();
    std::process::exit(FAILED)
}

/// What `--windows` needs.
fn lent() -> Result<Lent, UsageError> {
    match Lent::new() {
        Ok(Some(lent)) => Ok(lent),
        Ok(None) => {
            let what = "this kernel has no /dev/zerocopy: leave out --windows";
            Err(UsageError::new(what))
        }
        Err(error) => Err(UsageError::new(format!("/dev/zerocopy: {error}"))),
    }
}
