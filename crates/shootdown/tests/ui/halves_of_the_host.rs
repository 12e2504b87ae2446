#[path = "../ui_kernel/mod.rs"]
mod kernel;
use kernel::*;
use shootdown::*;

fn main() {
    // The engine believes that the host has loaded what it was told.
    let space = AddressSpace::new(&SHOOTDOWN, tables(1));
    if SHOOTDOWN.begin_switch(None, Some(&space)) {
        SHOOTDOWN.end_switch(None, Some(&space));
    }
    let _ = SHOOTDOWN.enter_user();
}
