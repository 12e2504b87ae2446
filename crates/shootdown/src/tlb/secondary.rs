//! Secondary TLBs: what else translates by the tables of a space, a guest, or the kernel.
//!
//! An IOMMU that shares a process's page tables, a device with a TLB of its own, tables that software has made from ours (shadow and nested paging). No
//! interrupt reaches these: whoever keeps them listens, and is told.
//!
//! Order (I1): the change; bump the generation; full barrier; is there a listener? `begin`; the CPUs, and wait for them; `finish`. One that begins to listen says so, full
//! barrier, and only then reads the first entry: either the initiator finds it, or it finds the change.

use core::fmt;
use core::mem::{ManuallyDrop, MaybeUninit};
use core::num::NonZeroU64;

use crate::capacity::Capacity;
use crate::engine::Shootdown;
use crate::handle::SecondaryTlbs;
use crate::memory::CpuMemory;
use crate::platform::Platform;
use crate::tlb::{FlushRequest, FlushScope, Listener};
use crate::trace::TraceEvent;

/// What [`Platform::finish_secondary`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SecondaryFlush {
    /// Nothing that was named is used, or walked, any more.
    Done,
    /// Not yet: ask again.
    Busy,
    /// It does not answer, and may go on using it.
    Failed,
}

/// Something that keeps translations did not answer: it may go on using what a flush was about, or walking the tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SecondaryFailed;

impl<C: Capacity> FlushScope<'_, C> {
    #[inline]
    pub(super) fn listener<'a, P: Platform<Cpus = C>>(
        self,
        engine: &'a Shootdown<P>,
    ) -> &'a Listener
    where
        Self: 'a,
    {
        match self {
            Self::Space(space) => space.listener(),
            Self::Kernel => &engine.kernel.0.listener,
            Self::Guest(guest) => &guest.listener,
        }
    }
}

impl<P: Platform> SecondaryTlbs<'_, P> {
    /// From here on each flush of `scope` is told to `listener`, a number that only the host understands, by [`Platform::begin_secondary`] and
    /// [`Platform::finish_secondary`]. Begin to read the tables only when this has returned; what was changed before, and is flushed later, is told. Any
    /// context; does not block. A scope has one listener at a time: where several keep translations, the host tells them one by one. Needs
    /// [`Config::with_secondary`](crate::Config::with_secondary).
    ///
    /// Rights that are only added make no flush: whoever remembers what was absent is told of those by the host.
    ///
    /// # Panics
    /// When somebody listens there already, or the space or guest is another engine's.
    #[track_caller]
    pub fn listen<'s>(self, scope: impl Into<FlushScope<'s, P::Cpus>>, listener: u64) {
        const { assert!(P::CONFIG.has_secondary, "CONFIG lacks with_secondary") };
        let scope = scope.into();
        self.0.check_scope(scope);
        assert!(
            scope.listener(self.0).begin(listener),
            "{:?} has a listener already",
            scope.id()
        );
        match scope {
            // What changed in a region while nobody listened was not counted here: what somebody has read before is not to be installed now.
            // ORDERING: behind the barrier of `begin`: who reads this count sees the changes of those that found nobody listening.
            FlushScope::Space(space) if P::CONFIG.has_reach => _ = space.bump(),
            _ => {}
        }
    }

    /// Nobody listens any more. When this returns, no `begin` is under way, and none comes; what was begun is still finished. The tables must not be
    /// read any more *before*. Interrupts and preemption in any state; spins, serving this CPU's flushes, as long as another CPU is inside
    /// [`begin_secondary`](Platform::begin_secondary): hold no lock that this takes.
    ///
    /// # Panics
    /// When the space or guest is another engine's.
    #[track_caller]
    pub fn unlisten<'s>(self, scope: impl Into<FlushScope<'s, P::Cpus>>) {
        let scope = scope.into();
        self.0.check_scope(scope);
        let listener = scope.listener(self.0);
        listener.end();
        let is_told = |memory: &CpuMemory<P>| listener.is_told_by(&memory.telling);
        while !listener.is_told_nothing() || self.0.states().any(|(_, memory)| is_told(memory)) {
            self.0.poll();
            self.0.platform.relax();
        }
    }

    /// The tables of `scope` are about to go: the listener, if there is one, [lets go](Platform::release_secondary) of them, and is none any more. Before a space or
    /// guest is dropped and its tables are freed: one that has a listener then aborts the process. Context as of [`unlisten`](Self::unlisten).
    ///
    /// # Errors
    /// [`SecondaryFailed`] when it did not let go. It listens still, and the tables must stay: try again, or [`forget`](core::mem::forget) the space.
    ///
    /// # Panics
    /// As there.
    #[track_caller]
    pub fn release<'s>(
        self,
        scope: impl Into<FlushScope<'s, P::Cpus>>,
    ) -> Result<(), SecondaryFailed> {
        let scope = scope.into();
        self.0.check_scope(scope);
        let listener = scope.listener(self.0);
        // By the count: the host may move to another CPU meanwhile.
        if let Some(telling) = listener.enter(None) {
            self.0.platform.release_secondary(telling.name())?;
            drop(telling);
        }
        self.unlisten(scope);
        Ok(())
    }
}

