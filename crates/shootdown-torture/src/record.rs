//! [`Record`]: what one worker writes for the functions that it calls, and what they write for it.

use shootdown::{CpuId, CpuMask};

use crate::operation::Operation;
use crate::rng::Rng;
use crate::sync::{Padded, Plain, Tally, Word};

/// Workers per CPU: tasks, of which a CPU may have several, and one for its interrupts.
pub const LANES: usize = 4;

/// A worker: a task, or the interrupts of a CPU. Each runs one step at a time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WorkerId(u16);

impl WorkerId {
    /// The task with number `index`, which may move between CPUs; up to `LANES - 1` times as many as CPUs.
    pub const fn task(index: usize) -> Self {
        Self((index / (LANES - 1) * LANES + index % (LANES - 1)) as u16)
    }

    /// What happens in interrupt context on `cpu`.
    pub const fn interrupts_of(cpu: CpuId) -> Self {
        Self((cpu.index() * LANES + LANES - 1) as u16)
    }

    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a call is checked by. Initiators own their record; the functions that they call write the replies.
#[derive(Debug)]
pub(crate) struct Record<const N: usize> {
    rng: Tally,
    busy: Tally,
    pub(crate) steps: Tally,
    pub(crate) done: [Tally; Operation::COUNT],
    /// The number of the call, written before it on two lines and in plain memory.
    before: [Padded<Word>; 2],
    before_plain: Plain,
    sequence: Tally,
    /// The number of the last post.
    posted: Word,
    replies: [Reply; N],
}

/// What the functions write that run on one CPU.
#[derive(Debug)]
struct Reply {
    /// How often one ran.
    runs: Tally,
    /// As far as the initiator has checked.
    known: Tally,
    after: Word,
    after_plain: Plain,
}

/// What was wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mismatch {
    pub(crate) cpu: CpuId,
    pub(crate) expected: u64,
    pub(crate) found: u64,
}

impl<const N: usize> Record<N> {
    pub(crate) const fn new() -> Self {
        Self {
            rng: Tally::new(0),
            busy: Tally::new(0),
            steps: Tally::new(0),
            done: [const { Tally::new(0) }; Operation::COUNT],
            before: [const { Padded(Word::new(0)) }; 2],
            before_plain: Plain::new(),
            sequence: Tally::new(0),
            posted: Word::new(0),
            replies: [const {
                Reply {
                    runs: Tally::new(0),
                    known: Tally::new(0),
                    after: Word::new(0),
                    after_plain: Plain::new(),
                }
            }; N],
        }
    }

    pub(crate) fn seed(&self, rng: &Rng) {
        self.rng.set(rng.state());
    }

    /// Begins a step.
    ///
    /// # Panics
    /// When the worker is in another one.
    pub(crate) fn begin(&self) -> Rng {
        assert!(self.busy.take(1), "a worker runs two steps at once");
        Rng::new(self.rng.get())
    }

    pub(crate) fn end(&self, rng: &Rng) {
        self.rng.set(rng.state());
        self.steps.add(1);
        self.abandon();
    }

    /// Ends a step that does nothing.
    pub(crate) fn abandon(&self) {
        self.busy.publish(0);
    }

    /// Whether the worker is in a step; if not, what it did is seen.
    pub(crate) fn is_busy(&self) -> bool {
        self.busy.get_published() != 0
    }

    /// Writes what the functions of the next call look for; returns its number.
    pub(crate) fn open(&self) -> u64 {
        let sequence = self.sequence.get() + 1;
        self.sequence.set(sequence);
        self.before_plain.set(sequence);
        for word in &self.before {
            word.0.set(sequence);
        }
        sequence
    }

    /// Writes what the next post looks for; returns its number.
    pub(crate) fn open_post(&self) -> u64 {
        let sequence = self.posted.get() + 1;
        self.posted.set(sequence);
        sequence
    }

    /// In a posted function: the newest number that it sees.
    pub(crate) fn posted(&self) -> u64 {
        self.posted.get()
    }

    /// In a called function: whether it sees what was written before; returns what it sees instead.
    pub(crate) fn sees(&self, sequence: u64) -> Result<(), u64> {
        let mut seen = self.before.iter().map(|word| word.0.get());
        match seen.find(|seen| *seen != sequence) {
            Some(other) => Err(other),
            None => match self.before_plain.get() {
                plain if plain == sequence => Ok(()),
                other => Err(other),
            },
        }
    }

    /// In a called function: says that it ran.
    pub(crate) fn reply(&self, cpu: CpuId, sequence: u64) {
        let reply = &self.replies[cpu.index()];
        reply.runs.add(1);
        reply.after.set(sequence);
        reply.after_plain.set(sequence);
    }

    /// After the wait: a CPU on which functions did not run as often as `wanted` says since the last check.
    pub(crate) fn check_runs(&self, wanted: impl Fn(CpuId) -> u64) -> Option<Mismatch> {
        let mut first = None;
        for (index, reply) in self.replies.iter().enumerate() {
            let cpu = CpuId::new(index as u32);
            let runs = reply.runs.get();
            let (expected, found) = (wanted(cpu), runs.wrapping_sub(reply.known.get()));
            reply.known.set(runs);
            if expected != found {
                first = first.or(Some(Mismatch {
                    cpu,
                    expected,
                    found,
                }));
            }
        }
        first
    }

    /// After the wait: a CPU among `ran` whose reply is not seen.
    pub(crate) fn check_replies(
        &self,
        ran: &CpuMask<shootdown::Cpus<N>>,
        sequence: u64,
    ) -> Option<Mismatch>
    where
        shootdown::Cpus<N>: shootdown::Capacity,
    {
        ran.iter().find_map(|cpu| {
            let reply = &self.replies[cpu.index()];
            let found = match reply.after.get() {
                after if after == sequence => reply.after_plain.get(),
                other => other,
            };
            (found != sequence).then_some(Mismatch {
                cpu,
                expected: sequence,
                found,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_worker_has_a_record_of_its_own() {
        extern crate std;
        let mut seen = std::collections::BTreeSet::new();
        for cpu in 0..5 {
            assert!(seen.insert(WorkerId::interrupts_of(CpuId::new(cpu)).index()));
        }
        for task in 0..5 * (LANES - 1) {
            assert!(seen.insert(WorkerId::task(task).index()));
        }
        assert_eq!(seen.last().copied(), Some(5 * LANES - 1));
    }

    #[test]
    fn a_run_too_many_is_found_once() {
        let record = Record::<2>::new();
        let sequence = record.open();
        record.reply(CpuId::new(1), sequence);
        record.reply(CpuId::new(1), sequence);
        let wanted = |cpu: CpuId| u64::from(cpu.index() == 1);
        let mismatch = record.check_runs(wanted).unwrap();
        assert_eq!((mismatch.expected, mismatch.found), (1, 2));
        assert_eq!(record.check_runs(|_| 0), None);
    }

    #[test]
    fn a_reply_to_an_earlier_call_is_no_reply() {
        let record = Record::<2>::new();
        let first = record.open();
        record.reply(CpuId::new(0), first);
        let second = record.open();
        assert!(record.sees(first).is_err() && record.sees(second).is_ok());
        let ran = CpuMask::first(1);
        assert!(record.check_replies(&ran, first).is_none());
        assert!(record.check_replies(&ran, second).is_some());
    }
}
