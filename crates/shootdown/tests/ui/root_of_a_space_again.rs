#[path = "../ui_kernel/mod.rs"]
mod kernel;
use kernel::*;
use shootdown::windows::*;
use shootdown::*;

fn main() {
    // What a space says of its root is a number, not the right to load it: not as another space, not as a window root, not as the kernel's.
    let space = AddressSpace::new(&SHOOTDOWN, tables(1));
    let twin = AddressSpace::new(&SHOOTDOWN, space.root());
    let windows = WindowRoot::new(&SHOOTDOWN, &space, CpuId::new(0), twin.root());
    SHOOTDOWN.switch_away(&space, windows.root());
}
