//! Random bytes, for `getrandom`, `/dev/urandom` and `AT_RANDOM`.
//!
//! Good enough for hash seeds and retries, not for keys: the state is seeded from clocks and stirred
//! with the time stamp counter (SplitMix64, Steele et al. 2014).

use crate::errno::Errno;
use crate::sync::Mutex;
use crate::time;
use crate::user_memory::UserBytes;

static STATE: Mutex<Option<u64>> = Mutex::new(None);

/// Fills the bytes.
pub fn fill(bytes: &mut [u8]) {
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

/// Fills user memory.
pub fn fill_user(out: UserBytes) -> Result<usize, Errno> {
    let mut done = 0;
    while done < out.len {
        let mut chunk = [0; 256];
        let rest = out.skip(done);
        let part = &mut chunk[..rest.len.min(256)];
        fill(part);
        rest.copy_from(part)?;
        done += part.len();
    }
    Ok(done)
}
