#[path = "../ui_kernel/mod.rs"]
mod kernel;
use kernel::*;
use shootdown::*;

fn main() {
    // The tables of a space may be freed some day, those of the kernel's root never.
    let space = AddressSpace::new(&SHOOTDOWN, tables(1));
    SHOOTDOWN.user_memory().enter_lazy(&space, tables(2));
    SHOOTDOWN.switch_away(&space, KernelRoot::new(2));
}
