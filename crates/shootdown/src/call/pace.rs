//! [`Pace`]: how long the functions take that a responder runs one after the other.
//!
//! Where they are short, the quickest order is that in which they are found: each responder begins elsewhere, and takes each slot's
//! line once. Where they are long, that is nothing beside what is gained when all targets agree which call goes first, so
//! they are taken oldest first. Nobody says beforehand how long a function takes; the last ones tell.

use crate::engine::Shootdown;
use crate::memory::Here;
use crate::platform::Platform;

/// So many ns a responder goes on before it looks for flushes.
const PATIENCE_NS: u64 = 4_000;

/// A function that takes so many ns is slow. In storms short ones take several microseconds each, since all wait for the same lines.
const SLOW_NS: u64 = 16_000;

/// A stretch of several requests.
#[derive(Debug)]
pub(super) struct Pace {
    since_ns: u64,
    served: u64,
}

impl<P: Platform> Shootdown<P> {
    /// Begins a stretch in which functions may run.
    #[inline]
    pub(super) fn begin_pace(&self) -> Pace {
        Pace {
            since_ns: self.platform.now_ns(),
            served: 0,
        }
    }

    /// One more request was served: when the stretch has become long, serves the flushes that have come, and notes whether
    /// functions are slow.
    #[inline]
    pub(super) fn keep_pace(&self, me: Here<'_, P>, pace: &mut Pace) {
        pace.served += 1;
        if self.platform.now_ns().saturating_sub(pace.since_ns) >= PATIENCE_NS {
            self.end_pace(me, pace);
            self.serve_urgent(me);
            *pace = self.begin_pace();
        }
    }

    /// Notes at the end of a stretch whether functions are slow.
    pub(super) fn end_pace(&self, me: Here<'_, P>, pace: &Pace) {
        let took_ns = self.platform.now_ns().saturating_sub(pace.since_ns);
        if let Some(each_ns) = took_ns.checked_div(pace.served) {
            me.is_slow.set(each_ns >= SLOW_NS);
        }
    }
}
