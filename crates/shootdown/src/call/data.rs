//! [`CallData`]: calls whose data the caller owns (Linux: `call_single_data_t`).
//!
//! A request slot is the CPU's, and there are few. What must be posted in any number, and under any lock, brings memory of its own:
//! it is pushed onto a list of its target, with one exchange, and nobody waits. A responder takes the whole list with another one,
//! and runs it in the order in which it came.
//!
//! I7: the CPU that pushes onto an empty list sends the interrupt; a list that is not empty has one on its way.

use core::fmt;
use core::ptr::NonNull;

use crate::capacity::{Capacity, Cpus};
use crate::cpu::CpuId;
use crate::engine::Shootdown;
use crate::guard::IrqGuard;
use crate::platform::Platform;
use crate::stats::Counters;
use crate::sync::{AtomicU64, Ordering, PlainCell, const_fn};
use crate::watchdog::Watch;

/// A function in memory of its caller's, which can be [posted](Shootdown::post_data) to one CPU at a time.
#[repr(C)]
pub struct CallData<F> {
    /// At the start, so that its address is that of the whole.
    link: Link,
    function: F,
}

/// What a list of posted functions is made of.
#[repr(C)]
struct Link {
    /// 0 when it is on no list.
    is_posted: AtomicU64,
    /// The one that was posted before it, or 0.
    next: PlainCell<u64>,
    /// Runs the [`CallData`] that this is a part of.
    run: unsafe fn(NonNull<Link>, CpuId) -> (),
}

impl<F> fmt::Debug for CallData<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallData")
            .field("is_posted", &self.is_posted())
            .finish_non_exhaustive()
    }
}

impl<F> CallData<F> {
    /// Whether it waits for its CPU; a hint, as it may begin to run meanwhile. Any context; does not block.
    pub fn is_posted(&self) -> bool {
        self.link.is_posted.load(Ordering::Relaxed) != 0
    }
}

impl<F: Fn(CpuId) + Sync> CallData<F> {
    const_fn! {
        /// A function that is posted nowhere.
        pub fn new(function: F) -> Self {
            /// # Safety
            /// 1. The link is that of a `CallData<F>` that lives for ever.
            unsafe fn run<F: Fn(CpuId)>(link: NonNull<Link>, cpu: CpuId) {
                // SAFETY: duty 1, and `link` is its first field.
                let data = unsafe { link.cast::<CallData<F>>().as_ref() };
                (data.function)(cpu);
            }
            Self {
                link: Link {
                    is_posted: AtomicU64::new(0),
                    next: PlainCell::new(0),
                    run: run::<F>,
                },
                function,
            }
        }
    }
}

/// The data could not be posted; nothing was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PostRefused {
    /// The target is not online.
    NotReady,
    /// It was posted and has not begun to run; or this CPU is not online, and another one is going offline, or is not online
    /// and posts too.
    Busy,
}

impl fmt::Display for PostRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotReady => "the target is not online: post to a CPU of ready_cpus",
            Self::Busy => "the call data are still posted, or a CPU is leaving: try again",
        })
    }
}

impl core::error::Error for PostRefused {}

/// The functions that were posted to one CPU.
#[derive(Debug)]
pub(crate) struct PostedList(AtomicU64);

impl PostedList {
    const_fn! {
        pub(crate) fn new() -> Self {
            Self(AtomicU64::new(0))
        }
    }

    /// Whether there is none; a hint.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    /// Adds data that are on no list; true if the list was empty.
    fn push<F>(&self, data: &'static CallData<F>) -> bool {
        // Of the whole, not of the link: the function is reached by this address.
        let new = core::ptr::from_ref(data).expose_provenance() as u64;
        let mut first = self.0.load(Ordering::Relaxed);
        loop {
            // SAFETY: 1. they are on no list, so no other CPU reads the link.
            unsafe { data.link.next.write(first) };
            // ORDERING: Release publishes the link and what its caller wrote; pairs with `take`. The others keep the chain.
            let pushed = self
                .0
                .compare_exchange(first, new, Ordering::AcqRel, Ordering::Relaxed);
            match pushed {
                Ok(_) => return first == 0,
                Err(other) => first = other,
            }
        }
    }

