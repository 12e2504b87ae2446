//! [`Listeners`]: who keeps translations besides CPUs, as the platform finds it.

use std::fmt;
use std::num::NonZeroU64;

use shootdown::remote::FlushRequest;
use shootdown::secondary::{SecondaryFailed, SecondaryFlush};

use crate::machine::{Context, Machine};

/// What a machine asks of those that listen to flushes.
pub trait Listeners: fmt::Debug {
    /// See [`Platform::begin_secondary`](shootdown::Platform::begin_secondary).
    fn begin(
        &self,
        listener: u64,
        request: &FlushRequest,
        before: Option<NonZeroU64>,
    ) -> Option<NonZeroU64>;
    /// See [`Platform::finish_secondary`](shootdown::Platform::finish_secondary).
    fn finish(&self, token: NonZeroU64) -> SecondaryFlush;
    /// See [`Platform::release_secondary`](shootdown::Platform::release_secondary).
    ///
    /// # Errors
    /// As there.
    fn release(&self, listener: u64) -> Result<(), SecondaryFailed>;
    /// A back end flushes CPUs as `request` says: by their tag all there are, or those that it is asked for.
    fn see_back_end(&self, request: &FlushRequest, everywhere: bool);
}

impl<'a> Machine<'a> {
    /// Has these listen to flushes.
    #[must_use]
    pub fn with_listeners(mut self, listeners: impl Listeners + 'a) -> Self {
        self.listeners = Some(Box::new(listeners));
        self
    }
}

impl<'a> Context<'a> {
    pub(super) fn listeners(self) -> Option<&'a dyn Listeners> {
        self.machine().listeners.as_deref()
    }

    /// # Panics
    /// Where nobody listens.
    pub(super) fn some_listeners(self) -> &'a dyn Listeners {
        self.listeners().expect("somebody listens")
    }
}
