#![deny(unused_must_use)]
#[path = "../ui_kernel/mod.rs"]
mod kernel;
use kernel::*;
use shootdown::*;

fn main() {
    // A flush that was submitted must be waited for.
    let space = AddressSpace::new(&SHOOTDOWN, tables(0));
    SHOOTDOWN.submit_flush(&space, FlushRange::WHOLE, FreedTables::No);
}
