//! Per-CPU counters.
//!
//! Each is written by its own CPU with interrupts off, by plain loads and stores, on lines of its own (those of waits, by
//! one locked addition, in any context); readers take a [`Stats`] at any time and see each counter at some recent value.

use crate::platform::Platform;
use crate::sync::Counter;
use crate::tlb::Why;

/// Buckets of the wait histogram: bucket `i` counts waits of `2^i` to `2^(i+1) - 1` ns, the last all longer.
pub const WAIT_BUCKETS: usize = 32;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)+) => {
        /// The counters of one CPU.
        #[derive(Debug)]
        pub(crate) struct Counters<P: Platform> {
            $(pub(crate) $name: Counter<P>,)+
            pub(crate) waits_ns: [Counter<P>; WAIT_BUCKETS],
        }

        impl<P: Platform> Counters<P> {
            pub(crate) const fn new() -> Self {
                Self {
                    $($name: Counter::new(),)+
                    waits_ns: [const { Counter::new() }; WAIT_BUCKETS],
                }
            }

            pub(crate) fn read(&self) -> Stats {
                Stats {
                    $($name: self.$name.get(),)+
                    waits_ns: core::array::from_fn(|bucket| self.waits_ns[bucket].get()),
                }
            }
        }

        /// A reading of the counters of one CPU, or their sum over CPUs. A CPU counts what it did for others after its acknowledgement: an initiator
        /// that has waited may not see it yet.
        #[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
        #[non_exhaustive]
        pub struct Stats {
            $($(#[$doc])* pub $name: u64,)+
            /// Histogram of waits, see [`WAIT_BUCKETS`]; filled under
            /// [`Policy::with_measured_waits`](crate::Policy::with_measured_waits).
            pub waits_ns: [u64; WAIT_BUCKETS],
        }

        impl Stats {
            /// Every counter with its name, in a fixed order.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($name), self.$name),)+].into_iter()
            }

            /// What was counted since an earlier reading of the same counters.
            #[must_use]
            pub fn since(&self, earlier: &Self) -> Self {
                let mut stats = *self;
                $(stats.$name = self.$name.wrapping_sub(earlier.$name);)+
                for (to, from) in stats.waits_ns.iter_mut().zip(&earlier.waits_ns) {
                    *to = to.wrapping_sub(*from);
                }
                stats
            }

            /// Adds another reading.
            pub fn merge(&mut self, other: &Self) {
                $(self.$name += other.$name;)+
                for (to, from) in self.waits_ns.iter_mut().zip(&other.waits_ns) {
                    *to += from;
                }
            }
        }
    };
}

