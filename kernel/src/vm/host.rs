//! What each CPU needs to run guests: SVM turned on, its tags, and the maps of what is intercepted.
//!
//! A CPU turns SVM on when it runs its first guest, and off when it goes offline; whatever tags it had then count no more.

use core::cell::UnsafeCell;

use shootdown::CpuId;

use crate::addr::PhysAddr;
use crate::arch::{percpu, svm};
use crate::cpus::MAX_CPUS;
use crate::irq;
use crate::sync::Mutex;

/// The tags of each CPU that has SVM on. Used by that CPU alone, interrupts off.
static TAGS: [Mutex<Option<svm::Tags>>; MAX_CPUS] = [const { Mutex::new(None) }; MAX_CPUS];

/// Does `work` with this CPU's tags, interrupts off; `None` where there is no SVM.
pub fn with_tags<R>(work: impl FnOnce(CpuId, &mut svm::Tags) -> R) -> Option<R> {
    let before = irq::save();
    let cpu = percpu::cpu_id();
    let mut tags = TAGS[cpu.index()].lock();
    if tags.is_none() {
        *tags = svm::turn_on(cpu);
    }
    let done = tags.as_mut().map(|tags| work(cpu, tags));
    drop(tags);
    irq::restore(before);
    done
}

/// This CPU goes offline, and runs no guest. Interrupts are off.
pub fn cpu_left(cpu: CpuId) {
    if TAGS[cpu.index()].lock().take().is_some() {
        svm::turn_off();
    }
}

/// A bit for each port, and for each access to a model-specific register: all set, so all are intercepted.
const IO_MAP_BYTES: usize = 3 * 4096;
const MSR_MAP_BYTES: usize = 2 * 4096;

#[repr(C, align(4096))]
struct Map<const BYTES: usize>(UnsafeCell<[u8; BYTES]>);

// SAFETY: written by nobody after the image was made.
unsafe impl<const BYTES: usize> Sync for Map<BYTES> {}

static IO_MAP: Map<IO_MAP_BYTES> = Map(UnsafeCell::new([0xff; IO_MAP_BYTES]));
static MSR_MAP: Map<MSR_MAP_BYTES> = Map(UnsafeCell::new(msr_map()));

/// Those that the VMCB keeps for each guest, and VMLOAD and VMSAVE exchange, are its own (APM vol. 2, "VMSAVE and VMLOAD Instructions").
const GUESTS_OWN: [u32; 10] = [
    0x174,
    0x175,
    0x176,
    0xc000_0081,
    0xc000_0082,
    0xc000_0083,
    0xc000_0084,
    0xc000_0100,
    0xc000_0101,
    0xc000_0102,
];

/// Two bits for each register, reads and writes, 0 from the first byte on and `c000_0000` from byte 2048 on (APM vol. 2, "MSR Intercepts").
const fn msr_map() -> [u8; MSR_MAP_BYTES] {
    let mut map = [0xff; MSR_MAP_BYTES];
    let mut at = 0;
    while at < GUESTS_OWN.len() {
        let number = GUESTS_OWN[at] as usize;
        let start = if number >= 0xc000_0000 { 2048 } else { 0 };
        let offset = number & 0x1fff;
        map[start + offset / 4] &= !(3 << (offset % 4 * 2));
        at += 1;
    }
    map
}

/// Where the processor finds the map of ports.
pub fn io_map() -> PhysAddr {
    PhysAddr::of(IO_MAP.0.get())
}

/// Where it finds that of registers.
pub fn msr_map_address() -> PhysAddr {
    PhysAddr::of(MSR_MAP.0.get())
}
