//! [`Hypervisor`]: several virtual CPUs share a processor, in turns.
//!
//! A virtual CPU that is not on its processor executes nothing: what it was to do it does when it has its next turn, and interrupts wait.
//! As KVM does, the hypervisor writes "preempted" into the steal-time record of the one that it takes away, and takes the byte by one exchange
//! before it lets one go on: if somebody asked, it drops all translations of that virtual CPU first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Sub;
use std::sync::Arc;

use shootdown::sim::Ordering;

use crate::machine::StealTime;
use crate::timed::turns::{Turn, Turns};
use crate::timed::{Costs, Hosting};

/// What the hypervisor has done.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct HostCounts {
    /// Turns that began.
    pub entries: u64,
    /// Those before which translations were dropped.
    pub flushes: u64,
    /// Virtual CPUs that flushes took, once for each flush.
    pub taken: u64,
}

impl Sub for HostCounts {
    type Output = Self;

    /// What it has done since an earlier reading.
    fn sub(self, earlier: Self) -> Self {
        Self {
            entries: self.entries - earlier.entries,
            flushes: self.flushes - earlier.flushes,
            taken: self.taken - earlier.taken,
        }
    }
}

/// What the hypervisor does next on a processor.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Step {
    /// It writes "preempted" for the virtual CPU whose turn, by number, is over.
    Marks(usize),
    /// It loads the virtual CPU of this turn.
    Loads(usize),
}

/// All processors.
#[derive(Clone, Debug)]
pub(crate) struct Hypervisor {
    vcpus: usize,
    processors: Vec<Turns>,
    records: Arc<[StealTime]>,
    steps: BinaryHeap<Reverse<(u64, usize, Step)>>,
    /// When each virtual CPU that executes will have to leave.
    leaves_ps: Vec<u64>,
    /// Which of them is within an instruction, which it ends before it leaves.
    pub(crate) is_within: Vec<bool>,
    /// Whether guests may ask for flushes.
    pub(crate) offers_flush: bool,
    /// What it has done.
    pub counts: HostCounts,
}

impl Hypervisor {
    /// None where each CPU has a processor of its own.
    pub(crate) fn new(cpus: usize, costs: &Costs, seed: u64) -> Option<Self> {
        let hosting = costs.hosting;
        if !hosting.shares() {
            return None;
        }
        let mut seeds = fastrand::Rng::with_seed(seed);
        let processors = cpus.div_ceil(hosting.vcpus);
        let mut hypervisor = Self {
            vcpus: hosting.vcpus,
            processors: (0..processors)
                .map(|_| Turns::new(hosting, seeds.u64(..)))
                .collect(),
            records: (0..processors * hosting.vcpus)
                .map(|_| StealTime::preempted())
                .collect(),
            steps: BinaryHeap::new(),
            leaves_ps: vec![0; cpus],
            is_within: vec![false; cpus],
            offers_flush: false,
            counts: HostCounts::default(),
        };
        for processor in 0..processors {
            let turns = &mut hypervisor.processors[processor];
            let (first, turn) = (turns.owner(0), turns.turn(0));
            let record = &hypervisor.records[processor * hosting.vcpus + first];
            record.take(|word, swap| swap.apply(word, Ordering::Relaxed));
            hypervisor.plan(turn.marks_ps, processor, Step::Marks(0));
        }
        Some(hypervisor)
    }

    /// The records, if guests may ask for flushes.
    pub(crate) fn offered(&self) -> Option<Arc<[StealTime]>> {
        self.offers_flush.then(|| Arc::clone(&self.records))
    }

    fn plan(&mut self, time_ps: u64, processor: usize, step: Step) {
        self.steps.push(Reverse((time_ps, processor, step)));
    }

    /// Whether it has something to do by then.
    #[inline]
    pub(crate) fn acts_by(&self, time_ps: u64) -> bool {
        let next = self.steps.peek();
        next.is_some_and(|Reverse((at_ps, ..))| *at_ps <= time_ps)
    }

    /// Its next step: when, for which virtual CPU, and what. Plans the one that follows.
    pub(crate) fn take_step(&mut self) -> Option<(u64, usize, Step)> {
        let Reverse((time_ps, processor, step)) = self.steps.pop()?;
        let turns = &mut self.processors[processor];
        let (number, next) = match step {
            Step::Marks(number) => {
                let loads_ps = turns.turn(number + 1).loads_ps;
                (number, (loads_ps, Step::Loads(number + 1)))
            }
            Step::Loads(number) => (number, (turns.turn(number).marks_ps, Step::Marks(number))),
        };
        let cpu = processor * self.vcpus + turns.owner(number);
        self.plan(next.0, processor, next.1);
        Some((time_ps, cpu, step))
    }

    /// Writes "preempted", after an access to the line.
    pub(crate) fn mark(&mut self, cpu: usize) {
        self.records[cpu].mark(|word, store| {
            store.apply(word, Ordering::Relaxed);
        });
    }

    /// Takes the byte; true if translations are to be dropped.
    pub(crate) fn take_byte(&mut self, cpu: usize) -> bool {
        let asked = self.records[cpu].take(|word, swap| swap.apply(word, Ordering::Relaxed));
        self.counts.entries += 1;
        self.counts.flushes += u64::from(asked);
        asked
    }

    pub(crate) fn record_of(&self, cpu: usize) -> usize {
        self.records[cpu].address()
    }

    /// The virtual CPU of this turn goes on only then.
    pub(crate) fn put_off(&mut self, cpu: usize, number: usize, enters_ps: u64) {
        self.processors[cpu / self.vcpus].put_off(number, enters_ps);
    }

