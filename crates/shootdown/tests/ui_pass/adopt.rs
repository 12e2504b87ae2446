#[path = "../ui_kernel/mod.rs"]
mod kernel;
use kernel::*;
use shootdown::*;

static MEMORY: [CpuMemory<4>; 1] = [const { CpuMemory::new() }; 1];

fn main() {
    SHOOTDOWN.attach_all(&MEMORY);
    SHOOTDOWN.online();
    let payload = [0u64; 5];
    SHOOTDOWN.post(&CpuMask::first(4), move |_| {
        std::hint::black_box(payload);
    });
    SHOOTDOWN.call_all(&|_| ());
}
