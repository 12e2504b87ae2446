//! Signal numbers and sets of them.

use core::fmt;

use linux_raw_sys::general as linux;

/// A signal number, 1 to 64.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Signal(u8);

/// A set of signals, as the ABI has it: bit 0 is signal 1.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SignalSet(u64);

impl Signal {
    /// Number of signals.
    pub const COUNT: usize = 64;

    pub const ILL: Self = Self(linux::SIGILL as u8);
    pub const TRAP: Self = Self(linux::SIGTRAP as u8);
    pub const BUS: Self = Self(linux::SIGBUS as u8);
    pub const FPE: Self = Self(linux::SIGFPE as u8);
    pub const KILL: Self = Self(linux::SIGKILL as u8);
    pub const SEGV: Self = Self(linux::SIGSEGV as u8);
    pub const PIPE: Self = Self(linux::SIGPIPE as u8);
    pub const CHLD: Self = Self(linux::SIGCHLD as u8);
    pub const STOP: Self = Self(linux::SIGSTOP as u8);
    pub const CONT: Self = Self(linux::SIGCONT as u8);
    pub const ALRM: Self = Self(linux::SIGALRM as u8);
    pub const VTALRM: Self = Self(linux::SIGVTALRM as u8);
    pub const PROF: Self = Self(linux::SIGPROF as u8);

    /// The signal with this number, if there is one.
    pub fn new(number: u32) -> Option<Self> {
        let all = 1..=Self::COUNT as u32;
        all.contains(&number).then_some(Self(number as u8))
    }

    /// Its number.
    pub const fn number(self) -> u32 {
        self.0 as u32
    }

    /// Its place in a table of all signals.
    pub const fn index(self) -> usize {
        self.0 as usize - 1
    }
}

/// The names of the first ones, in order, without `SIG`.
const NAMES: &str = "HUP INT QUIT ILL TRAP ABRT BUS FPE KILL USR1 SEGV USR2 PIPE ALRM TERM STKFLT CHLD CONT STOP \
                     TSTP TTIN TTOU URG XCPU XFSZ VTALRM PROF WINCH IO PWR SYS";

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.split(' ').nth(self.index()) {
            Some(name) => write!(f, "SIG{name}"),
            None => write!(f, "signal {}", self.0),
        }
    }
}

impl SignalSet {
    /// No signal.
    pub const EMPTY: Self = Self(0);

    /// The two that cannot be blocked, caught or ignored.
    const UNBLOCKABLE: Self = Self::only(Signal::KILL).union(Self::only(Signal::STOP));

    /// Those that stop a process unless it does otherwise.
    pub const STOPPING: Self = Self(
        1 << (linux::SIGSTOP - 1)
            | 1 << (linux::SIGTSTP - 1)
            | 1 << (linux::SIGTTIN - 1)
            | 1 << (linux::SIGTTOU - 1),
    );

    /// The set as the ABI passes it.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The set as the ABI passes it.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// This signal alone.
    pub const fn only(signal: Signal) -> Self {
        Self(1 << signal.index())
    }

    /// In either set.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// In this set but not in the other.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Without those that cannot be blocked.
    #[must_use]
    pub const fn blockable(self) -> Self {
        self.minus(Self::UNBLOCKABLE)
    }

    /// Is it in the set?
    pub const fn contains(self, signal: Signal) -> bool {
        self.0 & Self::only(signal).0 != 0
    }

    /// Is no signal in it?
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Adds one.
    pub fn insert(&mut self, signal: Signal) {
        self.0 |= Self::only(signal).0;
    }

    /// Takes one out.
    pub fn remove(&mut self, signal: Signal) {
        self.0 &= !Self::only(signal).0;
    }

    /// The lowest-numbered member.
    pub fn first(self) -> Option<Signal> {
        (self.0 != 0).then(|| Signal(self.0.trailing_zeros() as u8 + 1))
    }
}
