//! All contenders and operations in turns, round by round, and the rows that come of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use serde::Serialize;

use crate::Options;
use crate::contender::{self, Contender, Who};
use crate::cpu::{self, MOST_CPUS, cycles};
use crate::lines::{self, Kind, Placement, Transfers};
use crate::operation::Operation;
use crate::turn::{self, Job, Log};

/// What the CPUs do next.
#[derive(Clone)]
enum Order {
    Lines(Kind),
    /// Take what interrupts are on their way.
    Rest,
    Turn(Arc<Job>),
}

/// A round that the host has disturbed is done again: so many times as many are tried.
const MOST_TRIES: u32 = 3;
/// Cycles for interrupts that are on their way.
const REST: u64 = 300_000;

/// A CPU other than the first, which gives the orders.
struct Worker {
    orders: Sender<Order>,
    logs: Receiver<Log>,
}

/// How often an order has been given: threads spin for it, for one that sleeps would find its core slow.
static GIVEN: AtomicUsize = AtomicUsize::new(0);

fn work(me: usize, orders: &Receiver<Order>, logs: &Sender<Log>) {
    let mut seen = 0;
    loop {
        // ORDERING: pairs with the Release in `all`: the order is in the channel.
        while GIVEN.load(Ordering::Acquire) == seen {
            cpu::look();
            core::hint::spin_loop();
        }
        seen += 1;
        // Whoever measures is gone.
        let Ok(order) = orders.recv() else { return };
        if logs.send(carry_out(me, &order)).is_err() {
            return;
        }
    }
}

fn carry_out(me: usize, order: &Order) -> Log {
    match order {
        Order::Lines(kind) if me == 1 => lines::answer(*kind),
        Order::Lines(_) => {}
        Order::Rest => {
            let start = cycles();
            while cycles() - start < REST {
                cpu::look();
            }
        }
        Order::Turn(job) => return job.run(me),
    }
    Log::default()
}

/// All CPUs.
struct Machine {
    workers: Vec<Worker>,
}

impl Machine {
    fn start(cores: &[usize], who: Who) -> Result<(Self, &'static [Contender]), String> {
        let cpus = cores.len();
        let contenders = contender::make(2 * cpus, who);
        cpu::pin(cores[0])?;
        // By its second name it loads nothing.
        contender::begin(cpus as u32, false);
        contender::begin(0, true);
        let mut workers = Vec::new();
        for (me, &core) in cores.iter().enumerate().skip(1) {
            let ((orders, given), (logs, told)) = (channel(), channel());
            let (ready, is_ready) = channel();
            thread::spawn(move || {
                let pinned = cpu::pin(core);
                if pinned.is_ok() {
                    contender::begin(me as u32, true);
                }
                if ready.send(pinned).is_ok() {
                    work(me, &given, &logs);
                }
            });
            is_ready.recv().map_err(|_| "a thread has ended")??;
            workers.push(Worker { orders, logs: told });
        }
        Ok((Self { workers }, contenders))
    }

    /// All CPUs carry it out; what they note comes back by CPU.
    fn all<T>(&self, order: &Order, mine: impl FnOnce() -> T) -> (T, Vec<Log>) {
        for worker in &self.workers {
            // A worker that has panicked is noticed below.
            let _ = worker.orders.send(order.clone());
        }
        GIVEN.fetch_add(1, Ordering::Release);
        let mine = mine();
        let logs = self.workers.iter().map(|worker| {
            loop {
                cpu::look();
                match worker.logs.try_recv() {
                    Ok(log) => return log,
                    Err(std::sync::mpsc::TryRecvError::Empty) => core::hint::spin_loop(),
                    Err(_) => panic!("a CPU's thread has ended"),
                }
            }
        });
        (mine, logs.collect())
    }

    fn rest(&self) {
        self.all(&Order::Rest, || carry_out(0, &Order::Rest));
    }

    fn lines(&self, kind: Kind) -> u64 {
        self.all(&Order::Lines(kind), || lines::ask(kind)).0
    }

    fn turn(&self, job: &Arc<Job>) -> Vec<Log> {
        turn::reset();
        let (mine, others) = self.all(&Order::Turn(job.clone()), || job.run(0));
        [mine].into_iter().chain(others).collect()
    }