    fn turn_at(&mut self, cpu: usize, time_ps: u64) -> Turn {
        self.processors[cpu / self.vcpus].turn_at(cpu % self.vcpus, time_ps)
    }

    /// When a virtual CPU that has something to do at `time_ps` can do it. It will be told in [`settle`](Self::settle) when it has to leave.
    pub(crate) fn runs_from(&mut self, cpu: usize, time_ps: u64) -> u64 {
        let turn = self.turn_at(cpu, time_ps);
        self.leaves_ps[cpu] = turn.leaves_ps;
        turn.enters_ps.max(time_ps)
    }

    /// What has taken a virtual CPU that was executing until `now_ps`: whoever is beyond the end of the turn does the rest in the next.
    #[inline]
    pub(crate) fn settle(&mut self, cpu: usize, mut now_ps: u64) -> u64 {
        while now_ps >= self.leaves_ps[cpu] {
            let left_ps = self.leaves_ps[cpu];
            let next = self.turn_at(cpu, left_ps);
            now_ps += next.enters_ps - left_ps;
            self.leaves_ps[cpu] = next.leaves_ps;
        }
        now_ps
    }

    /// When a virtual CPU that has `work_ps` to do is done with it.
    pub(crate) fn done_ps(&mut self, cpu: usize, now_ps: u64, mut work_ps: u64) -> u64 {
        let mut at_ps = now_ps;
        loop {
            let turn = self.turn_at(cpu, at_ps);
            at_ps = at_ps.max(turn.enters_ps);
            if work_ps < turn.leaves_ps - at_ps {
                return at_ps + work_ps;
            }
            work_ps -= turn.leaves_ps - at_ps;
            at_ps = turn.leaves_ps;
        }
    }

    /// How much of this span the virtual CPU was on its processor.
    pub(crate) fn ran_ps(&mut self, cpu: usize, since_ps: u64, until_ps: u64) -> u64 {
        let (mut at_ps, mut ran_ps) = (since_ps, 0);
        while at_ps < until_ps {
            let turn = self.turn_at(cpu, at_ps);
            let from_ps = at_ps.max(turn.enters_ps);
            ran_ps += turn.leaves_ps.min(until_ps).saturating_sub(from_ps);
            at_ps = turn.leaves_ps;
        }
        ran_ps
    }
}

impl Hosting {
    /// Whether virtual CPUs share processors.
    pub fn shares(&self) -> bool {
        self.vcpus > 1 && self.slice_ps > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hypervisor() -> Hypervisor {
        let costs = Costs {
            hosting: Hosting {
                vcpus: 2,
                slice_ps: 1000,
                tick_ps: 300,
                exit_ps: 3,
                switch_ps: 5,
                entry_ps: 2,
            },
            ..Costs::default()
        };
        Hypervisor::new(4, &costs, 1).unwrap()
    }

    #[test]
    fn what_does_not_fit_into_a_turn_is_done_in_the_next() {
        let mut hypervisor = hypervisor();
        for cpu in 0..4 {
            for now_ps in [0, 400, 5000] {
                let from_ps = hypervisor.runs_from(cpu, now_ps);
                let turn = hypervisor.turn_at(cpu, from_ps);
                let rest_ps = turn.leaves_ps - from_ps;
                let next = hypervisor.turn_at(cpu, turn.leaves_ps);
                assert_eq!(
                    hypervisor.done_ps(cpu, now_ps, rest_ps + 7),
                    next.enters_ps + 7
                );
                assert_eq!(
                    hypervisor.settle(cpu, from_ps + rest_ps - 1),
                    from_ps + rest_ps - 1
                );
                assert_eq!(
                    hypervisor.settle(cpu, turn.leaves_ps + 7),
                    next.enters_ps + 7
                );
                assert_eq!(
                    hypervisor.ran_ps(cpu, now_ps, next.enters_ps + 7),
                    rest_ps + 7
                );
            }
        }
    }

    #[test]
    fn the_slice_is_fair() {
        let mut hypervisor = hypervisor();
        let ran = |hypervisor: &mut Hypervisor, cpu| hypervisor.ran_ps(cpu, 0, 1_000_000);
        for cpu in [0, 2] {
            let both = [ran(&mut hypervisor, cpu), ran(&mut hypervisor, cpu + 1)];
            // A round is unfinished at each end.
            assert!(both[0].abs_diff(both[1]) <= 2 * 1300, "{both:?}");
            assert!(both[0] + both[1] < 1_000_000);
        }
    }

    #[test]
    fn the_byte_says_who_runs_and_is_taken_before_the_entry() {
        let mut hypervisor = hypervisor();
        hypervisor.offers_flush = true;
        let records = hypervisor.offered().unwrap();
        let mut asked = [false; 4];
        for _ in 0..50 {
            let (time_ps, cpu, step) = hypervisor.take_step().unwrap();
            match step {
                Step::Marks(_) => {
                    assert!(!records[cpu].flush_before_entry(), "{cpu} runs still");
                    hypervisor.mark(cpu);
                    asked[cpu] = records[cpu].flush_before_entry();
                    assert!(asked[cpu]);
                }
                Step::Loads(_) => {
                    assert!(hypervisor.runs_from(cpu, time_ps) > time_ps);
                    assert_eq!(hypervisor.take_byte(cpu), asked[cpu]);
                    assert!(!records[cpu].flush_before_entry(), "{cpu} runs again");
                }
            }
        }
        assert!(hypervisor.counts.flushes > 20);
    }

    #[test]
    fn without_sharing_there_is_no_hypervisor() {
        assert!(Hypervisor::new(4, &Costs::default(), 1).is_none());
    }
}
