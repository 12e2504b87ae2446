#[path = "../ui_kernel/mod.rs"]
mod kernel;
use kernel::*;
use shootdown::tags::*;
use shootdown::*;

fn main() {
    // What only the engine may ask of a platform.
    let space = AddressSpace::new(&SHOOTDOWN, tables(1));
    let platform = SHOOTDOWN.platform();
    platform.load_root(space.root());
    platform.load_tagged_root(space.root(), Asid::UNTAGGED, TagEntries::Drop);
    platform.copy_shared_top(space.root(), 2, FlushRange::WHOLE);
    platform.irq_restore(());
    platform.preempt_enable();
}
