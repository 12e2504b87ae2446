//! What tests of address spaces share: a turn, a mapping, and accesses as a processor makes them.
#![allow(
    dead_code,
    reason = "compiled into each test, of which each uses a part"
)]

pub mod random;
pub mod watched;

use shootdown_kernel_tests::addr::PhysAddr;
use shootdown_kernel_tests::memory;
use shootdown_kernel_tests::mm::file::{Copy, PageRange};
use shootdown_kernel_tests::mm::frames::{self, Frame, Share};
use shootdown_kernel_tests::mm::range::UserRange;
use shootdown_kernel_tests::mm::{
    Advice, AreaKind, Destination, FaultAccess, FileArea, Lending, MapError, MapRequest,
    MemoryFile, MemorySpace, PAGE_SIZE, Placement, Populate, Prot, SharedArea,
};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Where tests map something.
pub const BASE: usize = 0x4000_0000;

/// Root tables of a space.
pub const ROOTS: usize = if cfg!(feature = "isolation") { 2 } else { 1 };

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

/// So many pages of private memory at that address, readable and writable, when they are touched.
pub fn request(addr: usize, pages: usize) -> MapRequest {
    MapRequest {
        addr,
        len: pages * PAGE_SIZE,
        prot: Prot::READ_WRITE,
        placement: Placement::Fixed,
        populate: Populate::OnDemand,
        kind: AreaKind::Anonymous,
    }
}

/// Maps so many pages at [`BASE`], readable and writable.
pub fn map(space: &MemorySpace, pages: usize, kind: AreaKind) {
    let own = request(BASE, pages);
    space.map(MapRequest { kind, ..own }).unwrap();
}

/// A space that does.
pub fn mapped(pages: usize, kind: AreaKind) -> Arc<MemorySpace> {
    let space = MemorySpace::new().unwrap();
    map(&space, pages, kind);
    space
}

/// Unmaps so many pages.
pub fn unmap(space: &MemorySpace, page: usize, pages: usize) {
    space.unmap(at(page), pages * PAGE_SIZE).unwrap();
}

/// Discards them.
pub fn discard(space: &MemorySpace, page: usize, pages: usize) {
    let len = pages * PAGE_SIZE;
    space.advise(at(page), len, Advice::Discard).unwrap();
}

/// Changes their rights.
pub fn protect(space: &MemorySpace, page: usize, pages: usize, prot: Prot) {
    space.protect(at(page), pages * PAGE_SIZE, prot).unwrap();
}

/// Moves `old` pages and makes them `new` ones.
pub fn remap(
    space: &MemorySpace,
    page: usize,
    (old, new): (usize, usize),
    to: Destination,
) -> Result<usize, MapError> {
    space.remap(at(page), old * PAGE_SIZE, new * PAGE_SIZE, to)
}

/// Moves so many pages to another one's place.
pub fn move_to(space: &MemorySpace, page: usize, pages: usize, to: usize) {
    let moved = remap(space, page, (pages, pages), Destination::Fixed(at(to)));
    assert_eq!(moved, Ok(at(to)));
}

/// The address in an entry.
pub const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

/// The leaf entry of an address, as a processor finds it.
pub fn entry_of(space: &MemorySpace, addr: usize) -> Option<u64> {
    entry_below(space.engine().root(), addr)
}

/// The same in the tables of that root.
pub fn entry_below(root: u64, addr: usize) -> Option<u64> {
    let mut table = root;
    for level in (0..4).rev() {
        let cells = PhysAddr::new(table & ADDRESS).to_direct().cast::<u64>();
        let cell = cells.wrapping_add(addr >> (12 + 9 * level) & 511);
        // SAFETY: inside a table of the simulated memory, which nobody changes now.
        table = unsafe { cell.read() };
        if table & 1 == 0 {
            return None;
        }
    }
    Some(table)
}

/// That of a page.
pub fn entry(space: &MemorySpace, page: usize) -> Option<u64> {
    entry_of(space, at(page))
}

/// Whether a processor may write to the page.
pub fn may_write(space: &MemorySpace, page: usize) -> bool {
    entry(space, page).is_some_and(|entry| entry & 2 != 0)
}

/// Where that is.
pub fn word(space: &MemorySpace, page: usize) -> *mut u64 {
    let frame = entry(space, page).expect("mapped") & ADDRESS;
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

/// A write as by user code to a page that may not be mapped yet.
pub fn put(space: &MemorySpace, page: usize, value: u64) {
    if entry(space, page).is_none() {
        space.fault(at(page), WRITE).unwrap();
    }
    write(space, page, value);
}

/// Writes 1, 2, ... to so many pages.
pub fn fill(space: &MemorySpace, pages: usize) {
    (0..pages).for_each(|page| put(space, page, page as u64 + 1));
}

/// A space with so many pages that hold 1, 2, ...
pub fn written(pages: usize) -> Arc<MemorySpace> {
    let space = mapped(pages, AreaKind::Anonymous);
    fill(&space, pages);
    space
}

/// Takes every free frame.
pub fn exhaust() -> Vec<Frame> {
    std::iter::from_fn(frames::alloc).collect()
}

/// Gives them back.
pub fn give_back(hoard: Vec<Frame>) {
    hoard.into_iter().for_each(frames::free);
}

/// Memory that stays shared.
pub fn shared() -> AreaKind {
    AreaKind::Shared(SharedArea::new().unwrap())
}

/// Lends the first pages of [`BASE`].
pub fn lent(space: &MemorySpace, pages: usize, lending: Lending) -> Vec<Share> {
    let range = UserRange::new(BASE, pages * PAGE_SIZE).unwrap();
    let mut lent = Vec::with_capacity(pages);
    let done = space.lend(range, lending, &mut lent, || false);
    done.map(|()| lent).unwrap()
}

/// A file of so many pages.
pub fn file_of(pages: usize) -> Arc<MemoryFile> {
    let file = MemoryFile::new("file", &[]).unwrap();
    resize(&file, pages);
    file
}

/// Cuts it, or lets it grow.
pub fn resize(file: &MemoryFile, pages: usize) {
    file.change().set_size((pages * PAGE_SIZE) as u64).unwrap();
}

/// What shows it from that page on, opened for writing.
pub fn shown(file: &Arc<MemoryFile>, first_page: usize) -> AreaKind {
    AreaKind::SharedFile(FileArea::new(file.clone(), first_page * PAGE_SIZE, true))
}

/// A new file, and a space that maps all of it.
pub fn mapper(pages: usize) -> (Arc<MemoryFile>, Arc<MemorySpace>) {
    let file = file_of(pages);
    let space = mapped(pages, shown(&file, 0));
    (file, space)
}

/// Stores all of it.
pub fn sync(file: &MemoryFile) {
    file.sync(PageRange::WHOLE).unwrap();
}

/// The first word of a page of it.
pub fn file_word(file: &MemoryFile, copy: Copy, page: usize) -> u64 {
    let mut bytes = [0; 8];
    assert_eq!(file.read(copy, (page * PAGE_SIZE) as u64, &mut bytes), 8);
    u64::from_le_bytes(bytes)
}

/// The same of what is stored.
pub fn stored(file: &MemoryFile, page: usize) -> u64 {
    file_word(file, Copy::Stored, page)
}

/// Waits until another thread has set the flag.
pub fn until(flag: &AtomicBool) {
    while !flag.load(Relaxed) {
        thread::yield_now();
    }
}
