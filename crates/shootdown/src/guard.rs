//! What stays as it is until a guard is dropped: interrupts off, preemption disabled. What must not unwind.

use core::marker::PhantomData;
use core::sync::atomic::{Ordering, compiler_fence};

use crate::platform::Platform;

/// Interrupts are off until this is dropped.
#[derive(Debug)]
pub(crate) struct IrqGuard<'a, P: Platform> {
    platform: &'a P,
    state: P::IrqState,
}

impl<'a, P: Platform> IrqGuard<'a, P> {
    #[track_caller]
    #[inline]
    pub(crate) fn new(platform: &'a P) -> Self {
        let state = platform.irq_save();
        // An instruction that the compiler may move memory accesses across (Rust: `asm!` with `nomem`) is no barrier to it.
        compiler_fence(Ordering::SeqCst);
        Self { platform, state }
    }
}

impl<P: Platform> Drop for IrqGuard<'_, P> {
    #[inline]
    fn drop(&mut self) {
        compiler_fence(Ordering::SeqCst);
        // SAFETY: 1. `new` got it on this CPU, which the code in between did not leave.
        unsafe { self.platform.irq_restore(self.state) };
    }
}

/// Preemption is disabled until this is dropped. It stays on its CPU. (A pointer is neither `Send` nor `Sync`.)
#[derive(Debug)]
pub(crate) struct PreemptGuard<'a, P: Platform>(&'a P, PhantomData<*const ()>);

impl<'a, P: Platform> PreemptGuard<'a, P> {
    #[track_caller]
    pub(crate) fn new(platform: &'a P) -> Self {
        platform.preempt_disable();
        Self(platform, PhantomData)
    }
}

impl<P: Platform> Drop for PreemptGuard<'_, P> {
    fn drop(&mut self) {
        // SAFETY: 1. `new` disabled it.
        unsafe { self.0.preempt_enable() };
    }
}

/// Runs `body`, out of which no panic unwinds: panicking again while unwinding aborts, and says `why`.
#[inline]
pub(crate) fn no_unwind<R>(why: &'static str, body: impl FnOnce() -> R) -> R {
    struct Bomb(&'static str);
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("{}", self.0);
        }
    }
    let bomb = Bomb(why);
    let result = body();
    core::mem::forget(bomb);
    result
}