    fn transfers(&self) -> Transfers {
        let mut all = lines::kinds().map(|kind| self.lines(kind));
        let mut next = || all.next().unwrap_or(0);
        Transfers {
            round_trip: next(),
            upgrade: next(),
            load: next(),
            locked: next(),
            drain: next(),
            own: next(),
            pause: next(),
            nothing: next(),
        }
    }
}

/// What is measured together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    placement: Placement,
    interrupt: u64,
    operation: usize,
    contender: usize,
}

/// What came of it, in cycles.
#[derive(Default)]
struct Cell {
    medians: Vec<u64>,
    p99s: Vec<u64>,
    samples: Vec<u64>,
    wrong: usize,
    /// Sums of spans, and of how many: begin to sent, sent to taken, taken to run, run to over.
    steps: [Vec<u64>; 4],
}

#[derive(Serialize)]
struct Row<'a> {
    placement: Placement,
    interrupt_cycles: u64,
    operation: String,
    peer: &'a str,
    cpus: usize,
    local_cycles: u64,
    rounds: usize,
    calls: usize,
    wrong: usize,
    median_cycles: u64,
    p99_cycles: u64,
    medians_cycles: &'a [u64],
    p99s_cycles: &'a [u64],
    samples_cycles: &'a [u64],
    #[serde(skip_serializing_if = "Option::is_none")]
    steps_cycles: Option<[u64; 4]>,
    /// What a line took meanwhile.
    lines: Option<Transfers>,
}

#[derive(Serialize)]
struct Info {
    processor: String,
    cpus: usize,
    not_measured: Vec<String>,
    /// Rounds in which the host moved a CPU.
    moved: usize,
}

fn at(sorted: &[u64], share: f64) -> u64 {
    let index = (sorted.len() as f64 * share) as usize;
    sorted
        .get(index.min(sorted.len().saturating_sub(1)))
        .copied()
        .unwrap_or(0)
}

fn median(values: &[u64]) -> u64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    at(&sorted, 0.5)
}

impl Cell {
    fn add(&mut self, job: &Job, logs: &[Log], has_steps: bool) {
        self.wrong += job.count_wrong(logs);
        let asked = || {
            logs.iter()
                .map(|log| &log.asked)
                .filter(|asked| !asked.is_empty())
        };
        // What all initiators did at the same time.
        let first = asked()
            .filter_map(|asked| asked.first())
            .map(|one| one.start)
            .max();
        let last = asked()
            .filter_map(|asked| asked.last())
            .map(|one| one.end)
            .min();
        let is_inside = |start: u64, end: u64| Some(start) >= first && Some(end) <= last;
        let mut taken: Vec<u64> = (asked().flatten())
            .filter(|one| is_inside(one.start, one.end))
            .map(|one| one.end - one.start)
            .collect();
        self.samples.extend(&taken);
        taken.sort_unstable();
        self.medians.push(at(&taken, 0.5));
        self.p99s.push(at(&taken, 0.99));
        if has_steps {
            let initiator = job.operation.initiators(job.cpus)[0];
            let target = job.operation.targets(initiator, job.cpus)[0];
            let pairs = logs[initiator]
                .asked
                .iter()
                .zip(&logs[target].ran[initiator]);
            for (asked, ran) in pairs {
                let times = [asked.start, asked.sent, ran.entered, ran.at, asked.end];
                for (step, pair) in self.steps.iter_mut().zip(times.windows(2)) {
                    step.push(pair[1].saturating_sub(pair[0]));
                }
            }
        }
    }

    fn row<'a>(
        &'a self,
        key: &Key,
        operation: Operation,
        peer: &'a str,
        options: &Options,
        cpus: usize,
    ) -> Row<'a> {
        Row {
            placement: key.placement,
            interrupt_cycles: key.interrupt,
            operation: operation.name(),
            peer,
            cpus,
            local_cycles: options.local,
            rounds: self.medians.len(),
            calls: self.samples.len(),
            wrong: self.wrong,
            median_cycles: median(&self.medians),
            p99_cycles: median(&self.p99s),
            medians_cycles: &self.medians,
            p99s_cycles: &self.p99s,
            samples_cycles: &self.samples,
            steps_cycles: options
                .steps
                .then(|| self.steps.each_ref().map(|step| median(step))),
            lines: None,
        }
    }
}

