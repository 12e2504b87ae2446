#[path = "../ui_kernel/mod.rs"]
mod kernel;
use kernel::*;
use shootdown::*;

fn to_another_task(_: impl Send) {}

fn main() {
    // A part of a flush may be due on the CPU that submitted it.
    let space = AddressSpace::new(&SHOOTDOWN, tables(0));
    let ticket = SHOOTDOWN.submit_flush(&space, FlushRange::WHOLE, FreedTables::No);
    to_another_task(ticket);
}
