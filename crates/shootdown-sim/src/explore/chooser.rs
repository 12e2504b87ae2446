//! [`Chooser`]: answers the questions of a run, and remembers the unusual answers.

use crate::explore::stalls::{Next, Stalls};
use crate::explore::{Deviation, Schedule};

/// What is asked. The kind matters to strategies only: each kind has a rate of its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Question {
    /// Which CPU goes on? 0: the same.
    Cpu,
    /// How many stores old is the value that a load sees? 0: the newest.
    Value,
    /// Is the interrupt late? 0: no.
    Interrupt,
    /// What does the TLB do by itself? 0: nothing.
    Tlb,
    /// Does a non-maskable interrupt come? 0: no.
    Nmi,
    /// Anything else that a workload leaves to chance. 0: the plain case.
    Workload,
    /// Who gets the CPU from the task that runs? 0: nobody.
    Preempt,
    /// After how many targets does the controller refuse to go on? 0: it sends to all.
    Refusal,
    /// Does the hypervisor take the CPU away, or keep it away? 0: no.
    Vcpu,
    /// Does an interrupt get lost? 0: no.
    Loss,
}

/// Number of kinds of questions.
const KINDS: usize = 10;

/// How questions are answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Strategy {
    /// At random, each kind of question with a rate that the seed draws; in some runs CPUs stand still for long.
    Random(u64),
    /// The CPU with the highest priority goes on; priorities change at a few random events (Burckhardt et al., "A
    /// Randomized Scheduler with Probabilistic Guarantees of Finding Bugs"). Other questions as `Random`.
    Priorities {
        /// The seed.
        seed: u64,
        /// How many changes.
        changes: u32,
    },
    /// As written down, 0 beyond.
    Replay(Schedule),
}

impl Strategy {
    /// What is written down, or else what the seed draws: few changes of priority find bugs of small depth surely; pure
    /// chance finds the others.
    pub(crate) fn new(schedule: Option<&Schedule>, seed: u64) -> Self {
        match schedule {
            Some(schedule) => Self::Replay(schedule.clone()),
            None if seed.is_multiple_of(4) => Self::Priorities {
                seed,
                changes: 1 + (seed / 4 % 8) as u32,
            },
            None => Self::Random(seed),
        }
    }
}

/// The answers of one run.
#[derive(Debug)]
pub struct Chooser {
    source: Source,
    /// What the running CPU is about to do.
    next: Next,
    asked: u32,
    taken: Schedule,
}

#[derive(Debug)]
enum Source {
    Random {
        random: fastrand::Rng,
        /// One in so many questions of a kind gets another answer than 0.
        rarity: [u32; KINDS],
        priorities: Option<Priorities>,
        stalls: Option<Stalls>,
    },
    Replay {
        schedule: Schedule,
        next: usize,
    },
}

#[derive(Debug)]
struct Priorities {
    /// Of each CPU; the highest goes on.
    of: Vec<u64>,
    changes_left: u32,
    lowest: u64,
}

/// Rarities that a run draws from: some runs do a thing often, others hardly ever.
const RARITIES: [u32; 6] = [2, 3, 6, 15, 50, 400];
/// A change of priorities comes about once in so many questions.
const CHANGE_RARITY: u32 = 60;
/// No run lowers priorities so often: a CPU that spins does so at each turn.
const FIRST_PRIORITY: u64 = 1 << 40;

impl Chooser {
    /// Answers by `strategy`, for a machine with `cpus` CPUs.
    pub fn new(strategy: Strategy, cpus: usize) -> Self {
        let random = |seed: u64| {
            let mut random = fastrand::Rng::with_seed(seed);
            // The youngest kinds have a source of their own, so that seeds mean what they meant before.
            let mut apart = fastrand::Rng::with_seed(!seed);
            let rarity = std::array::from_fn(|kind| {
                let is_young = kind >= Question::Preempt as usize;
                let source = if is_young { &mut apart } else { &mut random };
                RARITIES[source.usize(..RARITIES.len())]
            });
            (random, rarity)
        };
        let source = match strategy {
            Strategy::Random(seed) => {
                let (mut random, rarity) = random(seed);
                Source::Random {
                    stalls: Stalls::draw(&mut random, cpus),
                    random,
                    rarity,
                    priorities: None,
                }
            }
            Strategy::Priorities { seed, changes } => {
                let (mut random, rarity) = random(seed);
                let mut of: Vec<u64> = (0..cpus as u64).map(|cpu| FIRST_PRIORITY + cpu).collect();
                random.shuffle(&mut of);
                let priorities = Some(Priorities {
                    of,
                    changes_left: changes,
                    lowest: FIRST_PRIORITY,
                });
                Source::Random {
                    random,
                    rarity,
                    priorities,
                    stalls: None,
                }
            }
            Strategy::Replay(schedule) => Source::Replay { schedule, next: 0 },
        };
        Self {
            source,
            next: Next::default(),
            asked: 0,
            taken: Schedule::default(),
        }
    }

