//! [`Plan`]: what to measure, as words say it.
//!
//! `selected,initiators=1:2:4,targets=1:all,masks=disjoint:random,ns=0:500000,calls=200`: the workload first, then any of
//! the keys, each once, with values separated by colons.

use alloc::format;
use alloc::vec::Vec;

use shootdown_peers::{Masks, Peer};

use crate::row::Row;
use crate::words::{Mistake, list, number, one_of};

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Workload {
    /// Table T5: a few initiators, functions that take time.
    Selected,
    /// One or all CPUs have others forget a page.
    Shoot,
}

/// What a CPU does while nobody wants anything of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rest {
    /// It spins, as one in user mode that works.
    Busy,
    /// It halts until an interrupt comes.
    Halt,
}

/// A number of CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Count {
    Of(usize),
    /// As many as there are.
    All,
}

impl Count {
    fn count(self, all: usize) -> usize {
        match self {
            Self::Of(count) => count,
            Self::All => all,
        }
    }
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The functions that are called.
    pub workload: Workload,
    /// Whose calls, in the order of their first turns.
    pub peers: Vec<Peer>,
    initiators: Vec<Count>,
    targets: Vec<Count>,
    masks: Vec<Masks>,
    function_ns: Vec<u64>,
    /// Calls of each initiator in one turn.
    pub calls: usize,
    /// Turns of each peer in each row.
    pub rounds: usize,
    /// Where masks begin.
    pub seed: u64,
    /// What the others do.
    pub rest: Rest,
}

const KEYS: &str = "peers, initiators, targets, masks, ns, calls, rounds, seed, rest";
/// Samples are kept until a row ends; a kernel's heap holds so many.
const MOST_CALLS: u64 = 10_000;
const MOST_ROUNDS: u64 = 100;
/// A function that keeps interrupts off for longer looks like a CPU that hangs.
const MOST_NS: u64 = 10_000_000;

impl Workload {
    /// Its name in plans and results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Selected => "selected",
            Self::Shoot => "shoot",
        }
    }

    /// What is measured when nothing else is said.
    fn plan(self) -> Plan {
        let (initiators, masks) = match self {
            Self::Selected => ([1, 2, 4].map(Count::Of).to_vec(), Masks::ALL.to_vec()),
            Self::Shoot => (
                [Count::Of(1), Count::All].to_vec(),
                [Masks::Random].to_vec(),
            ),
        };
        let function_ns = match self {
            Self::Selected => [0, 500_000].to_vec(),
            Self::Shoot => [0].to_vec(),
        };
        Plan {
            workload: self,
            peers: Peer::ON_PROCESSORS.to_vec(),
            initiators,
            targets: [Count::Of(1), Count::Of(2), Count::Of(4), Count::All].to_vec(),
            masks,
            function_ns,
            calls: 200,
            rounds: 5,
            seed: 1,
            rest: Rest::Busy,
        }
    }
}

impl Rest {
    const ALL: [Self; 2] = [Self::Busy, Self::Halt];

    /// Its name in plans and results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::Halt => "halt",
        }
    }
}

impl Plan {
    /// Reads a plan.
    ///
    /// # Errors
    /// A word is unknown, or a number out of bounds.
    pub fn parse(words: &str) -> Result<Self, Mistake> {
        let mut words = words.split(',');
        let workload = one_of(
            words.next().unwrap_or_default(),
            "workload",
            &[Workload::Selected, Workload::Shoot],
            |workload| workload.name(),
        )?;
        let mut plan = workload.plan();
        let mut seen = Vec::new();
        for word in words {
            let (key, values) = word
                .split_once('=')
                .ok_or_else(|| Mistake(format!("{word:?} is no key=value; keys are {KEYS}")))?;
            if seen.contains(&key) {
                return Err(Mistake(format!("{key} stands there twice; give it once")));
            }
            seen.push(key);
            plan.set(key, values)?;
        }
        Ok(plan)
    }

    /// The most rows that it has on any machine, for one contender.
    pub fn most_rows(&self) -> usize {
        self.function_ns.len() * self.masks.len() * self.shapes().count()
    }

    /// All pairs of numbers of initiators and targets.
    fn shapes(&self) -> impl Iterator<Item = (Count, Count)> {
        let pairs = |&initiators| {
            self.targets
                .iter()
                .map(move |&targets| (initiators, targets))
        };
        self.initiators.iter().flat_map(pairs)
    }

