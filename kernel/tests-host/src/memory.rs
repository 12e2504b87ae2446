//! Shim of `mm::boot`: physical memory of the given size.

use crate::addr::{DIRECT_MAP, PAGE_BYTES};
use crate::arch::percpu;
use crate::mm::frames;
use crate::platform::{MEMORY, PLAYED_CPUS, SHOOTDOWN};
use core::sync::atomic::AtomicU32;
use shootdown::CpuId;

/// Frames of the simulated memory; number 0 is never used.
pub const FRAMES: usize = 16384;

static READY: spin::Once = spin::Once::new();

/// Makes the memory; once, whatever number of tests calls it.
pub fn init() {
    READY.call_once(|| {
        crate::task::init();
        map_physical_memory();
        let links = (0..FRAMES).map(|_| AtomicU32::new(0)).collect::<Vec<_>>();
        frames::init(core::iter::once((1, FRAMES as u32)), Vec::leak(links));
        SHOOTDOWN.attach(CpuId::new(0), &MEMORY);
        for cpu in 0..PLAYED_CPUS {
            percpu::as_cpu(CpuId::new(cpu), || SHOOTDOWN.online());
        }
    });
}

fn map_physical_memory() {
    // SAFETY: a new mapping at an address where the host maps nothing by itself; not replacing one.
    let at = unsafe {
        libc::mmap(
            DIRECT_MAP as *mut libc::c_void,
            FRAMES * PAGE_BYTES,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE
                | libc::MAP_ANONYMOUS
                | libc::MAP_FIXED_NOREPLACE
                | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    assert_eq!(
        at as usize, DIRECT_MAP,
        "the host has something at {DIRECT_MAP:#x}"
    );
}
