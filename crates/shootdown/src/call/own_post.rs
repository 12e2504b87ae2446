//! [`OwnPosts`]: the functions that a CPU posts to itself.
//!
//! No CPU is a target of its own requests. A copy of the function lies in memory of the CPU's, on the list of what was posted to it, and
//! runs as call data do: in the next interrupt, or where a task waits for functions (I14), after what was posted before.

use core::ptr::NonNull;

use crate::call::data::{Link, Pusher, pointer};
use crate::call::{Payload, Request, SLOTS};
use crate::engine::Shootdown;
use crate::memory::Here;
use crate::platform::Platform;
use crate::sync::{Ordering, PlainCell, array_of, const_fn};

/// One of them.
#[derive(Debug)]
#[repr(C)]
pub(super) struct OwnPost {
    /// At the start, so that its address is that of the whole.
    link: Link,
    request: PlainCell<Request>,
}

/// Place for as many as a CPU has slots for functions.
#[derive(Debug)]
pub(crate) struct OwnPosts([OwnPost; SLOTS - 1]);

impl OwnPost {
    const_fn! {
        fn new() -> Self {
            Self {
                link: Link::own(),
                request: PlainCell::new(Request::data(Payload::EMPTY)),
            }
        }
    }
}

impl OwnPosts {
    const_fn! {
        pub(crate) fn new() -> Self {
            Self(array_of!(OwnPost::new(); SLOTS - 1))
        }
    }

    /// One that is free. Its own CPU calls this, with interrupts off.
    pub(super) fn free(&self) -> Option<&OwnPost> {
        let is_free = |post: &&OwnPost| post.link.mark.load(Ordering::Relaxed) == 0;
        self.0.iter().find(is_free)
    }
}

impl<P: Platform> Shootdown<P> {
    /// Runs what this CPU has posted to itself, and `link`, which was taken off its list, leads to; returns what comes next on the list. Interrupts
    /// are off.
    #[cold]
    pub(super) fn run_own_post(
        &self,
        me: Here<'_, P>,
        link: NonNull<Link>,
    ) -> Option<NonNull<Link>> {
        // SAFETY: links without a function are those of `OwnPost`, at its start.
        let post = unsafe { link.cast::<OwnPost>().as_ref() };
        // SAFETY: 1. only this CPU writes there, before it posts and after the mark is gone.
        let request = unsafe { post.request.read() };
        // SAFETY: 1. it is on our list.
        let next = pointer(unsafe { post.link.next.read() });
        me.taken_links.begin(link, next);
        // The function may post to this CPU again.
        post.link.mark.store(0, Ordering::Relaxed);
        if let Some(run) = request.function() {
            self.enter_function(me, run, || {
                // SAFETY: 1. `send_post` chose `run` for the type in `payload`.
                unsafe { run(Some(&request.payload), me.cpu) };
            });
        }
        next
    }

    /// Has this CPU run what it has just pushed onto its own list. Interrupts are off.
    #[cold]
    pub(super) fn interrupt_for_own_post(&self, here: Here<'_, P>) {
        if self.interrupt_self(here) {
            here.posted.0.is_sent();
        }
    }

    /// Posts a function to this CPU, which has place for it. Interrupts are off.
    #[cold]
    pub(super) fn post_to_self(&self, here: Here<'_, P>, request: Request) {
        let Some(place) = here.own_posts.free() else {
            return;
        };
        // SAFETY: 1. it is free, and only this CPU uses it.
        unsafe { place.request.write(request) };
        place.link.mark.store(here.cpu.as_mark(), Ordering::Relaxed);
        // SAFETY: 1. it was free, is a part of this CPU's memory, and the address is that of the whole.
        if unsafe {
            here.posted
                .0
                .push_link(NonNull::from(place).cast(), Pusher::Itself)
        } {
            self.interrupt_for_own_post(here);
        }
    }
}