    /// The shapes that it has on a machine of `cpus` CPUs, and how many it leaves out because they do not fit.
    pub(crate) fn rows(&self, cpus: usize) -> (Vec<Row>, usize) {
        let (mut rows, mut left_out) = (Vec::new(), 0);
        for &function_ns in &self.function_ns {
            for &masks in &self.masks {
                for (initiators, targets) in self.shapes() {
                    let initiators = initiators.count(cpus);
                    let row = Row {
                        masks,
                        initiators,
                        targets: targets.count(masks.most_targets(initiators, cpus)),
                        function_ns,
                    };
                    match row.fits(cpus) {
                        false => left_out += 1,
                        true if rows.iter().any(|other| row.repeats(other)) => {}
                        true => rows.push(row),
                    }
                }
            }
        }
        (rows, left_out)
    }

    fn set(&mut self, key: &str, values: &str) -> Result<(), Mistake> {
        match key {
            "peers" => {
                self.peers = list(values, |word| {
                    one_of(word, key, &Peer::ON_PROCESSORS, |it| it.name())
                })?
            }
            "masks" => {
                self.masks = list(values, |word| {
                    one_of(word, key, &Masks::ALL, |it| it.name())
                })?
            }
            "initiators" => self.initiators = list(values, |word| count(word, key))?,
            "targets" => self.targets = list(values, |word| count(word, key))?,
            "ns" => self.function_ns = list(values, |word| number(word, key, 0, MOST_NS))?,
            "calls" => self.calls = number(values, key, 1, MOST_CALLS)? as usize,
            "rounds" => self.rounds = number(values, key, 1, MOST_ROUNDS)? as usize,
            "seed" => self.seed = number(values, key, 0, u64::MAX)?,
            "rest" => self.rest = one_of(values, key, &Rest::ALL, |it| it.name())?,
            _ => return Err(Mistake(format!("{key:?} is no key; keys are {KEYS}"))),
        }
        Ok(())
    }
}

fn count(word: &str, key: &str) -> Result<Count, Mistake> {
    match word {
        "all" => Ok(Count::All),
        _ => number(word, key, 1, 4096).map(|count| Count::Of(count as usize)),
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn what_is_not_said_has_a_default() {
        let plan = Plan::parse("selected,initiators=2:all,ns=7,peers=best:linux").unwrap();
        assert_eq!(plan.initiators, [Count::Of(2), Count::All]);
        assert_eq!(plan.peers, [Peer::Shootdown, Peer::CallQueues]);
        assert_eq!((plan.function_ns.as_slice(), plan.calls), (&[7][..], 200));
    }

    #[test]
    fn mistakes_name_cause_and_remedy() {
        for (words, remedy) in [
            ("", "choose from selected, shoot"),
            ("select", "choose from selected, shoot"),
            ("shoot,peer=best", "keys are peers"),
            ("shoot,peers", "keys are peers"),
            ("shoot,peers=windows", "xen-before"),
            ("shoot,calls=0", "1 to 10000"),
            ("shoot,calls=1:2", "1 to 10000"),
            ("shoot,initiators=none", "1 to 4096"),
            ("shoot,seed=1,seed=2", "give it once"),
            ("shoot,rest=sleep", "busy, halt"),
        ] {
            let text = Plan::parse(words).unwrap_err().to_string();
            assert!(text.contains(remedy) && !text.contains('\n'), "{text}");
        }
    }

    #[test]
    fn shapes_are_those_that_fit_each_once() {
        let plan = Plan::parse("selected,initiators=1:2:all,targets=1:3:all,ns=0").unwrap();
        let (rows, left_out) = plan.rows(4);
        let shapes = |masks| -> Vec<(usize, usize)> {
            let those = rows.iter().filter(|row| row.masks == masks);
            those.map(|row| (row.initiators, row.targets)).collect()
        };
        assert_eq!(shapes(Masks::Disjoint), [(1, 1), (1, 3), (2, 1)]);
        assert_eq!(
            shapes(Masks::Random),
            [(1, 1), (1, 3), (2, 1), (2, 2), (4, 1), (4, 3)]
        );
        assert_eq!(shapes(Masks::Identical), [(2, 1), (2, 2)]);
        assert_eq!(left_out, 9);
    }
}
