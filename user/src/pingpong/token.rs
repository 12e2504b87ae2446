//! What the processes hand round: what to do in a turn, and what they have found so far.

/// What each process does in its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// Touch the pages: this is what is measured.
    Play,
    /// Look at every page, then do one chore.
    Check,
    /// Hand the token on and end.
    Leave,
}

/// A token, small enough for the counter of an eventfd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token {
    /// What to do.
    pub task: Task,
    /// How many reads saw what they must not, in the turns since the first process.
    pub found: u64,
}

/// Set where a process of the ring has died. Counters add up: the rest of the bits says nothing then.
const LOST: u64 = 1 << 62;
/// Bits below the count.
const TASK_BITS: u32 = 2;
/// More than this is not counted, lest the count reach the mark.
const MOST_FOUND: u64 = 1 << 40;

impl Token {
    /// What is written to say that a process has died.
    pub const LOST_BITS: u64 = LOST;

    /// A fresh token.
    pub fn new(task: Task) -> Self {
        Self { task, found: 0 }
    }

    /// The token with `found` more.
    pub fn plus(self, found: u64) -> Self {
        let found = self.found.saturating_add(found).min(MOST_FOUND);
        Self { found, ..self }
    }

    /// As a number that is not 0.
    pub fn to_bits(self) -> u64 {
        let task = match self.task {
            Task::Play => 1,
            Task::Check => 2,
            Task::Leave => 3,
        };
        task | self.found << TASK_BITS
    }

    /// From what an eventfd gave; `None` when a process of the ring has died.
    pub fn from_bits(bits: u64) -> Option<Self> {
        let task = match bits & ((1 << TASK_BITS) - 1) {
            _ if bits >= LOST => return None,
            1 => Task::Play,
            2 => Task::Check,
            3 => Task::Leave,
            _ => return None,
        };
        Some(Self {
            task,
            found: bits >> TASK_BITS,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_survive_the_counter() {
        for task in [Task::Play, Task::Check, Task::Leave] {
            for found in [0, 1, MOST_FOUND] {
                let token = Token::new(task).plus(found);
                assert_eq!(Token::from_bits(token.to_bits()), Some(token));
                assert_eq!(Token::from_bits(token.to_bits() + Token::LOST_BITS), None);
            }
        }
        assert_eq!(Token::from_bits(0), None);
    }

    #[test]
    fn counts_add_up_and_never_reach_the_mark() {
        let token = Token::new(Task::Play).plus(3).plus(4);
        assert_eq!(token.found, 7);
        let full = token.plus(u64::MAX).plus(u64::MAX);
        assert!(full.to_bits() < Token::LOST_BITS && full.found > 7);
    }
}
