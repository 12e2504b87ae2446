//! What a violation is reported with.

use std::fmt;
use std::time::Duration;

use super::finding::Finding;
use super::mark;
use super::private::Damage;
use super::rule::{Effect, Seen, Verdict, Window};
use super::state::State;
use crate::child::End;

/// An access that must not have happened, or its consequence.
#[derive(Debug, Clone)]
pub struct Violation {
    /// Time since the start of the run.
    pub at: Duration,
    /// The policy in use, as a number.
    pub policy: usize,
    /// The worker that saw it, and the CPU it was on.
    pub worker: usize,
    /// See `worker`.
    pub cpu: usize,
    /// What was seen.
    pub evidence: Evidence,
}

/// What was seen.
#[derive(Debug, Clone)]
pub enum Evidence {
    /// A judged access to a slot.
    Access {
        /// The slot's number.
        slot: usize,
        /// The page in it.
        page: usize,
        /// What the access proves.
        verdict: Verdict,
        /// When it happened, and what it did.
        seen: Seen,
        /// The slot's last steps.
        history: Vec<State>,
    },
    /// A word of a slot that only its holder writes.
    Tail {
        /// The slot's number.
        slot: usize,
        /// The page in it.
        page: usize,
        /// What the last word must be; the one before must be zero.
        expected: u64,
        /// The last two words.
        seen: (u64, u64),
    },
    /// A word of the worker's own pages.
    Private(Damage),
    /// What a server with a window answered.
    Lent {
        /// The pages that it found right, or one less than the negative number of one that was not.
        answer: i64,
        /// All of them.
        expected: i64,
    },
    /// A page that came back from a server.
    LentBack {
        /// Its number in the buffer.
        page: usize,
        /// What its first word must be.
        expected: u64,
        /// What it is.
        seen: u64,
    },
    /// What a forked child saw.
    Child(Finding),
    /// How a forked child ended, if not as it should.
    ChildEnd(End),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (worker, cpu, evidence) = (self.worker, self.cpu, &self.evidence);
        let seconds = self.at.as_secs_f64();
        write!(
            f,
            "at {seconds:.3} s, worker {worker} on CPU {cpu}: {evidence}"
        )
    }
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Access {
                slot,
                page,
                verdict,
                seen,
                history,
            } => {
                write!(f, "{verdict:?}: slot {slot} page {page}: ")?;
                show_access(f, seen)?;
                write!(f, "; last steps:")?;
                history.iter().try_for_each(|state| write!(f, " {state}"))
            }
            Self::Tail {
                slot,
                page,
                expected,
                seen,
            } => {
                let [first, last, expected] = [seen.0, seen.1, *expected].map(mark::describe);
                write!(
                    f,
                    "Foreign: slot {slot} page {page} ends with [{first}] and [{last}]; \
                     expected [zero] and [{expected}]"
                )
            }
            Self::Private(damage) => write!(f, "Foreign: own {}", Shown(damage)),
            Self::Lent { answer, expected } => write!(
                f,
                "Stale: a server answers {answer} where {expected} pages were lent: the page before {} is not the caller's",
                -answer
            ),
            Self::LentBack {
                page,
                expected,
                seen,
            } => write!(
                f,
                "Foreign: lent page {page} came back with {seen:#x}; expected {expected:#x}"
            ),
            Self::Child(Finding::Slot { slot, page, seen }) => {
                write!(f, "in a forked child: slot {slot} page {page}: ")?;
                show_access(f, seen)
            }
            Self::Child(Finding::Private(damage)) => {
                write!(f, "in a forked child: own {}", Shown(damage))
            }
            Self::Child(Finding::Own {
                slot,
                page,
                expected,
                seen,
            }) => {
                let expected = mark::describe(*expected);
                let seen = seen.map_or("no access".to_owned(), mark::describe);
                write!(
                    f,
                    "in a forked child: slot {slot} page {page} holds [{seen}]; it wrote [{expected}]"
                )
            }
            Self::ChildEnd(end) => write!(f, "a forked child ended as {end:?}"),
        }
    }
}

fn show_access(f: &mut fmt::Formatter<'_>, (window, effect): &Seen) -> fmt::Result {
    match effect {
        Effect::Loaded { content, scribble } => {
            let (content, scribble) = (mark::describe(*content), mark::describe(*scribble));
            write!(f, "loaded [{content}] and [{scribble}]")?;
        }
        Effect::LoadFault => write!(f, "a load faulted")?,
        Effect::StoreFault => write!(f, "a store faulted")?,
        Effect::Stored => write!(f, "a store went through")?,
    }
    let Window {
        before,
        floor,
        after,
    } = window;
    write!(
        f,
        "; expected what {before} to {after} allow, content from {floor} on"
    )
}

/// A damage in words.
struct Shown<'a>(&'a Damage);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Damage { page, word, .. } = self.0;
        let [seen, expected] = [self.0.seen, self.0.expected].map(mark::describe);
        write!(
            f,
            "page {page} word {word} holds [{seen}]; expected [{expected}]"
        )
    }
}