    /// An answer below `answers`; with one possible answer nothing is asked.
    #[inline]
    pub fn choose(&mut self, question: Question, answers: usize) -> usize {
        if answers <= 1 {
            return 0;
        }
        let answer = self.answer(question, answers);
        self.note(answer)
    }

    fn answer(&mut self, question: Question, answers: usize) -> usize {
        let answer = match &mut self.source {
            Source::Random { random, rarity, .. } => {
                if random.u32(..rarity[question as usize]) == 0 {
                    random.usize(..answers)
                } else {
                    0
                }
            }
            Source::Replay { schedule, next } => schedule.answer(next, self.asked),
        };
        answer.min(answers - 1)
    }

    /// Which of the CPUs in `able` goes on after `current`, which is the first of them if it is able itself.
    pub fn choose_cpu(&mut self, able: &[usize]) -> usize {
        if able.len() <= 1 {
            return able[0];
        }
        let Source::Random {
            random,
            priorities: Some(priorities),
            ..
        } = &mut self.source
        else {
            return able[self.choose_running(able)];
        };
        if priorities.changes_left > 0 && random.u32(..CHANGE_RARITY) == 0 {
            priorities.changes_left -= 1;
            priorities.lowest -= 1;
            priorities.of[able[0]] = priorities.lowest;
        }
        let best = (0..able.len()).max_by_key(|index| priorities.of[able[*index]]);
        able[self.note(best.unwrap_or(0))]
    }

    /// Which of several CPUs goes on where there are no priorities.
    fn choose_running(&mut self, able: &[usize]) -> usize {
        let (asked, next) = (self.asked, std::mem::take(&mut self.next));
        let wanted = self.answer(Question::Cpu, able.len());
        let answer = match &mut self.source {
            Source::Random {
                random,
                stalls: Some(stalls),
                ..
            } => stalls.choose(random, able, (asked, wanted), next),
            _ => wanted,
        };
        self.note(answer)
    }

    /// The running CPU is about to do this: it may stall there.
    pub(super) fn approach(&mut self, next: Next) {
        self.next = next;
    }

    /// A spinning CPU gives up its priority: whoever it waits for must get on.
    pub fn yields(&mut self, cpu: usize) {
        if let Source::Random {
            priorities: Some(priorities),
            ..
        } = &mut self.source
        {
            priorities.lowest -= 1;
            priorities.of[cpu] = priorities.lowest;
        }
    }

    /// The unusual answers so far.
    pub fn taken(&self) -> &Schedule {
        &self.taken
    }

    /// How many questions were asked.
    pub fn asked(&self) -> u32 {
        self.asked
    }

    fn note(&mut self, answer: usize) -> usize {
        if answer != 0 {
            self.taken.0.push(Deviation {
                at: self.asked,
                answer: answer as u16,
            });
        }
        self.asked += 1;
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::{Chooser, Question, Strategy};
    use crate::explore::Schedule;

    fn answers(strategy: Strategy) -> (Vec<usize>, Schedule) {
        let mut chooser = Chooser::new(strategy, 4);
        let given = (0..200)
            .map(|_| chooser.choose(Question::Tlb, 3) * 10 + chooser.choose_cpu(&[2, 3, 0]))
            .collect();
        (given, chooser.taken().clone())
    }

    #[test]
    fn what_was_taken_replays() {
        for strategy in [
            Strategy::Random(7),
            Strategy::Priorities {
                seed: 7,
                changes: 5,
            },
        ] {
            let (given, taken) = answers(strategy);
            assert!(!taken.0.is_empty());
            let text = taken.to_string();
            let (again, _) = answers(Strategy::Replay(text.parse().unwrap()));
            assert_eq!(again, given);
        }
    }

    #[test]
    fn a_cpu_that_has_spun_for_long_lets_others_go_on() {
        let changes_of_none = Strategy::Priorities {
            seed: 7,
            changes: 0,
        };
        let mut chooser = Chooser::new(changes_of_none, 2);
        (0..3_000_000).for_each(|_| chooser.yields(0));
        assert_eq!(chooser.choose_cpu(&[0, 1]), 1);
    }
}
