//! The watchdog: which CPU is waited for, for what, and what that CPU is doing instead.
//!
//! A CPU that keeps interrupts off for ever, or a called function that does not return, makes its initiators spin
//! without a word. Waiters therefore look at the clock now and then. A report never ends a wait: the target may still
//! use what the caller lent it (I11). The interrupt is sent once more, in case it was lost.

use core::fmt;

use crate::call::{RequestRef, Run, SLOTS};
use crate::capacity::{Capacity, Cpus};
use crate::cpu::CpuId;
use crate::engine::Shootdown;
use crate::platform::Platform;
use crate::sync::{Ordering, OwnWord};

/// After how long a wait is reported unless the host [says otherwise](Shootdown::set_stall_ns): ten seconds.
pub const DEFAULT_STALL_NS: u64 = 10_000_000_000;

/// Turns of a wait loop between two looks at the clock.
const LOOK_TURNS: u32 = 256;

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
}

/// An [`Activity`] in one word, so that others may read it at any time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry(u64);

impl Entry {
    const NONE: Self = Self(0);
    pub(crate) const FLUSH: Self = Self(1);
    /// Posted call data, whose name nobody knows.
    pub(crate) const POSTED: Self = Self(2);

    /// That of a called function: the address of what runs it, which is none of these.
    #[inline]
    pub(crate) fn function(run: Run) -> Self {
        Self(run as usize as u64)
    }

    fn read(self) -> Activity {
        match self {
            Self::NONE => Activity::None,
            Self::FLUSH => Activity::Flush,
            Self::POSTED => Activity::Function("posted call data"),
            Self(address) => {
                let address = core::ptr::with_exposed_provenance::<()>(address as usize);
                // SAFETY: every other word was made by `function` from a `Run`, which is never null.
                let run = unsafe { core::mem::transmute::<*const (), Run>(address) };
                // SAFETY: without a payload it only returns the name.
                Activity::Function(unsafe { run(None, CpuId::new(0)) })
            }
        }
    }
}

/// A request that has not been served for longer than [`Shootdown::set_stall_ns`] allows, seen by one that waits
/// for it. Displays as one line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Stall {
    /// Whose request it is.
    pub initiator: CpuId,
    /// The target that has not acknowledged; the lowest, if there are several.
    pub target: CpuId,
    /// How many other targets have not either.
    pub others: usize,
    /// What the target was asked for.
    pub wanted: Activity,
    /// What the target is doing now.
    pub doing: Activity,
    /// For how long this waiter has been waiting, in nanoseconds.
    pub waited_ns: u64,
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            initiator,
            target,
            others,
            waited_ns,
            ..
        } = self;
        write!(
            f,
            "{initiator} has waited {} us for {target}",
            waited_ns / 1000
        )?;
        if *others > 0 {
            write!(f, " and {others} more")?;
        }
        match self.wanted {
            Activity::None => f.write_str(", whose interrupt the platform refuses to send")?,
            Activity::Flush => f.write_str(" to flush")?,
            Activity::Function(name) => write!(f, " to run {name}")?,
        }
        match self.doing {
            Activity::None => {
                f.write_str(", which runs nothing for the engine: interrupts off, or halted")
            }
            Activity::Flush => f.write_str(", which is flushing"),
            Activity::Function(name) => write!(f, ", which is running {name}"),
        }
    }
}

/// What a CPU says about itself to those that wait for it. Nothing depends on it.
#[derive(Debug)]
pub(crate) struct ActivityLog {
    doing: OwnWord,
    wanted: [OwnWord; SLOTS],
}

impl ActivityLog {
    pub(crate) const fn new() -> Self {
        Self {
            doing: OwnWord::new(),
            wanted: [const { OwnWord::new() }; SLOTS],
        }
    }

    /// What the request in slot `index` asks for.
    #[inline]
    pub(crate) fn wants(&self, index: usize, wanted: Entry) {
        self.wanted[index].set(wanted.0);
    }

    /// Notes what this CPU is doing; returns what it was doing before.
    #[inline]
    pub(crate) fn begins(&self, entry: Entry) -> Entry {
        let before = Entry(self.doing.get());
        self.doing.set(entry.0);
        before
    }
}

