#[path = "../ui_kernel/mod.rs"]
mod kernel;
use kernel::*;
use shootdown::*;

static MEMORY: [CpuMemory<Kernel>; 1] = [const { CpuMemory::new() }; 1];

fn main() {
    SHOOTDOWN.attach(CpuId::new(0), &MEMORY);
    SHOOTDOWN.online();
    let payload = [0u64; 5];
    SHOOTDOWN.try_post(&CpuMask::first(4), move |_| {
        std::hint::black_box(payload);
    }).unwrap();
    SHOOTDOWN.call_many(CallTargets::Online, &|_| ());
}
