#[path = "../ui_kernel/mod.rs"]
mod kernel;
use kernel::*;
use shootdown::*;

fn main() {
    // A post is not waited for, so it may not borrow from the caller's stack.
    let counter = std::sync::atomic::AtomicU32::new(0);
    SHOOTDOWN.try_post(&CpuMask::first(4), |_| {
        counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }).unwrap();
}
