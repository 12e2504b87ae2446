#[path = "../ui_kernel/mod.rs"]
mod kernel;
use kernel::*;
use shootdown::*;

fn main() {
    // Frames come back from `wait` and from nowhere else.
    let space = AddressSpace::new(&SHOOTDOWN, tables(0));
    let mut batch = FlushBatch::<u64, 4>::new(&space);
    batch.page(0, PageSize::SIZE_4K, 7).unwrap();
    let ticket = SHOOTDOWN.submit_batch(&space, batch);
    for frame in ticket {
        std::hint::black_box(frame);
    }
}
