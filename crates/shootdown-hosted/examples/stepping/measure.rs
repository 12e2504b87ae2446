//! What an operation takes: instructions, and cycles.

use std::hint::black_box;

use crate::stepping::step_through;

/// Cycles of one of many in a row: the median of a hundred turns.
pub fn cycles(work: &dyn Fn()) -> u64 {
    const EACH: u64 = 1000;
    let mut turns: [u64; 101] = std::array::from_fn(|_| {
        let begun = now();
        (0..EACH).for_each(|_| black_box(work)());
        (now() - begun) / EACH
    });
    turns.sort_unstable();
    turns[turns.len() / 2]
}

fn now() -> u64 {
    // SAFETY: every x86-64 processor has the counter.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Instructions of both CPUs.
pub fn count<R>(operation: impl Fn() -> R) -> u64 {
    let mut instructions = 0;
    step_through(operation, |_| instructions += 1);
    instructions
}