impl<P: Platform> Shootdown<P> {
    /// Tells who listens to the flushes of `scope`. After the barrier of I1. `before` is what an earlier call said for the same wait.
    #[inline]
    pub(super) fn begin_notice(
        &self,
        scope: FlushScope<'_, P::Cpus>,
        request: &FlushRequest,
        before: Notice,
    ) -> Notice {
        let listener = scope.listener(self);
        if !P::CONFIG.has_secondary || !listener.listens() {
            return before;
        }
        let request = match scope {
            FlushScope::Space(space) => request.for_platform::<P>(Some(space)),
            _ => *request,
        };
        self.tell(listener, request, before)
    }

    #[cold]
    #[inline(never)]
    fn tell(&self, listener: &Listener, request: FlushRequest, before: Notice) -> Notice {
        let irq = self.irq_guard();
        let here = self.here_if_attached(&irq);
        let by = here.map(|here| &here.state.telling);
        let Some(telling) = listener.enter(by) else {
            return before;
        };
        let before = before.token::<P>();
        if let Some(here) = here {
            here.counters.secondary_notices.add(1);
        }
        let begun = (self.platform).begin_secondary(telling.name(), &request, before);
        Notice::of(begun.or(before))
    }
}

/// What a listener has begun, and has to finish. It takes no instruction where nobody listens.
#[derive(Clone, Copy)]
pub(super) struct Notice(MaybeUninit<Option<NonZeroU64>>);

impl fmt::Debug for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Notice")
    }
}

impl Notice {
    #[inline]
    pub(super) const fn nothing<P: Platform>() -> Self {
        match P::CONFIG.has_secondary {
            true => Self::of(None),
            false => Self(MaybeUninit::uninit()),
        }
    }

    const fn of(token: Option<NonZeroU64>) -> Self {
        Self(MaybeUninit::new(token))
    }

    #[inline]
    pub(super) fn token<P: Platform>(self) -> Option<NonZeroU64> {
        match P::CONFIG.has_secondary {
            // SAFETY: `nothing` and `of` have written it then.
            true => unsafe { self.0.assume_init() },
            false => None,
        }
    }
}

impl<P: Platform> Shootdown<P> {
    /// Waits for who listens.
    #[inline]
    pub(super) fn finish_notice(&self, notice: Notice) -> Result<(), SecondaryFailed> {
        match notice.token::<P>() {
            Some(token) => self.finish_token(token),
            None => Ok(()),
        }
    }

    #[cold]
    fn finish_token(&self, token: NonZeroU64) -> Result<(), SecondaryFailed> {
        self.forbid_wait_in_walk();
        loop {
            match self.platform.finish_secondary(token) {
                SecondaryFlush::Done => return Ok(()),
                SecondaryFlush::Failed => return Err(SecondaryFailed),
                SecondaryFlush::Busy => {
                    self.poll();
                    self.platform.relax();
                }
            }
        }
    }
}

/// What a flush was to free and must not, because a listener [failed](SecondaryFailed), or a CPU is [lost](crate::control::CpuControl::declare_lost). Dropping it leaks that, and counts it
/// ([`Stats::leaks`](crate::watch::Stats::leaks)).
#[must_use = "what it holds is leaked"]
pub struct Held<'a, P: Platform, H> {
    engine: &'a Shootdown<P>,
    /// What the listener is asked with; none if it has answered, or nobody listens: then a CPU is lost.
    token: Option<NonZeroU64>,
    held: ManuallyDrop<H>,
}

impl<'a, P: Platform, H> Held<'a, P, H> {
    pub(super) fn new(
        engine: &'a Shootdown<P>,
        token: Option<NonZeroU64>,
        held: ManuallyDrop<H>,
    ) -> Self {
        Self {
            engine,
            token,
            held,
        }
    }

    /// Waits for the listener again, and gives back what is held if no CPU is lost any more. Context as of [`FlushTicket::try_wait`](crate::FlushTicket::try_wait).
    ///
    /// # Errors
    /// As there.
    pub fn retry(mut self) -> Result<H, Self> {
        self.token = (self.token).filter(|token| self.engine.finish_token(*token).is_err());
        match self.token.is_some() || self.engine.has_lost() {
            true => Err(self),
            // SAFETY: 1. it has answered, and those that were lost have been reset.
            false => Ok(unsafe { self.release() }),
        }
    }

    /// Gives it back unflushed.
    ///
    /// # Safety
    /// 1. The listener uses nothing of it any more: its device has been reset, say, or cut off from memory; and no lost CPU does.
    pub unsafe fn release(self) -> H {
        let mut all = ManuallyDrop::new(self);
        // SAFETY: nobody uses it again: `self` is not dropped.
        unsafe { ManuallyDrop::take(&mut all.held) }
    }
}

impl<P: Platform, H> fmt::Debug for Held<'_, P, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Held(token {:?})", self.token)
    }
}

impl<P: Platform, H> Drop for Held<'_, P, H> {
    fn drop(&mut self) {
        let cpu = self.engine.platform.current_cpu();
        if let Some(state) = self.engine.attached(cpu).filter(|_| P::CONFIG.has_counters) {
            state.counters.leaks.add_anywhere(1);
        }
        let token = self.token.map_or(0, NonZeroU64::get);
        self.engine
            .platform
            .on_trace(TraceEvent::Leaked { cpu, token });
    }
}
