//! Handles: small values that borrow the engine, each with the methods of one topic that few hosts need.

use core::fmt;

use crate::engine::Shootdown;
use crate::platform::Platform;

macro_rules! handle {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        pub struct $name<'a, P: Platform>(pub(crate) &'a Shootdown<P>);

        impl<P: Platform> Clone for $name<'_, P> {
            #[inline]
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<P: Platform> Copy for $name<'_, P> {}

        impl<P: Platform> fmt::Debug for $name<'_, P> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }
    };
}

handle! {
    /// What an engine does with [private roots](crate::windows::WindowRoot): [`Shootdown::windows`].
    Windows
}

handle! {
    /// Roots that the host loads itself: [`Shootdown::host_roots`].
    ///
    /// A switch in two halves is for a kernel whose context switch, in another crate, writes the root too. A foreign root is one of which the
    /// engine knows nothing, as firmware, sleep and trampolines need it.
    HostRoots
}

handle! {
    /// When a CPU uses user memory, and when it does not: [`Shootdown::user_memory`].
    UserMemory
}

handle! {
    /// Which CPUs can have translations of which part of a space: [`UserMemory::reach`].
    Reach
}

handle! {
    /// What else keeps translations, and is told of flushes: [`Shootdown::secondary_tlbs`].
    SecondaryTlbs
}

handle! {
    /// What other CPUs do beside calls and flushes: [`Shootdown::control`].
    CpuControl
}

handle! {
    /// Counters, and what finds CPUs that do not answer: [`Shootdown::watch`].
    Watcher
}

impl<P: Platform> Shootdown<P> {
    /// Mappings of one CPU: loading, changing and retiring [private roots](crate::windows::WindowRoot). Any context.
    #[inline]
    pub fn windows(&self) -> Windows<'_, P> {
        Windows(self)
    }

    /// Roots that the host loads itself, where [`switch_to`](Self::switch_to) does not fit. Any context.
    #[inline]
    pub fn host_roots(&self) -> HostRoots<'_, P> {
        HostRoots(self)
    }

    /// When this CPU uses user memory: lazy mode, deferral, split tags, and the question of NMI handlers. Any context.
    #[inline]
    pub fn user_memory(&self) -> UserMemory<'_, P> {
        UserMemory(self)
    }

    /// What else keeps translations: IOMMUs, devices, tables made from ours. Any context.
    #[inline]
    pub fn secondary_tlbs(&self) -> SecondaryTlbs<'_, P> {
        SecondaryTlbs(self)
    }

    /// Kicks, barriers, and functions that CPUs run wherever they poll. Any context.
    #[inline]
    pub fn control(&self) -> CpuControl<'_, P> {
        CpuControl(self)
    }

    /// Counters, and what finds CPUs that do not answer. Any context.
    #[inline]
    pub fn watch(&self) -> Watcher<'_, P> {
        Watcher(self)
    }
}
