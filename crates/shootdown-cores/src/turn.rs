//! [`Job`]: one contender's operations of one kind, and what its CPUs do in it.
//!
//! The function that is called, and a local flush, note when they run, each CPU in a log of its own, which nobody reads before the turn is over: then each
//! operation is checked. So no line moves for the checks.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use shootdown::{CpuId, LocalFlush};

use crate::contender::{Contender, Mask};
use crate::cpu::{self, Line, MOST_CPUS, cycles, cycles_after};
use crate::operation::Operation;

/// One contender's operations of one kind.
pub struct Job {
    /// Whose.
    pub contender: &'static Contender,
    /// What.
    pub operation: Operation,
    /// CPUs.
    pub cpus: usize,
    /// Operations of each initiator.
    pub calls: usize,
}

/// When an operation began, its interrupt left (if that is noted), and it was over.
#[derive(Clone, Copy, Default, Debug)]
pub struct Asked {
    /// Its beginning.
    pub start: u64,
    /// Its last interrupt.
    pub sent: u64,
    /// Its end.
    pub end: u64,
}

/// When a function or a flush ran, and when its interrupt had been taken.
#[derive(Clone, Copy, Default, Debug)]
pub struct Ran {
    /// The interrupt.
    pub entered: u64,
    /// The function.
    pub at: u64,
}

/// What a CPU notes of one turn.
#[derive(Default, Debug)]
pub struct Log {
    /// Its own operations.
    pub asked: Vec<Asked>,
    /// What ran here, by initiator; local flushes, whoever asked for them, are the first one's.
    pub ran: Vec<Vec<Ran>>,
}

thread_local! {
    static RAN: [Cell<Vec<Ran>>; MOST_CPUS] = const { [const { Cell::new(Vec::new()) }; MOST_CPUS] };
    /// The same for the one that runs now.
    static FLUSHED: Cell<Vec<Ran>> = const { Cell::new(Vec::new()) };
}

/// Cycles of a local flush of one page, and of a called function. They change before the first turn only.
static LOCAL: Line<AtomicU64> = Line(AtomicU64::new(0));
static FUNCTION: Line<AtomicU64> = Line(AtomicU64::new(0));
/// A flush of all costs as much as one of so many pages.
const ALL_PAGES: usize = 16;
/// CPUs that stand at the line, initiators that are done; and whose turn it is of those that alternate.
// ORDERING: counted up by AcqRel or stronger and read by Acquire: whoever finds all there sees the logs that they have made ready, and what ran before they were done.
static READY: Line<AtomicUsize> = Line(AtomicUsize::new(0));
static DONE: Line<AtomicUsize> = Line(AtomicUsize::new(0));
static NEXT: Line<AtomicUsize> = Line(AtomicUsize::new(0));

/// Says what a local flush and a function cost.
pub fn set_costs(local: u64, function: u64) {
    LOCAL.0.store(local, Ordering::SeqCst);
    FUNCTION.0.store(function, Ordering::SeqCst);
}

fn note(log: &Cell<Vec<Ran>>) {
    let mut noted = log.take();
    let [entered, _] = cpu::noted();
    // There is room: nothing is allocated in a turn that goes well.
    noted.push(Ran {
        entered,
        at: cycles(),
    });
    log.set(noted);
}

/// The platform's local flush.
#[inline]
pub fn flush(operation: LocalFlush) {
    flush_pages(match operation {
        LocalFlush::Pages(range, _) => range.page_count(),
        _ => ALL_PAGES,
    });
}

/// A local flush of so many pages. The instructions that flush are serialising: they begin when all before them is done, and what was stored is seen.
pub fn flush_pages(pages: usize) {
    cpu::serialize();
    cpu::spend(LOCAL.0.load(Ordering::Relaxed) * pages.min(ALL_PAGES * 2) as u64);
    FLUSHED.with(note);
}

/// Before a turn, between others.
pub fn reset() {
    READY.0.store(0, Ordering::SeqCst);
    DONE.0.store(0, Ordering::SeqCst);
    NEXT.0.store(0, Ordering::SeqCst);
}

impl Job {
    /// What the running CPU, by its first name, does in the turn.
    pub fn run(&self, me: usize) -> Log {
        let initiators = self.operation.initiators(self.cpus);
        let room = || Vec::with_capacity(2 * self.calls * initiators.len() + 64);
        RAN.with(|ran| {
            initiators
                .iter()
                .for_each(|initiator| ran[*initiator].set(room()))
        });
        FLUSHED.with(|flushed| flushed.set(room()));
        READY.0.fetch_add(1, Ordering::SeqCst);
        let place = initiators.iter().position(|initiator| *initiator == me);
        let asked = match place {
            Some(place) => self.ask(me, (place, initiators.len())),
            None => Vec::new(),
        };
        while DONE.0.load(Ordering::Acquire) < initiators.len() {
            cpu::look();
            core::hint::spin_loop();
        }
        let ran = match self.operation.pages() {
            Some(_) => vec![FLUSHED.with(Cell::take)],
            None => RAN.with(|ran| ran.iter().map(Cell::take).collect()),
        };
        Log { asked, ran }
    }

