//! What tests of address spaces share: a turn, a mapping, and accesses as a processor makes them.
#![allow(
    dead_code,
    reason = "compiled into each test, of which each uses a part"
)]

pub mod random;
pub mod watched;

use shootdown_kernel_tests::addr::PhysAddr;
use shootdown_kernel_tests::memory;
use shootdown_kernel_tests::mm::frames;
use shootdown_kernel_tests::mm::{
    AreaKind, FaultAccess, MapRequest, MemorySpace, PAGE_SIZE, Placement, Populate, Prot,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Where tests map something.
pub const BASE: usize = 0x4000_0000;

/// A read of a page that is not there.
pub const READ: FaultAccess = FaultAccess {
    write: false,
    exec: false,
    user: true,
    present: false,
};
/// A write to one.
pub const WRITE: FaultAccess = FaultAccess {
    write: true,
    ..READ
};
/// A write through an entry that is there, but may not be written through.
pub const REFUSED: FaultAccess = FaultAccess {
    present: true,
    ..WRITE
};

/// One test at a time, and each gives every frame back.
pub struct Turn {
    /// Frames that were free when the test began.
    pub frames: usize,
    _turn: MutexGuard<'static, ()>,
}

impl Turn {
    /// Waits for it.
    pub fn new() -> Self {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        memory::init();
        Self {
            frames: frames::free_count(),
            _turn: turn,
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(frames::free_count(), self.frames, "frames are lost");
        }
    }
}

/// The address of a page of the mapping.
pub fn at(page: usize) -> usize {
    BASE + page * PAGE_SIZE
}

/// Maps so many pages at [`BASE`], readable and writable.
pub fn map(space: &MemorySpace, pages: usize, kind: AreaKind) {
    let request = MapRequest {
        addr: BASE,
        len: pages * PAGE_SIZE,
        prot: Prot::READ_WRITE,
        placement: Placement::Fixed,
        populate: Populate::OnDemand,
        kind,
    };
    space.map(request).unwrap();
}

/// The leaf entry of a page, as a processor finds it.
pub fn entry(space: &MemorySpace, page: usize) -> Option<u64> {
    let mut table = space.engine().root().as_u64();
    for level in (0..4).rev() {
        let index = at(page) >> (12 + 9 * level) & 511;
        let cell = PhysAddr::new(table)
            .to_direct()
            .cast::<u64>()
            .wrapping_add(index);
        // SAFETY: inside a table of the simulated memory, which nobody changes now.
        let entry = unsafe { cell.read() };
        if entry & 1 == 0 {
            return None;
        }
        table = entry & 0x000f_ffff_ffff_f000;
        if level == 0 {
            return Some(entry);
        }
    }
    None
}

/// Whether a processor may write to the page.
pub fn may_write(space: &MemorySpace, page: usize) -> bool {
    entry(space, page).is_some_and(|entry| entry & 2 != 0)
}

/// Where that is.
pub fn word(space: &MemorySpace, page: usize) -> *mut u64 {
    let frame = entry(space, page).expect("mapped") & 0x000f_ffff_ffff_f000;
    PhysAddr::new(frame).to_direct().cast()
}

/// All bytes of a page, which is mapped.
#[allow(
    clippy::mut_from_ref,
    reason = "they are the processor's to change, not the space's"
)]
pub fn bytes(space: &MemorySpace, page: usize) -> &mut [u8; PAGE_SIZE] {
    // SAFETY: a frame of the simulated memory, of which the test has no other reference.
    unsafe { &mut *word(space, page).cast() }
}

/// The first word of a page.
pub fn read(space: &MemorySpace, page: usize) -> u64 {
    // SAFETY: a word of a frame of the simulated memory.
    unsafe { word(space, page).read() }
}

/// Writes as user code does: only where the entry allows it.
pub fn write(space: &MemorySpace, page: usize, value: u64) {
    if !may_write(space, page) {
        space.fault(at(page), REFUSED).unwrap();
    }
    assert!(may_write(space, page));
    // SAFETY: as in `read`.
    unsafe { word(space, page).write(value) };
}

/// A space with so many pages that hold 1, 2, ...
pub fn written(pages: usize) -> Arc<MemorySpace> {
    let space = MemorySpace::new().unwrap();
    map(&space, pages, AreaKind::Anonymous);
    for page in 0..pages {
        space.fault(at(page), WRITE).unwrap();
        write(&space, page, page as u64 + 1);
    }
    space
}
