//! Numbers without a function.

use core::sync::atomic::{AtomicU64, Ordering};

use super::outcome::Outcome;
use crate::errno::Errno;
use crate::task::Current;

/// Numbers below this are logged once each; the ones above share one line.
const TRACKED: usize = 512;

static SEEN: [AtomicU64; TRACKED / 64 + 1] = [const { AtomicU64::new(0) }; TRACKED / 64 + 1];

/// Answers ENOSYS, with a log line the first time.
pub(super) fn call(me: &Current, number: u64) -> Outcome {
    let at = usize::try_from(number).unwrap_or(TRACKED).min(TRACKED);
    let bit = 1 << (at % 64);
    if SEEN[at / 64].fetch_or(bit, Ordering::Relaxed) & bit == 0 {
        log::info!(
            "pid {} ({}): system call {number} is not supported (said once)",
            me.process().pid(),
            me.process().name()
        );
    }
    Err(Errno::ENOSYS)
}