    fn ask(&self, me: usize, (place, initiators): (usize, usize)) -> Vec<Asked> {
        let targets: Mask = self.mask(self.operation.targets(me, self.cpus));
        let everybody: Mask = self.mask(0..self.cpus);
        let mut asked = Vec::with_capacity(self.calls);
        // What it holds is read elsewhere, while this CPU writes to its stack around it.
        let function = Line(move |_: CpuId| {
            RAN.with(|ran| note(&ran[me]));
            cpu::spend(FUNCTION.0.load(Ordering::Relaxed));
        });
        while READY.0.load(Ordering::Acquire) < self.cpus {
            cpu::look();
            core::hint::spin_loop();
        }
        for turn in 0..self.calls {
            match self.operation {
                Operation::WrongGuess => {
                    cpu::set_name((me + turn % 2 * self.cpus) as u32);
                }
                Operation::Alternate => {
                    while NEXT.0.load(Ordering::Acquire) % initiators != place {
                        cpu::look();
                        core::hint::spin_loop();
                    }
                }
                _ => {}
            }
            let start = cycles();
            match self.operation.pages() {
                Some(pages) => self.contender.flush(&everybody, pages, turn),
                None => self.contender.call(&targets, &function.0),
            }
            let end = cycles_after();
            let [_, sent] = cpu::noted();
            asked.push(Asked { start, sent, end });
            if self.operation == Operation::Alternate {
                NEXT.0.fetch_add(1, Ordering::AcqRel);
            }
        }
        cpu::set_name(me as u32);
        DONE.0.fetch_add(1, Ordering::AcqRel);
        asked
    }

    fn mask(&self, cpus: impl IntoIterator<Item = usize>) -> Mask {
        cpus.into_iter().map(|cpu| CpuId::new(cpu as u32)).collect()
    }

    /// Operations in which a target had not done its part when they were over, or had done it before they began, or more than once.
    pub fn count_wrong(&self, logs: &[Log]) -> usize {
        let initiators = self.operation.initiators(self.cpus);
        let pairs = initiators.iter().flat_map(|&initiator| {
            let targets = self.operation.targets(initiator, self.cpus);
            targets.into_iter().map(move |target| (initiator, target))
        });
        let wrong = |(initiator, target): (usize, usize)| {
            let (asked, ran) = (&logs[initiator].asked, &logs[target].ran);
            match self.operation.pages() {
                Some(_) => count_unflushed(asked, &ran[0]),
                None => count_uncalled(asked, &ran[initiator]),
            }
        };
        pairs.map(wrong).sum()
    }
}

/// Each call runs its function once, between its beginning and its end.
fn count_uncalled(asked: &[Asked], ran: &[Ran]) -> usize {
    let is_wrong = |(asked, ran): &(&Asked, &Ran)| ran.at < asked.start || ran.at > asked.end;
    asked.len().abs_diff(ran.len()) + asked.iter().zip(ran).filter(is_wrong).count()
}

/// Each flush has a local one that ends after it began, in an interrupt that was taken before it was over: until that has flushed the target runs
/// nothing else, though it may acknowledge before. One may do for several; where all flush, it may be one that the target asked for itself.
fn count_unflushed(asked: &[Asked], ran: &[Ran]) -> usize {
    let mut ran = ran.iter().peekable();
    let is_wrong = |asked: &&Asked| {
        while ran.next_if(|ran| ran.at < asked.start).is_some() {}
        ran.peek().is_none_or(|ran| ran.entered > asked.end)
    };
    asked.iter().filter(is_wrong).count()
}

#[cfg(test)]
mod tests {
    use super::{Asked, Ran, count_uncalled, count_unflushed};

    fn asked(start: u64, end: u64) -> Asked {
        Asked {
            start,
            sent: 0,
            end,
        }
    }

    fn ran(entered: u64, at: u64) -> Ran {
        Ran { entered, at }
    }

    #[test]
    fn a_call_that_returns_early_or_runs_twice_is_wrong() {
        let calls = [asked(10, 20), asked(30, 40)];
        assert_eq!(count_uncalled(&calls, &[ran(0, 15), ran(0, 40)]), 0);
        assert_eq!(count_uncalled(&calls, &[ran(0, 21), ran(0, 35)]), 1);
        assert_eq!(count_uncalled(&calls, &[ran(0, 15)]), 1);
        assert_eq!(
            count_uncalled(&calls, &[ran(0, 15), ran(0, 35), ran(0, 36)]),
            1
        );
    }

    #[test]
    fn a_flush_may_be_acknowledged_early_and_one_may_do_for_two() {
        let flushes = [asked(10, 20), asked(30, 40)];
        assert_eq!(count_unflushed(&flushes, &[ran(12, 35)]), 0);
        assert_eq!(count_unflushed(&flushes, &[ran(12, 25)]), 1);
        assert_eq!(count_unflushed(&flushes, &[ran(21, 29), ran(31, 38)]), 1);
        assert_eq!(count_unflushed(&flushes, &[ran(12, 18), ran(41, 45)]), 1);
    }
}
