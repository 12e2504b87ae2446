//! What stays as it is until a guard is dropped: interrupts off, preemption disabled.

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
        Self {
            platform,
            state: platform.irq_save(),
        }
    }
}

impl<P: Platform> Drop for IrqGuard<'_, P> {
    #[inline]
    fn drop(&mut self) {
        self.platform.irq_restore(self.state);
    }
}

/// Preemption is disabled until this is dropped.
#[derive(Debug)]
pub(crate) struct PreemptGuard<'a, P: Platform>(&'a P);

impl<'a, P: Platform> PreemptGuard<'a, P> {
    #[track_caller]
    pub(crate) fn new(platform: &'a P) -> Self {
        platform.preempt_disable();
        Self(platform)
    }
}

impl<P: Platform> Drop for PreemptGuard<'_, P> {
    fn drop(&mut self) {
        self.0.preempt_enable();
    }
}
