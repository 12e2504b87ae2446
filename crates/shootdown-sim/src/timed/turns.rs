//! [`Turns`]: when each virtual CPU has its processor.

use crate::timed::Hosting;

/// One turn of a virtual CPU on its processor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Turn {
    /// When the hypervisor begins to load the virtual CPU: it takes the byte `preempted`.
    pub(crate) loads_ps: u64,
    /// When the virtual CPU executes its first instruction.
    pub(crate) enters_ps: u64,
    /// When it has executed its last one: the host's timer has found the slice used up.
    pub(crate) leaves_ps: u64,
    /// When the byte `preempted` is written.
    pub(crate) marks_ps: u64,
}

/// The turns of one processor, as far as anybody has looked. They go round: each round, all its virtual CPUs have equally long turns.
#[derive(Clone, Debug)]
pub(crate) struct Turns {
    hosting: Hosting,
    /// Who has the first turn.
    first: usize,
    turns: Vec<Turn>,
    /// How long turns of this round are.
    length_ps: u64,
    random: fastrand::Rng,
}

impl Turns {
    /// The first turn has begun already, at a moment that the seed decides.
    pub(crate) fn new(hosting: Hosting, seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let leaves_ps = random.u64(1..=hosting.slice_ps);
        let begun = Turn {
            loads_ps: 0,
            enters_ps: 0,
            leaves_ps,
            marks_ps: leaves_ps + hosting.exit_ps,
        };
        Self {
            hosting,
            first: random.usize(..hosting.vcpus),
            turns: vec![begun],
            length_ps: 0,
            random,
        }
    }

    /// Whose turn is the one with this number.
    pub(crate) fn owner(&self, number: usize) -> usize {
        (self.first + number) % self.hosting.vcpus
    }

    /// The turn with this number.
    pub(crate) fn turn(&mut self, number: usize) -> Turn {
        while self.turns.len() <= number {
            self.extend();
        }
        self.turns[number]
    }

    /// The virtual CPU of this turn goes on only then.
    pub(crate) fn put_off(&mut self, number: usize, enters_ps: u64) {
        let turn = &mut self.turns[number];
        turn.enters_ps = enters_ps.min(turn.leaves_ps);
    }

    /// The first turn of virtual CPU `vcpu` that is not over at `time_ps`.
    pub(crate) fn turn_at(&mut self, vcpu: usize, time_ps: u64) -> Turn {
        while self
            .turns
            .last()
            .is_none_or(|last| last.leaves_ps <= time_ps)
        {
            self.extend();
        }
        let mut number = self.turns.partition_point(|turn| turn.leaves_ps <= time_ps);
        while self.owner(number) != vcpu {
            number += 1;
        }
        self.turn(number)
    }

    fn extend(&mut self) {
        let Hosting {
            vcpus,
            slice_ps,
            tick_ps,
            exit_ps,
            switch_ps,
            entry_ps,
        } = self.hosting;
        // The first turn is the rest of one: rounds begin behind it.
        if self.turns.len() % vcpus == 1 % vcpus {
            self.length_ps = slice_ps + self.random.u64(0..=tick_ps);
        }
        let before_ps = self.turns.last().map_or(0, |last| last.leaves_ps);
        let loads_ps = before_ps + exit_ps + switch_ps;
        let leaves_ps = before_ps + self.length_ps;
        self.turns.push(Turn {
            loads_ps,
            enters_ps: (loads_ps + entry_ps).min(leaves_ps),
            leaves_ps,
            marks_ps: leaves_ps + exit_ps,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) const HOSTING: Hosting = Hosting {
        vcpus: 2,
        slice_ps: 1000,
        tick_ps: 300,
        exit_ps: 3,
        switch_ps: 5,
        entry_ps: 2,
    };

    #[test]
    fn turns_alternate_and_a_round_has_equal_ones() {
        let mut turns = Turns::new(HOSTING, 7);
        let mut lengths = Vec::new();
        for number in 1..200 {
            let (before, turn) = (turns.turn(number - 1), turns.turn(number));
            assert_ne!(turns.owner(number), turns.owner(number - 1));
            assert_eq!(turn.enters_ps, before.leaves_ps + 10);
            lengths.push(turn.leaves_ps - before.leaves_ps);
        }
        let rounds = lengths.chunks_exact(2);
        assert!(rounds.clone().all(|round| round[0] == round[1]));
        assert!(rounds.clone().any(|round| round[0] != lengths[0]));
        assert!(lengths.iter().all(|length| (1000..=1300).contains(length)));
    }

    #[test]
    fn a_moment_is_in_the_turn_of_one_virtual_cpu_at_most() {
        let mut turns = Turns::new(HOSTING, 3);
        for time_ps in (0..50_000).step_by(7) {
            let runs = |turn: Turn| (turn.enters_ps..turn.leaves_ps).contains(&time_ps);
            let of = [turns.turn_at(0, time_ps), turns.turn_at(1, time_ps)];
            assert!(of.iter().all(|turn| turn.leaves_ps > time_ps));
            assert!(of.into_iter().filter(|turn| runs(*turn)).count() <= 1);
        }
    }

    #[test]
    fn other_seeds_have_other_turns() {
        let first = |seed| Turns::new(HOSTING, seed).turn(0);
        assert_eq!(first(4), first(4));
        assert!((0..9).any(|seed| first(seed) != first(4)));
    }
}
