#[path = "../ui_kernel/mod.rs"]
mod kernel;
use kernel::*;
use shootdown::*;

fn main() {
    // A submitted batch is gone: nothing can be added to it behind the flush.
    let space = AddressSpace::new(&SHOOTDOWN, tables(0));
    let mut batch = FlushBatch::<u64, 4>::new(&space);
    let ticket = SHOOTDOWN.submit_batch(&space, batch);
    batch.page(0, PageSize::SIZE_4K, 7).unwrap();
    drop(ticket.wait());
}
