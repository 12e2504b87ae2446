//! Posted functions: nobody waits for them, so books are kept and closed at the end.

use shootdown::CpuId;

use crate::rng::mix;
use crate::sync::Tally;

/// The posts to one CPU. Count and sum of tokens must agree at the end: a lost post and a doubled one make up for each other
/// in the count, but not in the sum.
#[derive(Debug)]
pub(crate) struct Mail {
    sent: Tally,
    sent_tokens: Tally,
    got: Tally,
    got_tokens: Tally,
}

impl Mail {
    pub(crate) const fn new() -> Self {
        Self {
            sent: Tally::new(0),
            sent_tokens: Tally::new(0),
            got: Tally::new(0),
            got_tokens: Tally::new(0),
        }
    }

    pub(crate) fn send(&self, token: u64) {
        self.sent.add(1);
        self.sent_tokens.add(token);
    }

    pub(crate) fn receive(&self, token: u64) {
        self.got.add(1);
        self.got_tokens.add(token);
    }

    /// The number of posts sent and received, when they do not agree.
    pub(crate) fn gap(&self) -> Option<(u64, u64)> {
        let counts = (self.sent.get(), self.got.get());
        let agree = counts.0 == counts.1 && self.sent_tokens.get() == self.got_tokens.get();
        (!agree).then_some(counts)
    }
}

/// What a post carries, so that a garbled argument is noticed: a token that follows from the rest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Letter {
    worker: u32,
    /// The CPU that sent it, if its writes before are looked for.
    kind: LetterKind,
    pub(crate) sequence: u64,
    token: u64,
}

/// Who posted it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LetterKind {
    /// A worker, which wrote the sequence number into its record before.
    Worker,
    /// A called function.
    Function,
}

impl Letter {
    pub(crate) fn new(worker: usize, kind: LetterKind, sequence: u64) -> Self {
        Self {
            worker: worker as u32,
            kind,
            sequence,
            token: Self::token_of(worker as u32, kind, sequence),
        }
    }

    fn token_of(worker: u32, kind: LetterKind, sequence: u64) -> u64 {
        mix(mix(sequence) ^ u64::from(worker) << 8 ^ kind as u64)
    }

    pub(crate) fn token(&self) -> u64 {
        self.token
    }

    pub(crate) fn kind(&self) -> LetterKind {
        self.kind
    }

    /// The worker's index, if the letter is whole.
    pub(crate) fn worker(&self) -> Option<usize> {
        (self.token == Self::token_of(self.worker, self.kind, self.sequence))
            .then_some(self.worker as usize)
    }
}

/// For reports: CPU `index`.
pub(crate) fn cpu(index: usize) -> CpuId {
    CpuId::new(index as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_and_a_double_do_not_cancel() {
        let mail = Mail::new();
        mail.send(3);
        mail.send(4);
        mail.receive(4);
        mail.receive(4);
        assert_eq!(mail.gap(), Some((2, 2)));
    }

    #[test]
    fn a_garbled_letter_is_known_by_its_token() {
        let letter = Letter::new(5, LetterKind::Worker, 9);
        assert_eq!(letter.worker(), Some(5));
        let garbled = Letter {
            sequence: 8,
            ..letter
        };
        assert_eq!(garbled.worker(), None);
    }
}
