//! Posting [`CallData`], and running what was posted.

use core::fmt;
use core::ptr::NonNull;

use crate::call::data::{Link, OwnPost, own_request, pointer};
use crate::call::{CallData, Request};
use crate::cpu::CpuId;
use crate::engine::Shootdown;
use crate::memory::Here;
use crate::platform::Platform;
use crate::sync::Ordering;
use crate::watchdog::Entry;

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

impl<P: Platform> Shootdown<P> {
    /// Has `target`, this CPU too, run the function of `data` in its next interrupt, after what was posted to it before. Any
    /// context, also inside a called function and under any lock; does not wait for other CPUs.
    ///
    /// The data may be posted again as soon as the function begins to run, by the function itself too. One that always posts itself to its own CPU
    /// has an interrupt pending whenever the handler returns: other CPUs' flushes are served, but the interrupted task does not go on.
    ///
    /// # Errors
    /// [`PostRefused`]; nothing was sent.
    ///
    /// # Panics
    /// When this CPU has no memory.
    pub fn post_data<F>(&self, target: CpuId, data: &'static CallData<F>) -> Result<(), PostRefused>
    where
        F: Fn(CpuId) + Sync,
    {
        self.post(target, data, false)
    }

    /// The same; with `defers` a quiet target is not interrupted.
    pub(crate) fn post<F: Fn(CpuId) + Sync>(
        &self,
        target: CpuId,
        data: &'static CallData<F>,
        defers: bool,
    ) -> Result<(), PostRefused> {
        // Without memory this panics before anything is pushed: this CPU could send no interrupt for it.
        let (_irq, here) = self.stay();
        // From here to the post nobody's departure can complete.
        let _departure = (self.hold_for_initiator(here.cpu)).ok_or(PostRefused::Busy)?;
        if !self.is_callable(target) {
            return Err(PostRefused::NotReady);
        }
        // ORDERING: Acquire: the last run has taken the link off its list; pairs with `run_posted`.
        // Compared: a refused post must not say that the mark is this CPU's.
        let mark = here.cpu.as_mark();
        let marked =
            (data.link.mark).compare_exchange(0, mark, Ordering::Acquire, Ordering::Relaxed);
        if marked.is_err() {
            return Err(PostRefused::Busy);
        }
        // SAFETY: 1. they live for ever, and our mark says that they were on no list. The address is that of the whole, by which the function is reached.
        unsafe { self.push(here, target, NonNull::from(data).cast(), defers) };
        Ok(())
    }

    /// Posts a function to this CPU, in a place that was claimed for it. Interrupts are off.
    #[cold]
    pub(super) fn post_to_self(&self, here: Here<'_, P>, place: &OwnPost, request: Request) {
        // SAFETY: 1. it is on no list, and only this CPU uses it.
        unsafe { place.function.write(request) };
        // SAFETY: 1. it was free, is a part of this CPU's memory, and the address is that of the whole.
        unsafe { self.push(here, here.cpu, NonNull::from(place).cast(), false) };
    }

    /// Puts a link on the list of `target`, and interrupts that if it must be. Interrupts are off.
    ///
    /// # Safety
    /// As [`PostedList::push`](crate::call::PostedList::push).
    pub(super) unsafe fn push(
        &self,
        here: Here<'_, P>,
        target: CpuId,
        link: NonNull<Link>,
        defers: bool,
    ) {
        let (list, is_own) = (&self.state(target).posted.0, target == here.cpu);
        // SAFETY: the caller's duty.
        if !unsafe { list.push(link, is_own || defers) } {
            return;
        }
        if !is_own {
            if !defers || !self.will_look(target) {
                self.interrupt_one(here, target);
            }
        } else if self.interrupt_self(here) {
            list.note_sent();
        }
    }

    /// Runs what was posted to this CPU; true if there was anything. Interrupts are off, and no function runs here.
    #[cold]
    pub(crate) fn run_posted(&self, me: Here<'_, P>) -> bool {
        let mut next = me.posted.0.take(me.cpu, &me.taken_links);
        let is_any = next.is_some();
        let mut pace = None;
        while let Some(link) = next {
            // SAFETY: links live as long as the list.
            let cell = unsafe { link.as_ref() };
            // SAFETY: 1. it is on our list.
            next = pointer(unsafe { cell.next.read() });
            me.taken_links.begin(link, next);
            // ORDERING: Release: we have read the link; pairs with `post_data`.
            cell.mark.swap(0, Ordering::Release);
            match cell.run {
                Some(run) => self.enter(me, Entry::POSTED, || {
                    // SAFETY: 1. the link was posted as a part of `CallData`, which lives for ever.
                    unsafe { run(link, me.cpu) };
                }),
                None => {
                    // SAFETY: 1. links without a function are a CPU's own posts, and this one was on our list.
                    let request = unsafe { own_request(link) };
                    self.enter(me, Entry::of(&request), || {
                        if let Some(run) = request.run {
                            // SAFETY: 1. `try_post` chose `run` for the type in `payload`.
                            unsafe { run(Some(&request.payload), me.cpu) };
                        }
                    });
                }
            }
            if next.is_some() {
                // The list may be long, and a flush must not wait for all of it.
                self.keep_pace(me, pace.get_or_insert_with(|| self.begin_pace()));
            }
        }
        is_any
    }
}
