#[path = "../ui_kernel/mod.rs"]
mod kernel;
use kernel::*;
use shootdown::*;

fn main() {
    // Safe code cannot have any address loaded as page tables.
    let space = AddressSpace::new(&SHOOTDOWN, Root::new(0xdead_beef_000));
    SHOOTDOWN.switch_to(None, &space);
}
