//! `getrandom`.

use super::args::Args;
use super::outcome::Outcome;
use crate::errno::Errno;
use crate::random;
use crate::user_memory::UserBytes;

/// The most bytes that one call fills.
const MOST_BYTES: usize = 1 << 20;

/// `GRND_NONBLOCK | GRND_RANDOM | GRND_INSECURE`: nothing ever blocks, so all mean the same.
const KNOWN_FLAGS: u32 = 0x7;

pub(super) fn getrandom(a: &Args) -> Outcome {
    if a.u32(2) & !KNOWN_FLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    random::fill_user(UserBytes::new(a.usize(0), a.usize(1).min(MOST_BYTES))?)
}
