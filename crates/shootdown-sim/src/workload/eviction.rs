//! [`Eviction`]: which tag a space takes when it has none. What the engine does, and what it could do instead.
//!
//! These are models of the choice alone, for comparison: a switch is looked up among the slots that its space may
//! use, and either finds its tag or takes one. Nothing is flushed, so a tag that is found is kept. The engine's own
//! choice is one of them, and a test holds it against the engine.

/// Slots in a cache line.
const WAYS: usize = 4;

/// Where a space may have its tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Candidates {
    /// Anywhere: a lookup reads a cache line for every four slots.
    All,
    /// In the four slots of one line, which its name decides.
    Line,
}

/// Who goes when all candidates are taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Victim {
    /// Each in turn; one turn counter a CPU.
    RoundRobin,
    /// The one that was loaded least recently; a time a slot is written at every switch.
    LeastRecent,
    /// Anyone.
    Random,
}

/// A way to choose tags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Eviction {
    /// Where a space may have its tag.
    pub candidates: Candidates,
    /// Who goes.
    pub victim: Victim,
}

/// One slot: the name of a space, and when it was last loaded.
#[derive(Clone, Copy, Default, Debug)]
struct Slot {
    name: Option<u64>,
    used: u64,
}

impl Eviction {
    /// What the engine does under [`Tags::All`](shootdown::tags::Tags::All).
    pub const ENGINE: Self = Self {
        candidates: Candidates::Line,
        victim: Victim::RoundRobin,
    };

    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::ENGINE,
        Self::of(Candidates::Line, Victim::LeastRecent),
        Self::of(Candidates::Line, Victim::Random),
        Self::of(Candidates::All, Victim::RoundRobin),
        Self::of(Candidates::All, Victim::LeastRecent),
        Self::of(Candidates::All, Victim::Random),
    ];

    const fn of(candidates: Candidates, victim: Victim) -> Self {
        Self { candidates, victim }
    }

    /// Loads the spaces with these names one after the other; tells for each whether its tag was still there.
    ///
    /// # Panics
    /// Without a slot.
    pub fn kept(self, slots: usize, names: &[u64]) -> Vec<bool> {
        let mut slots = vec![Slot::default(); slots];
        let mut random = fastrand::Rng::with_seed(0);
        let mut turn = 0;
        names
            .iter()
            .zip(1..)
            .map(|(&name, now)| {
                let candidates = self.candidates_of(&mut slots, name);
                let found = candidates.iter().position(|slot| slot.name == Some(name));
                let index = found.unwrap_or_else(|| {
                    let void = candidates.iter().position(|slot| slot.name.is_none());
                    void.unwrap_or_else(|| self.victim(candidates, &mut turn, &mut random))
                });
                candidates[index] = Slot {
                    name: Some(name),
                    used: now,
                };
                found.is_some()
            })
            .collect()
    }

    fn candidates_of(self, slots: &mut [Slot], name: u64) -> &mut [Slot] {
        if self.candidates == Candidates::All || slots.len() < WAYS {
            return slots;
        }
        let line = (name % (slots.len() / WAYS) as u64) as usize;
        &mut slots[line * WAYS..][..WAYS]
    }

    fn victim(self, slots: &[Slot], turn: &mut usize, random: &mut fastrand::Rng) -> usize {
        match self.victim {
            Victim::RoundRobin => {
                let index = *turn % slots.len();
                *turn += 1;
                index
            }
            Victim::LeastRecent => {
                let oldest = slots.iter().enumerate().min_by_key(|(_, slot)| slot.used);
                oldest.expect("there are slots").0
            }
            Victim::Random => random.usize(..slots.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(candidates: Candidates, victim: Victim, names: &[u64]) -> usize {
        let kept = Eviction { candidates, victim }.kept(8, names);
        kept.into_iter().filter(|kept| *kept).count()
    }

    #[test]
    fn a_space_is_found_where_it_was_left_until_it_is_evicted() {
        use Candidates::{All, Line};
        use Victim::{LeastRecent, RoundRobin};
        // Even names share a line of four.
        assert_eq!(kept(Line, RoundRobin, &[2, 4, 6, 8, 2, 4, 6, 8]), 4);
        assert_eq!(kept(Line, RoundRobin, &[2, 4, 6, 8, 10, 2]), 0);
        assert_eq!(kept(All, RoundRobin, &[2, 4, 6, 8, 10, 2]), 1);
        // The first is used again before a fifth comes: only the least recent one is spared then.
        assert_eq!(kept(Line, LeastRecent, &[2, 4, 6, 8, 2, 10, 2]), 2);
        assert_eq!(kept(Line, RoundRobin, &[2, 4, 6, 8, 2, 10, 2]), 1);
    }
}
