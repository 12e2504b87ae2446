//! Engines of the size that a machine needs.

use std::panic::resume_unwind;
use std::thread;

/// The largest machine.
pub const MAX_CPUS: usize = if cfg!(feature = "two-sizes") {
    512
} else {
    4096
};

/// An engine for 4096 CPUs has some 16 MB, which an unoptimised build moves about on the stack.
const STACK_BYTES: usize = 512 << 20;

/// Runs `work` where engines of any size fit on the stack; returns what it returns.
pub fn on_large_stack<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    thread::scope(|scope| {
        let worker = thread::Builder::new()
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, work)
            .expect("memory for a stack");
        worker.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}

/// Calls a generic function with the smallest engine size that has room for so many CPUs.
macro_rules! with_size {
    ($cpus:expr, $function:ident($($argument:expr),*)) => {
        match $cpus {
            0..=64 => $function::<shootdown::Cpus<64>>($($argument),*),
            #[cfg(feature = "two-sizes")]
            _ => $function::<shootdown::Cpus<512>>($($argument),*),
            #[cfg(not(feature = "two-sizes"))]
            65..=512 => $function::<shootdown::Cpus<512>>($($argument),*),
            #[cfg(not(feature = "two-sizes"))]
            _ => $function::<shootdown::Cpus<4096>>($($argument),*),
        }
    };
}
pub(crate) use with_size;

#[cfg(feature = "two-sizes")]
pub(crate) use with_size as with_close_size;

/// The same with more sizes: where the sets of CPUs are what costs, they should have hardly more words than needed.
#[cfg(not(feature = "two-sizes"))]
macro_rules! with_close_size {
    ($cpus:expr, $function:ident($($argument:expr),*)) => {
        match $cpus {
            0..=64 => $function::<shootdown::Cpus<64>>($($argument),*),
            65..=128 => $function::<shootdown::Cpus<128>>($($argument),*),
            129..=192 => $function::<shootdown::Cpus<192>>($($argument),*),
            193..=320 => $function::<shootdown::Cpus<320>>($($argument),*),
            321..=512 => $function::<shootdown::Cpus<512>>($($argument),*),
            513..=1088 => $function::<shootdown::Cpus<1088>>($($argument),*),
            _ => $function::<shootdown::Cpus<4096>>($($argument),*),
        }
    };
}
#[cfg(not(feature = "two-sizes"))]
pub(crate) use with_close_size;
