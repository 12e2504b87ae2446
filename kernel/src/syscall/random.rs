//! Random bytes: `getrandom`, `/dev/urandom` and `AT_RANDOM`.
//!
//! Good enough for hash seeds and retries, not for keys: the state is seeded from clocks and stirred
//! with the time stamp counter (SplitMix64, Steele et al. 2014).

use super::args::{Args, UserBytes};
use super::dispatch::Outcome;
use crate::errno::Errno;
use crate::sync::Mutex;
use crate::time;

/// The most bytes that one call fills.
const MOST_BYTES: usize = 1 << 20;

/// `GRND_NONBLOCK | GRND_RANDOM | GRND_INSECURE`: nothing ever blocks, so all mean the same.
const KNOWN_FLAGS: u32 = 0x7;

static STATE: Mutex<Option<u64>> = Mutex::new(None);

/// Fills the bytes.
pub fn fill_random(bytes: &mut [u8]) {
    let mut state = STATE.lock();
    let mut word = state.unwrap_or_else(time::realtime_ns);
    word ^= time::now_ns().rotate_left(32);
    for chunk in bytes.chunks_mut(8) {
        word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
        chunk.copy_from_slice(&mix(word).to_ne_bytes()[..chunk.len()]);
    }
    *state = Some(word);
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

pub(super) fn getrandom(a: &Args) -> Outcome {
    if a.u32(2) & !KNOWN_FLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    fill_user(UserBytes::new(a.usize(0), a.usize(1).min(MOST_BYTES))?)
}

/// Fills user memory.
pub fn fill_user(out: UserBytes) -> Result<usize, Errno> {
    let mut done = 0;
    while done < out.len {
        let mut chunk = [0; 256];
        let rest = out.skip(done);
        let part = &mut chunk[..rest.len.min(256)];
        fill_random(part);
        rest.copy_from(part)?;
        done += part.len();
    }
    Ok(done)
}
