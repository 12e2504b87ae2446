#[path = "../ui_kernel/mod.rs"]
mod kernel;
use kernel::*;
use shootdown::CallTargets;

fn main() {
    // Several CPUs run the function at once, so it must be Sync.
    let cell = std::cell::Cell::new(0);
    SHOOTDOWN.call_many(CallTargets::Online, &|_| cell.set(1));
}