counters! {
    /// Requests published to at least one other CPU, calls and flushes alike.
    requests_published,
    /// Of these, requests that were to be announced in rings ([`broadcasts_from`](crate::Policy::broadcasts_from)).
    broadcasts_published,
    /// Rings that had no room for a broadcast, or in which others were quicker again and again: their CPUs were told by their inboxes.
    broadcasts_full,
    /// Interrupts that this CPU asked the platform to send.
    ipis_sent,
    /// Targets that needed no interrupt of ours because one was already on its way.
    ipis_avoided,
    /// Times the interrupt handler ran.
    ipis_received,
    /// Times it ran and found nothing: a waiter or a poll had served it.
    ipis_spurious,
    /// Times the platform refused an interrupt and it was sent again.
    ipis_refused,
    /// Interrupts sent again because a target did not answer ([`set_stall_ns`](crate::watch::Watcher::set_stall_ns)).
    ipis_resent,
    /// [Walks](crate::user_memory::Walk) of this CPU that left a request unanswered until their end.
    walks_awaited,
    /// Functions that this CPU ran for an initiator, itself included.
    functions_run,
    /// Flushes that this CPU did as an initiator.
    local_flushes,
    /// Flushes that this CPU did as a responder.
    remote_flushes,
    /// Pages dropped one by one, by both kinds.
    pages_flushed,
    /// Flushes that dropped a whole space or everything.
    full_flushes,
    /// Requests that another flush served: this CPU had already reached their generation, or did several at once.
    flushes_covered,
    /// Requests for a space that this CPU had already left, and kicks: nothing to do.
    flushes_stray,
    /// Requests that this CPU acknowledged before it flushed.
    early_acks,
    /// Requests whose local flush was finished when some acknowledgement was still missing.
    flushes_overlapped,
    /// Requests that were complete when their local flush was finished: nobody waited.
    flushes_unwaited,
    /// Cache lines of other CPUs that this CPU read as a responder: request slots, and descriptions passed
    /// by pointer.
    shared_lines_read,
    /// Times the inbox was served by polling, not by interrupt.
    polls_served,
    /// Times a request had to wait because every slot of its CPU was busy.
    slots_exhausted,
    /// Roots loaded, and guests entered, whose tag had kept everything: nothing was dropped.
    tags_kept,
    /// The same, whose tag had missed a flush: what it held was dropped.
    tags_dropped,
    /// The same, under a tag that was another space's or virtual CPU's, or nobody's.
    tags_taken,
    /// CPUs that a back end flushed for this one, without an interrupt ([`Platform::flush_remote`]).
    cpus_taken,
    /// Flushes that one instruction did on all CPUs ([`Platform::flush_everywhere`]).
    flushes_everywhere,
    /// Times this CPU loaded its root again because the space had got a [global tag](crate::remote::GlobalTags).
    tags_globalized,
    /// CPUs that a flush of this CPU left alone because they were lazy.
    lazy_skipped,
    /// CPUs that a flush of this CPU left alone because they were in the kernel and had deferred flushes.
    deferring_skipped,
    /// CPUs that a flush of this CPU left alone because they were [quiet](crate::control::CpuControl::enter_quiet).
    quiet_skipped,
    /// Flushes of windows: this CPU's own, without a word to others ([`PinnedWindows::flush`](crate::windows::PinnedWindows::flush)).
    window_flushes,
    /// Flushes of windows that wait for the next load of their root.
    window_flushes_deferred,
    /// Times this CPU took over the shared top-level entries as a flush came
    /// ([`Platform::copy_shared_top`]).
    tops_copied,
    /// Regions of [tracked](crate::reach::Reach::track) spaces that this CPU has taken.
    regions_taken,
    /// Regions that it has given up.
    regions_given_up,
    /// CPUs that a flush of this CPU left alone because they were elsewhere, although in the set for their windows' sake.
    absent_skipped,
    /// Times this CPU was lazy in a space whose tables were freed, and let go of it.
    lazy_detached,
    /// Flushes that [listeners](crate::secondary) were told of.
    secondary_notices,
    /// Times what a flush was to free was leaked, because a listener did not answer or a CPU is lost ([`Held`](crate::secondary::Held)).
    leaks,
    /// Times a guest ran here, and was left ([`GuestSpace::run`](crate::guest::GuestSpace::run)).
    guest_exits,
    /// Flushes of guests ([`FlushScope::Guest`](crate::FlushScope::Guest)).
    guest_flushes,
    /// CPUs that these kicked because they were in guest mode.
    guest_kicks,
    /// Waits that ended.
    waits_finished,
}

impl<P: Platform> Counters<P> {
    /// A root was loaded, or a guest entered, under a tag that was chosen for this reason.
    pub(crate) fn count_tag(&self, why: Why) {
        match why {
            Why::Current => self.tags_kept.add(1),
            Why::Behind => self.tags_dropped.add(1),
            Why::Taken => self.tags_taken.add(1),
            Why::Untagged => {}
        }
    }
}

impl Stats {
    /// The upper bound in ns of the histogram bucket that holds the given share of waits, in thousandths
    /// (500 is the median, 990 the 99th percentile); `None` when no wait was timed.
    pub fn wait_ns(&self, per_mille: u32) -> Option<u64> {
        let total: u64 = self.waits_ns.iter().sum();
        let mut rank =
            (total.saturating_mul(u64::from(per_mille)) / 1000).min(total.checked_sub(1)?);
        let bucket = self.waits_ns.iter().position(|count| {
            let found = rank < *count;
            rank = rank.saturating_sub(*count);
            found
        })?;
        Some((2u64 << bucket) - 1)
    }
}

/// The histogram bucket of a wait.
pub(crate) fn wait_bucket(elapsed_ns: u64) -> usize {
    (elapsed_ns.max(1).ilog2() as usize).min(WAIT_BUCKETS - 1)
}
