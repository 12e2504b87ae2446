//! What can be found broken, and the book of it.

use core::fmt;

use shootdown::CpuId;

use crate::operation::Operation;
use crate::sync::Tally;

/// One of the things that are checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Promise {
    /// A function runs as often as the call says on each CPU: once where it was named, else not, and never after the
    /// return.
    RunsOnce,
    /// It runs on the CPU that it is told.
    RightCpu,
    /// It sees what the initiator wrote before.
    WriteSeen,
    /// The initiator sees after the wait what the function wrote.
    ReplySeen,
    /// The returned set holds every target that was online all the time, and none that was not named, or was offline all the time.
    /// Of a call of any CPU it holds one, unless all were offline.
    TargetsNamed,
    /// Each posted function runs once on each CPU that the post returned, with its arguments whole.
    PostKept,
    /// No load finds an older version of a page than a finished flush allows.
    Fresh,
    /// No load finds a frame or goes through a table that was given back, nor anything but the own frame at an address that the CPU was given.
    NotReused,
    /// A ticket gives back exactly what the batch was given.
    FramesBack,
    /// Where a CPU has interrupts off and does nothing but flush and poll, no function runs.
    FlushesOnly,
    /// A kick is over when each target has passed through the engine.
    KickAnswered,
    /// Nothing is sent to a CPU that has gone offline; hosts that can look say so
    /// ([`Torture::host_found`](crate::Torture::host_found)).
    OfflineQuiet,
}

impl Promise {
    /// All of them.
    pub const ALL: &'static [Self] = &[
        Self::RunsOnce,
        Self::RightCpu,
        Self::WriteSeen,
        Self::ReplySeen,
        Self::TargetsNamed,
        Self::PostKept,
        Self::Fresh,
        Self::NotReused,
        Self::FramesBack,
        Self::FlushesOnly,
        Self::KickAnswered,
        Self::OfflineQuiet,
    ];

    /// Its name in tables and protocols.
    pub const fn name(self) -> &'static str {
        match self {
            Self::RunsOnce => "runs_once",
            Self::RightCpu => "right_cpu",
            Self::WriteSeen => "write_seen",
            Self::ReplySeen => "reply_seen",
            Self::TargetsNamed => "targets_named",
            Self::PostKept => "post_kept",
            Self::Fresh => "fresh",
            Self::NotReused => "not_reused",
            Self::FramesBack => "frames_back",
            Self::FlushesOnly => "flushes_only",
            Self::KickAnswered => "kick_answered",
            Self::OfflineQuiet => "offline_quiet",
        }
    }
}

/// A broken promise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Violation {
    /// Which.
    pub promise: Promise,
    /// In which operation; none for what is only seen at the end.
    pub operation: Option<Operation>,
    /// The CPU on which it went wrong.
    pub cpu: CpuId,
    /// What should have been: a count, a sequence number, or the word of a page. That is, from its highest bits, 0x5d, the region, the page (8 bits
    /// each) and the version; 0xdead and a frame's number is what a frame holds that was given back.
    pub expected: u64,
    /// What was.
    pub found: u64,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            promise,
            operation,
            cpu,
            expected,
            found,
        } = self;
        let operation = operation.map_or("the end", Operation::name);
        write!(
            f,
            "{} broken in {operation} on {cpu}: expected {expected:#x}, found {found:#x}",
            promise.name()
        )
    }
}

/// How often each promise was broken, and the first time.
#[derive(Debug)]
pub(crate) struct Ledger {
    counts: [Tally; Promise::ALL.len()],
    /// 0: none; 1: being written; 2: written.
    state: Tally,
    /// Promise, operation plus one, and CPU, a field each of 8, 8 and 32 bits.
    what: Tally,
    expected: Tally,
    found: Tally,
}

impl Ledger {
    pub(crate) const fn new() -> Self {
        Self {
            counts: [const { Tally::new(0) }; Promise::ALL.len()],
            state: Tally::new(0),
            what: Tally::new(0),
            expected: Tally::new(0),
            found: Tally::new(0),
        }
    }

    pub(crate) fn enter(&self, violation: Violation) {
        self.counts[violation.promise as usize].add(1);
        if self.state.take(1) {
            let operation = violation.operation.map_or(0, |it| it as u64 + 1);
            let cpu = u64::from(violation.cpu.as_u32());
            self.what
                .set(violation.promise as u64 | operation << 8 | cpu << 16);
            self.expected.set(violation.expected);
            self.found.set(violation.found);
            self.state.publish(2);
        }
    }

    pub(crate) fn counts(&self) -> [u64; Promise::ALL.len()] {
        core::array::from_fn(|index| self.counts[index].get())
    }

    pub(crate) fn first(&self) -> Option<Violation> {
        if self.state.get_published() != 2 {
            return None;
        }
        let what = self.what.get();
        let operation = (what >> 8 & 0xff) as usize;
        Some(Violation {
            promise: Promise::ALL[(what & 0xff) as usize],
            operation: operation.checked_sub(1).map(|it| Operation::ALL[it]),
            cpu: CpuId::new((what >> 16) as u32),
            expected: self.expected.get(),
            found: self.found.get(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_violation_is_kept_and_all_are_counted() {
        let ledger = Ledger::new();
        assert_eq!(ledger.first(), None);
        let first = Violation {
            promise: Promise::Fresh,
            operation: Some(Operation::SetPolicy),
            cpu: CpuId::new(4000),
            expected: 7,
            found: 6,
        };
        ledger.enter(first);
        ledger.enter(Violation {
            operation: None,
            ..first
        });
        assert_eq!(ledger.first(), Some(first));
        assert_eq!(ledger.counts().iter().sum::<u64>(), 2);
    }

    #[test]
    fn promises_are_numbered_as_listed() {
        for (index, promise) in Promise::ALL.iter().enumerate() {
            assert_eq!(*promise as usize, index);
        }
    }
}
