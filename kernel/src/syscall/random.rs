//! `getrandom`.

use super::args::Args;
use super::outcome::{Outcome, all_known};
use crate::random;
use crate::user_memory::UserBytes;

/// The most bytes that one call fills.
const MOST_BYTES: usize = 1 << 20;

/// `GRND_NONBLOCK | GRND_RANDOM | GRND_INSECURE`: nothing ever blocks, so all mean the same.
const KNOWN_FLAGS: u32 = 0x7;

pub(super) fn getrandom(a: &Args) -> Outcome {
    all_known(a.u32(2), KNOWN_FLAGS)?;
    random::fill_user(UserBytes::new(a.usize(0), a.usize(1).min(MOST_BYTES))?)
}