/// One waiter's view of time.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    turns: u32,
    since_ns: Option<u64>,
    /// Reports so far; each waits twice as long as the one before.
    reports: u32,
}

impl<P: Platform, const N: usize> Shootdown<P, N>
where
    Cpus<N>: Capacity,
{
    /// Has waits that take longer than `stall_ns` nanoseconds reported to
    /// [`Platform::on_stall`], again after twice, four times ... as long; at the start it is [`DEFAULT_STALL_NS`], and 0 is
    /// for none. Any context; does not block.
    pub fn set_stall_ns(&self, stall_ns: u64) {
        let word = match stall_ns {
            0 => u64::MAX,
            _ => stall_ns,
        };
        self.stall_ns.0.store(word, Ordering::Relaxed);
    }

    /// One turn of a wait loop. `stall` describes what has been waited for, for so many ns, if it is still to come.
    #[inline]
    pub(crate) fn watch(&self, watch: &mut Watch, stall: impl FnOnce(u64) -> Option<Stall>) {
        watch.turns = watch.turns.wrapping_add(1);
        if watch.turns.is_multiple_of(LOOK_TURNS)
            && let Some(waited_ns) = self.look_at_the_clock(watch)
            && let Some(stall) = stall(waited_ns)
        {
            self.report(watch, &stall);
        }
    }

    /// How long has been waited, if that is long enough for a report.
    #[cold]
    fn look_at_the_clock(&self, watch: &mut Watch) -> Option<u64> {
        let stall_ns = match self.stall_ns.0.load(Ordering::Relaxed) {
            0 => DEFAULT_STALL_NS,
            u64::MAX => return None,
            stall_ns => stall_ns,
        };
        let now_ns = self.platform.now_ns();
        let waited_ns = now_ns.saturating_sub(*watch.since_ns.get_or_insert(now_ns));
        (waited_ns >= stall_ns.saturating_mul(1 << watch.reports.min(32))).then_some(waited_ns)
    }

    #[cold]
    fn report(&self, watch: &mut Watch, stall: &Stall) {
        if watch.reports == 0 {
            self.interrupt_again(stall.target);
        }
        watch.reports += 1;
        self.platform.on_stall(stall);
    }

    /// The platform refuses to interrupt `target`.
    pub(crate) fn refusal(&self, target: CpuId, waited_ns: u64) -> Stall {
        Stall {
            initiator: self.platform.current_cpu(),
            target,
            others: 0,
            wanted: Activity::None,
            doing: Activity::None,
            waited_ns,
        }
    }

    pub(crate) fn stall_of(&self, request: RequestRef, waited_ns: u64) -> Option<Stall> {
        let initiator = self.state(request.initiator);
        let (mut first, mut count) = (None, 0);
        for group in self.groups() {
            let pending = self.pending_of(request, group);
            count += pending.count_ones() as usize;
            if pending != 0 && first.is_none() {
                first = Some(<Cpus<N> as Capacity>::cpu(group, pending.trailing_zeros()));
            }
        }
        if self.is_done(request) {
            return None;
        }
        let target = first?;
        Some(Stall {
            initiator: request.initiator,
            target,
            others: count - 1,
            wanted: Entry(initiator.activity.wanted[request.slot].get()).read(),
            doing: Entry(self.state(target).activity.doing.get()).read(),
            waited_ns,
        })
    }

    /// The targets of a group that have not acknowledged, as seen now.
    fn pending_of(&self, request: RequestRef, group: usize) -> u64 {
        let slot = &self.state(request.initiator).slots[request.slot];
        let pending = slot.pending(group);
        match slot.is_in_ring_of(group) {
            // The pending set is told only when a whole leaf has.
            true => {
                let place = (request.initiator, request.slot);
                pending & self.rings()[group].pending(place, request.number)
            }
            false => pending,
        }
    }

    /// A second interrupt is harmless, a lost first one is not.
    fn interrupt_again(&self, target: CpuId) {
        let irq = self.irq_guard();
        let me = self.platform.current_cpu();
        if target != me && self.platform.send_ipi(target).is_ok() {
            self.state(me).counters.ipis_resent.add(1);
        }
        drop(irq);
    }
}
