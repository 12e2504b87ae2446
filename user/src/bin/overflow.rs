//! Recurses without end; must die by its stack's guard page, alone.

use std::hint::black_box;

/// Stack bytes of one call, at least; well below a page, so that no call jumps over the guard.
const FRAME_BYTES: usize = 1024;

fn descend(depth: u64) -> u64 {
    let frame = black_box([depth as u8; FRAME_BYTES]);
    if black_box(true) {
        descend(depth + 1) + u64::from(frame[FRAME_BYTES / 2])
    } else {
        depth
    }
}

fn main() {
    println!("overflow: descending");
    let depth = descend(0);
    println!("overflow: FAILED, came back from depth {depth}");
}