    /// Takes all, the oldest first.
    fn take(&self) -> Option<NonNull<Link>> {
        if self.is_empty() {
            return None;
        }
        // ORDERING: Acquire sees the links; pairs with `push`.
        let mut newest = pointer(self.0.swap(0, Ordering::AcqRel));
        let mut oldest = None;
        while let Some(link) = newest {
            // SAFETY: links live for ever.
            let cell = unsafe { &link.as_ref().next };
            // SAFETY: 1. what is on a list is nobody else's.
            newest = pointer(unsafe { cell.read() });
            // SAFETY: 1. as above.
            unsafe { cell.write(address(oldest)) };
            oldest = Some(link);
        }
        oldest
    }
}

fn pointer(address: u64) -> Option<NonNull<Link>> {
    NonNull::new(core::ptr::with_exposed_provenance_mut(address as usize))
}

fn address(link: Option<NonNull<Link>>) -> u64 {
    link.map_or(0, |link| link.as_ptr().expose_provenance() as u64)
}

impl<P: Platform, const N: usize> Shootdown<P, N>
where
    Cpus<N>: Capacity,
{
    /// Has `target`, this CPU too, run the function of `data` in its next interrupt, after what was posted to it before. Any
    /// context, also inside a called function and under any lock; does not wait for other CPUs.
    ///
    /// The data may be posted again as soon as the function begins to run, by the function itself too.
    ///
    /// # Errors
    /// [`PostRefused`]; nothing was sent.
    ///
    /// # Panics
    /// When this CPU has no memory, or `target` is not below `N`.
    pub fn post_data<F>(&self, target: CpuId, data: &'static CallData<F>) -> Result<(), PostRefused>
    where
        F: Fn(CpuId) + Sync,
    {
        let irq = self.irq_guard();
        let me = self.platform.current_cpu();
        // Before anything is pushed: without memory this CPU could send no interrupt for it.
        let counters = &self.state(me).counters;
        // From here to the post nobody's departure can complete.
        let _departure = match self.is_ready(me) {
            true => None,
            false => self.hold_departures(me).ok_or(PostRefused::Busy)?,
        };
        if !self.is_ready(target) {
            return Err(PostRefused::NotReady);
        }
        // ORDERING: Acquire: the last run has taken the link off its list; pairs with `run_posted`.
        if data.link.is_posted.swap(1, Ordering::Acquire) != 0 {
            return Err(PostRefused::Busy);
        }
        if self.state(target).posted.0.push(data) {
            self.interrupt_for_data(&irq, counters, (me, target));
        }
        Ok(())
    }

    fn interrupt_for_data(
        &self,
        _: &IrqGuard<'_, P>,
        counters: &Counters,
        (me, target): (CpuId, CpuId),
    ) {
        let mut watch = Watch::default();
        while self.platform.send_ipi(target).is_err() {
            counters.ipis_refused.add(1);
            self.serve_flushes(me);
            if !self.is_ready(target) {
                // It has left meanwhile, after it ran what it found.
                return;
            }
            self.platform.relax();
            self.watch(&mut watch, |waited_ns| {
                Some(self.refusal(target, waited_ns))
            });
        }
        counters.ipis_sent.add(1);
    }

    /// Runs what was posted to this CPU; true if there was anything. Interrupts are off, and no function runs here.
    #[cold]
    pub(crate) fn run_posted(&self, me: CpuId) -> bool {
        let mut next = self.state(me).posted.0.take();
        let is_any = next.is_some();
        while let Some(link) = next {
            // SAFETY: links live for ever.
            let cell = unsafe { link.as_ref() };
            // SAFETY: 1. it is on our list.
            next = pointer(unsafe { cell.next.read() });
            // ORDERING: Release: we have read the link; pairs with `post_data`.
            cell.is_posted.swap(0, Ordering::Release);
            self.enter_posted(me, || {
                // SAFETY: 1. the link was posted as a part of `CallData`, which lives for ever.
                unsafe { (cell.run)(link, me) };
            });
        }
        is_any
    }
}
