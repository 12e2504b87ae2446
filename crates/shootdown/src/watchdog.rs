//! The watchdog: which CPU is waited for, for what, and what that CPU is doing instead.
//!
//! A CPU that keeps interrupts off for ever, or a called function that does not return, makes its initiators spin
//! without a word. Waiters therefore look at the clock now and then. A report never ends a wait: the target may still
//! use what the caller lent it (I11). With each report all targets that have not answered are interrupted once more, in case it was lost.
//!
//! What nobody waits for in the engine is looked after by the timer's ticks ([`Watcher::look`](crate::watch::Watcher::look)).

use core::fmt;
use core::marker::PhantomData;
// Reports take part in no protocol.
use core::sync::atomic::{AtomicU64, Ordering};

use crate::call::{Number, Request, Run, SLOTS};
use crate::cpu::CpuId;
use crate::platform::Platform;
use crate::sync::OwnWord;

/// After how long a wait is reported unless the host [says otherwise](crate::watch::Watcher::set_stall_ns): ten seconds.
pub const DEFAULT_STALL_NS: u64 = 10_000_000_000;

/// What a CPU does for the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Activity {
    /// Nothing: it runs the host's code, perhaps with interrupts off, or is halted.
    None,
    /// It drops translations.
    Flush,
    /// It runs a called function: the name of its type, which for a closure names the function that it was written
    /// in ([`type_name`](core::any::type_name)).
    Function(&'static str),
    /// It is inside [`GuestSpace::run`](crate::guest::GuestSpace::run): its guest has not exited, or has and interrupts are still off.
    Guest,
    /// It is in a section in which it [walks page tables](crate::user_memory::Walk), and answers no flush with freed tables.
    Walk,
}

/// Who has found a [`Stall`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FoundBy {
    /// One that waits for the request, or sends its interrupt again and again.
    Waiter,
    /// [`Watcher::look`](crate::watch::Watcher::look): nobody waits for the request in the engine. Its initiator has gone on, as after a post, or does not
    /// come back from [`Platform::send_ipi`] or [`on_stall`](crate::Platform::on_stall).
    Look,
    /// The CPU itself, inside a called function that [polls](crate::Shootdown::poll), or that a tick with [`Watcher::look`](crate::watch::Watcher::look) has interrupted. It may be that every CPU is inside
    /// one that waits for another, and none waits in the engine.
    Inside,
}

/// An [`Activity`] in one word, so that others may read it at any time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry(u64);

impl Entry {
    pub(crate) const NONE: Self = Self(0);
    pub(crate) const FLUSH: Self = Self(1);
    /// Posted call data, whose name nobody knows.
    pub(crate) const POSTED: Self = Self(2);
    /// A function that is [watched](ActivityLog::watches): which, another word says.
    const WATCHED: Self = Self(3);

    /// That of what a request asks for. Of a function it is the address of what runs it, which is none of these.
    #[inline]
    pub(crate) fn of(request: &Request) -> Self {
        match request.run {
            Some(run) => Self(run as usize as u64),
            None => Self::FLUSH,
        }
    }

    fn read(self) -> Activity {
        match self {
            Self::NONE => Activity::None,
            Self::FLUSH => Activity::Flush,
            Self::POSTED => Activity::Function("posted call data"),
            Self(address) => {
                let address = core::ptr::with_exposed_provenance::<()>(address as usize);
                // SAFETY: every other word but `WATCHED`, which is not read, was made by `of` from a `Run`, which is never null.
                let run = unsafe { core::mem::transmute::<*const (), Run>(address) };
                // SAFETY: without a payload it only returns the name.
                Activity::Function(unsafe { run(None, CpuId::new(0)) })
            }
        }
    }
}

