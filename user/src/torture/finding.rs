//! What a forked child found wrong, told to its parent through memory that both have.

use std::io;
use std::sync::atomic::Ordering::Relaxed;

use super::private::Damage;
use super::rule::{Effect, Seen, Window};
use super::state::State;
use crate::region::Region;

/// Words of a letter.
const WORDS: usize = 8;
/// The first word of an empty letter.
const NOTHING: u64 = 0;

/// The first thing that a child found wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finding {
    /// A slot is not as it was at the fork.
    Slot {
        /// The slot's number.
        slot: usize,
        /// The page in it.
        page: usize,
        /// The slot's state at the fork, and what the access did.
        seen: Seen,
    },
    /// One of the worker's own pages is not as it was at the fork.
    Private(Damage),
    /// What the child wrote to a slot is not there.
    Own {
        /// The slot's number.
        slot: usize,
        /// The page in it.
        page: usize,
        /// What was written.
        expected: u64,
        /// What is there, or `None` where the access faulted.
        seen: Option<u64>,
    },
}

/// Room for one finding.
#[derive(Debug)]
pub struct Letter(Region);

impl Letter {
    /// An empty one.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Region::shared(1)?))
    }

    /// Makes it empty again.
    pub fn clear(&self) {
        self.write([NOTHING; WORDS]);
    }

    /// Writes a finding; for the child. Allocates nothing.
    pub fn put(&self, finding: Finding) {
        self.write(encode(finding));
    }

    /// What the child wrote.
    pub fn read(&self) -> Option<Finding> {
        decode(std::array::from_fn(|at| self.0.word(0, at).load(Relaxed)))
    }

    fn write(&self, words: [u64; WORDS]) {
        for (at, word) in words.into_iter().enumerate() {
            self.0.word(0, at).store(word, Relaxed);
        }
    }
}

fn encode(finding: Finding) -> [u64; WORDS] {
    match finding {
        Finding::Slot { slot, page, seen } => {
            let (window, effect) = seen;
            let (kind, first, second) = match effect {
                Effect::LoadFault => (1, 0, 0),
                Effect::Loaded { content, scribble } => (2, content, scribble),
                Effect::StoreFault => (3, 0, 0),
                Effect::Stored => (4, 0, 0),
            };
            let (slot, page, floor) = (slot as u64, page as u64, window.floor.into());
            let [before, after] = [window.before, window.after].map(State::to_bits);
            [kind, slot, page, before, floor, after, first, second]
        }
        Finding::Private(Damage {
            page,
            word,
            expected,
            seen,
        }) => [5, page as u64, word as u64, expected, seen, 0, 0, 0],
        Finding::Own {
            slot,
            page,
            expected,
            seen,
        } => {
            let (slot, page, faulted) = (slot as u64, page as u64, u64::from(seen.is_none()));
            [6, slot, page, expected, seen.unwrap_or(0), faulted, 0, 0]
        }
    }
}

fn decode(words: [u64; WORDS]) -> Option<Finding> {
    let [kind, a, b, c, d, e, f, g] = words;
    let effect = match kind {
        1 => Effect::LoadFault,
        2 => Effect::loaded(f, g),
        3 => Effect::StoreFault,
        4 => Effect::Stored,
        5 => {
            return Some(Finding::Private(Damage {
                page: a as usize,
                word: b as usize,
                expected: c,
                seen: d,
            }));
        }
        6 => {
            return Some(Finding::Own {
                slot: a as usize,
                page: b as usize,
                expected: c,
                seen: (e == 0).then_some(d),
            });
        }
        _ => return None,
    };
    let window = Window {
        before: State::from_bits(c),
        floor: d as u32,
        after: State::from_bits(e),
    };
    Some(Finding::Slot {
        slot: a as usize,
        page: b as usize,
        seen: (window, effect),
    })
}

#[cfg(test)]
mod tests {
    use super::super::state::Condition;
    use super::*;

    #[test]
    fn findings_survive_their_letter() {
        let letter = Letter::new().unwrap();
        assert_eq!(letter.read(), None);
        let state = State::ABSENT.begin(Condition::Zero);
        let window = Window {
            before: state,
            floor: 7,
            after: state.finish(),
        };
        let slot = |effect| Finding::Slot {
            slot: 3,
            page: 9,
            seen: (window, effect),
        };
        let damage = Damage {
            page: 1,
            word: 2,
            expected: 3,
            seen: 4,
        };
        let own = |seen| Finding::Own {
            slot: 1,
            page: 2,
            expected: 3,
            seen,
        };
        for finding in [
            slot(Effect::LoadFault),
            slot(Effect::StoreFault),
            slot(Effect::Stored),
            slot(Effect::loaded(5, 6)),
            Finding::Private(damage),
            own(None),
            own(Some(0)),
        ] {
            letter.put(finding);
            assert_eq!(letter.read(), Some(finding));
        }
        letter.clear();
        assert_eq!(letter.read(), None);
    }
}
