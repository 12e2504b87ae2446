#[path = "../ui_kernel/mod.rs"]
mod kernel;
use kernel::*;
use shootdown::*;

fn main() {
    // A root is loaded for one space.
    let root = tables(1);
    let space = AddressSpace::new(&SHOOTDOWN, root);
    let twin = AddressSpace::new(&SHOOTDOWN, root);
    SHOOTDOWN.switch_to(None, &space);
    SHOOTDOWN.switch_to(Some(&space), &twin);
}
