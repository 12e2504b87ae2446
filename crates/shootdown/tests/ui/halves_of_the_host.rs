#[path = "../ui_kernel/mod.rs"]
mod kernel;
use kernel::*;
use shootdown::*;

fn main() {
    // The engine believes that the host has loaded what it was told.
    let space = AddressSpace::new(&SHOOTDOWN, tables(1));
    if SHOOTDOWN.host_roots().begin_switch(None, Some(&space)) {
        SHOOTDOWN.host_roots().end_switch(None, Some(&space));
    }
    let _ = SHOOTDOWN.user_memory().enter_user();
}
