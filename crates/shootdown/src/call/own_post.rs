//! [`OwnPosts`]: the functions that a CPU posts to itself.
//!
//! No CPU is a target of its own requests. A copy of the function lies in memory of the CPU's, on the list of what was posted to it, and
//! runs as call data do: in the next interrupt, or where a task waits for functions (I14), after what was posted before.

use core::ptr::NonNull;

use crate::call::data::Link;
use crate::call::{Payload, Request, SLOTS};
use crate::cpu::CpuId;
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
                link: Link::new(run),
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

/// Runs a function that its CPU has posted to itself.
///
/// # Safety
/// 1. The link is that of an [`OwnPost`] of this CPU, which holds interrupts off.
unsafe fn run(link: NonNull<Link>, cpu: CpuId) {
    // SAFETY: duty 1, and it is the first field.
    let post = unsafe { link.cast::<OwnPost>().as_ref() };
    // A copy: the function may post to this CPU again.
    // SAFETY: 1. only this CPU writes there, where it posts.
    let request = unsafe { post.request.read() };
    if let Some(run) = request.run {
        // SAFETY: 1. `try_post` chose `run` for the type in `payload`.
        unsafe { run(Some(&request.payload), cpu) };
    }
}

impl<P: Platform> Shootdown<P> {
    /// Posts a function to this CPU, in this place for it, which is free. Interrupts are off.
    #[cold]
    pub(super) fn post_to_self(&self, here: Here<'_, P>, place: &OwnPost, request: Request) {
        // SAFETY: 1. it is free, and only this CPU uses it.
        unsafe { place.request.write(request) };
        place.link.mark.store(here.cpu.as_mark(), Ordering::Relaxed);
        // SAFETY: 1. it was free, is a part of this CPU's memory, and the address is that of the whole.
        unsafe { self.push(here, here.cpu, NonNull::from(place).cast()) };
    }
}
