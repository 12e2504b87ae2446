//! Learning that a process of the ring died: without that, whoever waits for its token would wait for ever.

use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

use super::ring::signal;
use super::token::Token;
use crate::signals;

const NOBODY: RawFd = -1;

/// The eventfd to announce deaths on.
static TELL: AtomicI32 = AtomicI32::new(NOBODY);

/// From now on the death of a child is announced on `descriptor`, which must stay open until [`ignore`].
pub fn announce_on(descriptor: RawFd) -> io::Result<()> {
    TELL.store(descriptor, Relaxed);
    let handler: extern "C" fn(libc::c_int) = on_death;
    let (handler, flags) = (handler as usize, libc::SA_RESTART | libc::SA_NOCLDSTOP);
    // SAFETY: 1. the handler makes one system call that handlers may make.
    unsafe { signals::handle(libc::SIGCHLD, handler, flags) }.map(drop)
}

/// From now on children end unannounced; returns what [`resume`] takes.
pub fn ignore() -> RawFd {
    TELL.swap(NOBODY, Relaxed)
}

/// Undoes [`ignore`].
pub fn resume(descriptor: RawFd) {
    TELL.store(descriptor, Relaxed);
}

extern "C" fn on_death(_signal: libc::c_int) {
    let descriptor = TELL.load(Relaxed);
    if descriptor != NOBODY {
        // The interrupted code may be about to look at its own errno.
        // SAFETY: the pointer is to this thread's errno.
        let errno = unsafe { libc::__errno_location() };
        // SAFETY: as above.
        let before = unsafe { *errno };
        // A descriptor that is gone leaves nobody to tell.
        let _ignored = signal_quietly(descriptor);
        // SAFETY: as above.
        unsafe { *errno = before };
    }
}

/// As [`signal`], without its message, which allocates.
fn signal_quietly(descriptor: RawFd) -> bool {
    let bits = Token::LOST_BITS;
    let from = (&raw const bits).cast();
    // SAFETY: `bits` is eight bytes, as many as are written.
    unsafe { libc::write(descriptor, from, size_of::<u64>()) == size_of::<u64>() as isize }
}

/// Tells whoever waits on `descriptor` that this process gives up.
pub fn confess(descriptor: RawFd) {
    // A ring that is gone leaves nobody to tell.
    let _ignored = signal(descriptor, Token::LOST_BITS);
}
