//! [`Stalls`]: CPUs that stand still for long, as under a hypervisor that gives their cores to others. What others do meanwhile takes
//! many events, all of which fit between two instructions of the one that stands still.

/// A CPU stands still for so many questions at least, of which an event has three or four, or for twice, four times .. as many.
const SHORTEST: u32 = 40;
const DOUBLINGS: u32 = 7;
/// One in so many questions is followed by a stall, in different runs.
const RARITIES: [u32; 3] = [60, 200, 600];
/// The same in interrupt handlers, where it happens there only.
const RARITIES_IN_HANDLERS: [u32; 2] = [15, 60];
/// One in so many words is where CPUs stall, in runs in which they do so at certain words.
const WORDS: usize = 40;
/// One in so many accesses to such a word is late.
const LATE_ACCESSES: u32 = 4;

/// What the running CPU is about to do.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Next {
    /// The number of the word that it accesses.
    pub(super) word: Option<usize>,
    pub(super) in_handler: bool,
}

/// What stalls a CPU.
#[derive(Debug)]
enum Cause {
    /// Chance: one in so many questions.
    Chance(u32),
    /// The same in interrupt handlers only, where responders meet what initiators write.
    Handler(u32),
    /// It is about to access a word whose number leaves this remainder: if the word is what a mistake is about, it is made often.
    Word(usize),
}

/// Who stands still, and how often that happens.
#[derive(Debug)]
pub(super) struct Stalls {
    cause: Cause,
    /// Until which question each CPU does.
    until: Vec<u32>,
}

impl Stalls {
    /// In most runs.
    pub(super) fn draw(random: &mut fastrand::Rng, cpus: usize) -> Option<Self> {
        let cause = match random.u8(..5) {
            0 => return None,
            1 => Cause::Chance(RARITIES[random.usize(..RARITIES.len())]),
            2 => Cause::Word(random.usize(..WORDS)),
            _ => Cause::Handler(RARITIES_IN_HANDLERS[random.usize(..RARITIES_IN_HANDLERS.len())]),
        };
        Some(Self {
            cause,
            until: vec![0; cpus],
        })
    }

    /// At question `asked`: which of the CPUs in `able` goes on, if `wanted` would without stalls. The first of them is about to
    /// do `next`.
    pub(super) fn choose(
        &mut self,
        random: &mut fastrand::Rng,
        able: &[usize],
        (asked, wanted): (u32, usize),
        next: Next,
    ) -> usize {
        if self.begins(random, next) {
            self.until[able[0]] = asked + (SHORTEST << random.u32(..DOUBLINGS));
        }
        let goes_on = |index: &usize| self.until[able[*index]] <= asked;
        if goes_on(&wanted) {
            return wanted;
        }
        let others: Vec<usize> = (0..able.len()).filter(goes_on).collect();
        match others.len() {
            0 => wanted,
            count => others[random.usize(..count)],
        }
    }

    fn begins(&self, random: &mut fastrand::Rng, next: Next) -> bool {
        match self.cause {
            Cause::Chance(rarity) => random.u32(..rarity) == 0,
            Cause::Handler(rarity) => next.in_handler && random.u32(..rarity) == 0,
            Cause::Word(wanted) => {
                let is_there = next.word.is_some_and(|word| word % WORDS == wanted);
                is_there && random.u32(..LATE_ACCESSES) == 0
            }
        }
    }
}