/// A request that has not been served for longer than [`Watcher::set_stall_ns`](crate::watch::Watcher::set_stall_ns) allows, seen by one that waits
/// for it; or a function that runs for longer. Displays as one line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Stall {
    /// Whose request it is; of [`FoundBy::Inside`] the CPU itself.
    pub initiator: CpuId,
    /// The target that has not acknowledged; the lowest, if there are several. Of [`FoundBy::Inside`] the CPU itself.
    pub target: CpuId,
    /// How many other targets have not either.
    pub others: usize,
    /// What the target was asked for.
    pub wanted: Activity,
    /// What the target is doing now.
    pub doing: Activity,
    /// For how long this waiter has been waiting, in nanoseconds; of [`FoundBy::Look`], how long ago the request was found at the latest; of [`FoundBy::Inside`], how long ago
    /// the function had begun at the latest.
    pub waited_ns: u64,
    /// Who says so.
    pub found_by: FoundBy,
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (initiator, target) = (self.initiator, self.target);
        let waited_us = self.waited_ns / 1000;
        match self.found_by {
            FoundBy::Inside => {
                let name = match self.doing {
                    Activity::Function(name) => name,
                    _ => "a function",
                };
                return write!(
                    f,
                    "{target} has been inside {name} for {waited_us} us, and polls or takes interrupts: what it waits for does not come"
                );
            }
            FoundBy::Waiter => write!(f, "{initiator} has waited {waited_us} us for {target}")?,
            FoundBy::Look => write!(
                f,
                "{initiator} waits nowhere in the engine (it has gone on, or is inside send_ipi or on_stall), and has had no answer for {waited_us} us from {target}"
            )?,
        }
        if self.others > 0 {
            write!(f, " and {} more", self.others)?;
        }
        match self.wanted {
            Activity::None => f.write_str(", whose interrupt the platform refuses to send")?,
            Activity::Flush | Activity::Guest | Activity::Walk => f.write_str(" to flush")?,
            Activity::Function(name) => write!(f, " to run {name}")?,
        }
        // Polls serve flushes only.
        let off = match self.wanted {
            Activity::Function(_) => "interrupts off (polls run no functions)",
            _ => "interrupts off without polling",
        };
        f.write_str(", which ")?;
        match self.doing {
            Activity::None => write!(
                f,
                "runs nothing for the engine: {off}, halted, or an interrupt got lost"
            ),
            Activity::Guest => {
                f.write_str("is in guest mode, or has interrupts off behind the exit")
            }
            Activity::Walk => f.write_str("walks page tables without their lock"),
            Activity::Flush => f.write_str("is flushing"),
            Activity::Function(name) => write!(f, "is running {name}"),
        }
    }
}

/// What a CPU says about itself to those that wait for it. Nothing depends on it.
#[derive(Debug)]
pub(crate) struct ActivityLog<P> {
    doing: OwnWord,
    watched: OwnWord,
    wanted: [OwnWord; SLOTS],
    /// The number of the request in each slot of which a stall was reported last, by whoever reported it; and until when looks leave it at that.
    reported: [OwnWord; SLOTS],
    quiet_until_ns: [AtomicU64; SLOTS],
    platform: PhantomData<fn(P)>,
}

impl<P: Platform> ActivityLog<P> {
    pub(crate) const fn new() -> Self {
        Self {
            doing: OwnWord::new(),
            watched: OwnWord::new(),
            wanted: [const { OwnWord::new() }; SLOTS],
            reported: [const { OwnWord::new() }; SLOTS],
            quiet_until_ns: [const { AtomicU64::new(0) }; SLOTS],
            platform: PhantomData,
        }
    }

    /// A stall of request `number` in slot `index` is reported, and not again by looks until then. On any CPU.
    pub(crate) fn reports(&self, index: usize, number: Number, until_ns: u64) {
        self.reported[index].set(number.bits());
        self.quiet_until_ns[index].store(until_ns, Ordering::Relaxed);
    }

    /// The same for one that looks; false if another has reported it meanwhile. On any CPU: of several that look at once hardly ever more than one gets true, and a report too many does no harm.
    pub(crate) fn claims(&self, index: usize, number: Number, now_ns: u64, until_ns: u64) -> bool {
        let quiet = &self.quiet_until_ns[index];
        let seen_ns = quiet.load(Ordering::Relaxed);
        if self.reported[index].get() == number.bits() && now_ns < seen_ns {
            return false;
        }
        self.reported[index].set(number.bits());
        (quiet.compare_exchange(seen_ns, until_ns, Ordering::Relaxed, Ordering::Relaxed)).is_ok()
    }

    /// What the request in slot `index` asks for.
    #[inline]
    pub(crate) fn wants(&self, index: usize, wanted: Entry) {
        if P::CONFIG.has_watchdog {
            self.wanted[index].set(wanted.0);
        }
    }

    /// What the request in slot `index` asks for, for another CPU.
    pub(crate) fn wanted(&self, index: usize) -> Activity {
        Entry(self.wanted[index].get()).read()
    }

    /// What this CPU is doing, for another one.
    pub(crate) fn doing(&self) -> Activity {
        let doing = Entry(self.doing.get());
        match doing {
            Entry::WATCHED => Entry(self.watched.get()).read(),
            _ => doing.read(),
        }
    }

    /// The function that runs here is watched from now on; true if it was before. When it ends, [`begins`](Self::begins) takes that back.
    pub(crate) fn watches(&self) -> bool {
        let doing = Entry(self.doing.get());
        if doing != Entry::WATCHED {
            self.watched.set(doing.0);
            self.doing.set(Entry::WATCHED.0);
        }
        doing == Entry::WATCHED
    }

    /// Notes what this CPU is doing; returns what it was doing before.
    #[inline]
    pub(crate) fn begins(&self, entry: Entry) -> Entry {
        if !P::CONFIG.has_watchdog {
            return entry;
        }
        let before = Entry(self.doing.get());
        self.doing.set(entry.0);
        before
    }
}

/// One waiter's view of time.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// Turns of the wait so far.
    pub(crate) turns: u64,
    pub(crate) since_ns: Option<u64>,
    /// Reports so far; each waits twice as long as the one before.
    pub(crate) reports: u32,
}