/// Measures, and prints rows; returns how many operations were wrong.
///
/// # Errors
/// This host cannot be measured so.
pub fn run(options: &Options) -> Result<usize, String> {
    let mut cores = cpu::cores();
    let cpus = options.cpus.unwrap_or(cores.len().min(MOST_CPUS));
    if cpus < 2 || cpus > cores.len().min(MOST_CPUS) {
        return Err(format!(
            "{cpus} CPUs on {} cores: give --cpus 2 to {}, and no more than there are cores",
            cores.len(),
            MOST_CPUS
        ));
    }
    cores.truncate(cpus);
    turn::set_costs(options.local, options.function);
    let (machine, contenders) = Machine::start(&cores, options.contenders)?;
    let (operations, not_measured) = Operation::all(&options.operations, &options.pages, cpus);
    let mut cells: BTreeMap<Key, Cell> = BTreeMap::new();
    let mut transfers: BTreeMap<Placement, Vec<Transfers>> = BTreeMap::new();
    let mut moved = 0;
    let mut whole = 0;
    for round in 0..(options.rounds * MOST_TRIES) as usize {
        if whole == options.rounds {
            break;
        }
        println!("@progress {whole} {} round {}", options.rounds, whole + 1);
        let before = machine.transfers();
        let placement = Placement::of(before.round_trip);
        let mut found = Vec::new();
        for &interrupt in &options.interrupt {
            for (place, &operation) in operations.iter().enumerate() {
                for turn in 0..contenders.len() {
                    let index = (turn + round) % contenders.len();
                    cpu::set_interrupts(interrupt, options.steps);
                    contender::choose(index);
                    let job = Arc::new(Job {
                        contender: &contenders[index],
                        operation,
                        cpus,
                        calls: options.calls as usize,
                    });
                    let logs = machine.turn(&job);
                    machine.rest();
                    found.push(((interrupt, place, index), job, logs));
                }
            }
        }
        let after = Placement::of(machine.lines(Kind::RoundTrip));
        // A wrong operation is one wherever it was.
        let is_whole = placement == after;
        match is_whole {
            true => whole += 1,
            false => moved += 1,
        }
        for ((interrupt, operation, contender), job, logs) in found {
            let key = Key {
                placement,
                interrupt,
                operation,
                contender,
            };
            match is_whole {
                true => cells
                    .entry(key)
                    .or_default()
                    .add(&job, &logs, options.steps),
                false => cells.entry(key).or_default().wrong += job.count_wrong(&logs),
            }
        }
        if is_whole {
            transfers.entry(placement).or_default().push(before);
        }
    }
    if whole == 0 {
        return Err(format!(
            "the host moved the CPUs in each of {moved} rounds: try again, with fewer --calls"
        ));
    }
    let typical = |placement: Placement| {
        let all = transfers.get(&placement)?;
        let of =
            |field: fn(&Transfers) -> u64| median(&all.iter().map(field).collect::<Vec<u64>>());
        Some(Transfers {
            round_trip: of(|one| one.round_trip),
            upgrade: of(|one| one.upgrade),
            load: of(|one| one.load),
            locked: of(|one| one.locked),
            drain: of(|one| one.drain),
            own: of(|one| one.own),
            pause: of(|one| one.pause),
            nothing: of(|one| one.nothing),
        })
    };
    let info = Info {
        processor: cpu::model(),
        cpus,
        not_measured: not_measured.into_iter().map(Operation::name).collect(),
        moved,
    };
    print("info", &info)?;
    for (key, cell) in &cells {
        if !cell.medians.is_empty() || cell.wrong > 0 {
            let peer = contenders[key.contender].name;
            let row = cell.row(key, operations[key.operation], peer, options, cpus);
            let lines = typical(key.placement);
            print("row", &Row { lines, ..row })?;
        }
    }
    Ok(cells.values().map(|cell| cell.wrong).sum())
}

fn print(mark: &str, what: &impl Serialize) -> Result<(), String> {
    let text = serde_json::to_string(what).map_err(|error| error.to_string())?;
    println!("@{mark} {text}");
    Ok(())
}
