use shootdown::*;

fn main() {
    // 100 is neither at most 64 nor a multiple of 64.
    let _ = CpuMask::<Cpus<100>>::EMPTY;
}
