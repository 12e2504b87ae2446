//! The process of workers and keepers, beside the one that measures.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::board::{Board, Gate, Tally};
use super::keeper::Keeper;
use super::tail::Tail;
use super::worker::{Field, Worker};
use crate::child::{self, Child, End};
use crate::machine;

/// How often the gate is looked at while the load comes to rest.
const NAP: Duration = Duration::from_millis(1);

/// What a load is made of.
#[derive(Debug, Clone, Copy)]
pub struct Plan<'a> {
    /// One worker on each of these CPUs.
    pub cpus: &'a [usize],
    /// On the last so many of them, somebody keeps interrupts off too.
    pub keepers: usize,
    /// Pages that a worker maps, touches and unmaps.
    pub pages: usize,
    /// For how long interrupts are off.
    pub tail: Tail,
    /// For how long they are on in between.
    pub gap: Duration,
    /// Seed of all choices.
    pub seed: u64,
}

/// A running load, at rest until [`Load::work`]; dropped, it ends.
#[derive(Debug)]
pub struct Load {
    board: Arc<Board>,
    process: Option<Child>,
    cpus: Vec<usize>,
}

impl Load {
    /// Forks the process; the caller must have one thread.
    pub fn start(plan: Plan<'_>) -> io::Result<Self> {
        let board = Arc::new(Board::new(plan.cpus.len() + plan.keepers)?);
        let process = Child::start(|| match run(&plan, &board) {
            Ok(()) => 0,
            Err(error) => {
                eprintln!("preemptoff: the load: {error}");
                1
            }
        })?;
        let mut load = Self {
            board,
            process: Some(process),
            cpus: plan.cpus.to_vec(),
        };
        load.rest()?;
        Ok(load)
    }

    /// The CPUs that it keeps busy.
    pub fn cpus(&self) -> &[usize] {
        &self.cpus
    }

    /// Lets it work.
    pub fn work(&self) {
        self.board.set(Gate::Open);
    }

    /// Lets it come to rest: what it began is finished when this returns.
    pub fn rest(&mut self) -> io::Result<()> {
        self.board.set(Gate::Shut);
        while !self.board.is_quiet() {
            self.check_is_alive()?;
            thread::sleep(NAP);
        }
        self.board.error().map_or(Ok(()), Err)
    }

    /// What it has done so far.
    pub fn tally(&self) -> Tally {
        self.board.tally()
    }

    /// Ends it.
    pub fn end(&mut self) -> io::Result<()> {
        self.board.set(Gate::Over);
        match self.process.take().map(Child::wait).transpose()? {
            None | Some(End::Exited(0)) => Ok(()),
            Some(end) => Err(died(end)),
        }
    }

    fn check_is_alive(&mut self) -> io::Result<()> {
        let Some(process) = &self.process else {
            return Ok(());
        };
        match child::wait_for(process.pid(), libc::WNOHANG)? {
            None => Ok(()),
            Some((_, end)) => {
                self.process = None;
                Err(died(end))
            }
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        if let Some(process) = self.process.take() {
            // It is a failed run that ends so: there is nobody to tell more.
            let _ignored = process.kill();
        }
    }
}

fn died(end: End) -> io::Error {
    io::Error::other(format!("the load has died: {end:?}"))
}

/// The process: returns when the load is over.
fn run(plan: &Plan<'_>, board: &Arc<Board>) -> io::Result<()> {
    let fields = plan.cpus.iter().map(|_| Field::new(plan.pages));
    let fields: Arc<[Field]> = fields.collect::<io::Result<_>>()?;
    let workers = (0..plan.cpus.len()).map(|own| {
        let (fields, board, cpu) = (Arc::clone(&fields), Arc::clone(board), plan.cpus[own]);
        thread::Builder::new().spawn(move || {
            machine::pin_to(cpu)?;
            Worker::new(&fields, own).work(&board);
            Ok(())
        })
    });
    let mut threads: Vec<_> = workers.collect::<io::Result<_>>()?;
    for index in 0..plan.keepers {
        let (board, cpu) = (Arc::clone(board), plan.cpus[plan.cpus.len() - 1 - index]);
        let keeper = Keeper {
            thread: plan.cpus.len() + index,
            tail: plan.tail,
            gap: plan.gap,
            seed: plan.seed.wrapping_mul(31).wrapping_add(index as u64),
        };
        threads.push(thread::Builder::new().spawn(move || {
            machine::pin_to(cpu)?;
            keeper.work(&board);
            Ok(())
        })?);
    }
    for thread in threads {
        let ended: io::Result<()> = thread
            .join()
            .map_err(|_| io::Error::other("a thread panicked"))?;
        ended?;
    }
    Ok(())
}
