//! [`OwnPosts`]: the functions that a CPU posts to itself.
//!
//! No CPU is a target of its own requests. A copy of the function lies in memory of the CPU's, on the list of what was posted to it, and
//! runs as call data do: in the next interrupt, or where a task waits for functions (I14), after what was posted before.

use core::ptr::NonNull;

use crate::call::data::Link;
use crate::call::{Payload, Request, SLOTS};
use crate::capacity::{Capacity, Cpus};
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

    /// A copy of what was posted.
    ///
    /// # Safety
    /// 1. `link` is that of an `OwnPost` of the running CPU, was taken off its list and is still marked as posted.
    pub(super) unsafe fn request(link: NonNull<Link>) -> Request {
        // SAFETY: duty 1, and `link` is its first field.
        let post = unsafe { link.cast::<Self>().as_ref() };
        // SAFETY: 1. duty 1: only this CPU writes there, before it posts and after the mark is gone.
        unsafe { post.request.read() }
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
        let is_free = |post: &&OwnPost| post.link.is_posted.load(Ordering::Relaxed) == 0;
        self.0.iter().find(is_free)
    }
}

impl<P: Platform, const N: usize> Shootdown<P, N>
where
    Cpus<N>: Capacity,
{
    /// Posts a function to this CPU, at `place`, which is free and its own. Interrupts are off.
    pub(super) fn post_to_self(&self, here: Here<'_, N>, place: &OwnPost, request: Request) {
        // SAFETY: 1. it is free, and only this CPU uses it.
        unsafe { place.request.write(request) };
        place.link.is_posted.store(1, Ordering::Relaxed);
        // SAFETY: 1. it was free, is a part of this CPU's memory, and the address is that of the whole.
        if unsafe { here.posted.0.push_link(NonNull::from(place).cast()) } {
            self.interrupt_self(here);
        }
    }
}
