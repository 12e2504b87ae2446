#[path = "../ui_kernel/mod.rs"]
mod kernel;
use kernel::*;
use shootdown::{windows::*, *};

fn on_any_cpu(_: impl Send) {}

fn main() {
    // Pinned windows belong to the CPU where they were pinned.
    let space = AddressSpace::new(&SHOOTDOWN, tables(0));
    let windows = WindowRoot::new(&SHOOTDOWN, &space, CpuId::new(0), tables(1));
    let pinned = SHOOTDOWN.windows().pin(&windows).unwrap();
    on_any_cpu(pinned);
}
