//! [`Contents`]: the pages of a file, in memory and as stored.

use super::dirty::{DirtyLog, Logged};
use super::pages::{MAX_BYTES, PageRange, number_of, offset_of};
use super::quota::Quota;
use crate::mm::error::MapError;
use crate::mm::frames::{self, Frame, FrameChain, Share};
use crate::mm::layout::{PAGE_SIZE, PhysAddr, USER_END};
use crate::mm::page_table::PageTable;
use crate::mm::prot::Prot;
use crate::mm::pte::{Pte, PteCell};
use crate::mm::range::UserRange;
use crate::mm::witness;
use alloc::vec::Vec;

/// What an entry of a clean page says, and that of a dirty one.
const CLEAN: Prot = Prot::READ;
const DIRTY: Prot = Prot::READ_WRITE;

/// One of the two copies of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copy {
    /// What programs read and write.
    InMemory,
    /// What the last syncs have left.
    Stored,
}

/// A page for a mapping.
#[derive(Debug)]
pub(super) struct MappedPage {
    pub share: Share,
    pub is_dirty: bool,
}

/// Pages by offset. The table is never loaded: it only has the right shape, and needs no kernel heap to grow. There is none before the first page.
#[derive(Debug)]
struct Pages(Option<PageTable>);

impl Pages {
    fn leaf(&self, offset: usize) -> Option<&PteCell> {
        self.0.as_ref()?.leaf(offset)
    }

    fn frame(&self, offset: usize) -> Option<PhysAddr> {
        self.leaf(offset)?.load().frame()
    }

    fn leaf_or_create(&mut self, offset: usize) -> Option<&PteCell> {
        if self.0.is_none() {
            self.0 = Some(PageTable::bare()?);
        }
        self.0.as_mut()?.leaf_or_create(offset)
    }

    fn visit(&self, range: UserRange, visit: impl FnMut(usize, &PteCell)) {
        if let Some(table) = &self.0 {
            table.visit(range, visit);
        }
    }
}

/// Pages in memory and as stored, and the size. In the table of memory the right to write says that a page is dirty. A page that is in neither has what the file was
/// made with, and zeroes behind that.
#[derive(Debug)]
pub(super) struct Contents {
    size: u64,
    /// No longer than the file.
    origin: &'static [u8],
    in_memory: Pages,
    stored: Pages,
    dirty: DirtyLog,
    quota: Quota,
}

impl Contents {
    /// Of a file with these bytes.
    pub const fn of(origin: &'static [u8]) -> Self {
        Self {
            size: origin.len() as u64,
            origin,
            in_memory: Pages(None),
            stored: Pages(None),
            dirty: DirtyLog::new(),
            quota: Quota::new(),
        }
    }

    /// Bytes.
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Changes the size only. What a page has beyond the end is zeroes from now on.
    pub fn set_size(&mut self, size: u64) {
        self.clear_behind(self.size.min(size));
        let kept = usize::try_from(size).unwrap_or(usize::MAX);
        self.origin = &self.origin[..self.origin.len().min(kept)];
        self.size = size;
    }

    /// The same without touching bytes: what is beyond is hidden, and comes back with the old size.
    pub const fn limit(&mut self, size: u64) {
        self.size = size;
    }

    /// Whether there are bytes in the page at `offset`.
    pub const fn reaches(&self, offset: usize) -> bool {
        (offset as u64) < self.size
    }

    /// The page at `offset`, which must be below the size; made of `spare` or of a new frame if there is none.
    pub fn page(
        &mut self,
        offset: usize,
        spare: &mut Option<Frame>,
    ) -> Result<MappedPage, MapError> {
        let entry = self.filled(offset, spare)?;
        let frame = entry.frame().ok_or(MapError::NoMemory)?;
        Ok(MappedPage {
            share: Share::another(frame),
            is_dirty: entry.prot().write(),
        })
    }

    /// The entry in memory of the page at `offset`, made of `spare` or of a new frame if there is none.
    fn filled(&mut self, offset: usize, spare: &mut Option<Frame>) -> Result<Pte, MapError> {
        let stored = self.stored.frame(offset);
        let cell = filled(
            &mut self.in_memory,
            &mut self.quota,
            offset,
            spare,
            |frame| match stored {
                Some(from) => copy_page(from, frame),
                None => copy_origin(self.origin, offset, frame),
            },
        )?;
        Ok(cell.load())
    }

    /// Puts the page at `offset` down as dirty, if there is one.
    pub fn mark_dirty(&mut self, offset: usize) {
        let Some(cell) = self.in_memory.leaf(offset) else {
            return;
        };
        let entry = cell.load();
        if let Some(frame) = entry.frame().filter(|_| !entry.prot().write()) {
            witness::dirtying(frame);
            cell.protect(DIRTY);
            self.dirty.add(number_of(offset));
        }
    }

    /// Bytes of one page from `offset` on, `len` at most; none at the end.
    pub fn part(&self, copy: Copy, offset: u64, len: usize) -> PagePart {
        let Some(piece) = self.piece(offset, len, self.size) else {
            return PagePart::of(&[]);
        };
        let table = match copy {
            Copy::InMemory => &self.in_memory,
            Copy::Stored => &self.stored,
        };
        let frame = table
            .frame(piece.page)
            .or_else(|| self.stored.frame(piece.page));
        if let Some(frame) = frame {
            return PagePart {
                bytes: frame.to_direct().wrapping_add(piece.into_page),
                len: piece.len,
                share: Some(Share::another(frame)),
            };
        }
        let start = self.origin.len().min(piece.page + piece.into_page);
        match &self.origin[start..] {
            [] => PagePart::of(&ZEROES[..piece.len]),
            there => PagePart::of(&there[..piece.len.min(there.len())]),
        }
    }

    /// Copies bytes to one page from `offset` on, which becomes dirty, and the file as long as that takes; how many.
    pub fn write(&mut self, offset: u64, from: &[u8]) -> Result<usize, MapError> {
        let Some(piece) = self.piece(offset, from.len(), MAX_BYTES) else {
            return Err(MapError::TooBig);
        };
        let entry = self.filled(piece.page, &mut None)?;
        let frame = entry.frame().ok_or(MapError::NoMemory)?;
        let end = offset + piece.len as u64;
        if end > self.size {
            self.set_size(end);
        }
        let to = frame.to_direct().wrapping_add(piece.into_page);
        // SAFETY: the table owns the frame, in which the piece ends; programs may be reading it, as in `PagePart`.
        unsafe { to.copy_from_nonoverlapping(from.as_ptr(), piece.len) };
        self.mark_dirty(piece.page);
        Ok(piece.len)
    }

    /// Takes those dirty pages of `range` down as clean that are in the log, into `pages`, which has room for
    /// [`Logged::MOST`].
    pub fn take_logged(&mut self, range: PageRange, pages: &mut Vec<u32>) -> Logged {
        let table = &self.in_memory;
        self.dirty.take(range, |page| {
            if clean(table, page) {
                pages.push(page);
            }
        })
    }

    /// The same for all dirty pages of `range`, each of which `pages` has room for.
    pub fn take_dirty(&mut self, range: PageRange, pages: &mut Vec<u32>) {
        let Some(range) = range.offsets() else {
            return;
        };
        self.in_memory.visit(range, |offset, cell| {
            if cell.load().prot().write() {
                cell.protect(CLEAN);
                pages.push(number_of(offset));
            }
        });
    }

    /// Brings the stored copy of a page up to date, if the page is still there.
    pub fn store(&mut self, page: u32) -> Result<(), MapError> {
        let offset = offset_of(page);
        let entry = self.in_memory.leaf(offset).map(PteCell::load);
        let Some((entry, frame)) = entry.and_then(|entry| Some((entry, entry.frame()?))) else {
            return Ok(());
        };
        let cell = filled(&mut self.stored, &mut self.quota, offset, &mut None, |_| ())?;
        let copy = cell.load().frame().ok_or(MapError::NoMemory)?;
        witness::storing(frame, entry.prot().write());
        // A program that writes to the page makes it dirty again.
        copy_page(frame, copy);
        Ok(())
    }

    /// The first page from `page` on, below `end`, near which there are pages in memory.
    pub fn next_pages(&self, page: u32, end: u32) -> Option<u32> {
        let table = self.in_memory.0.as_ref()?;
        let found = table.next_leaves(offset_of(page), offset_of(end));
        found.map(number_of)
    }

    /// Adds those pages of `range` to `found` that can be made again as they are: the clean ones. It has room for them.
    pub fn find_clean(&self, range: PageRange, found: &mut Vec<(u32, PhysAddr)>) {
        let Some(range) = range.offsets() else {
            return;
        };
        self.in_memory.visit(range, |offset, cell| {
            let entry = cell.load();
            if let Some(frame) = entry.frame().filter(|_| !entry.prot().write()) {
                found.push((number_of(offset), frame));
            }
        });
    }

    /// Gives up a page in memory, if it is still on this frame, clean, and no space maps it.
    pub fn evict(&mut self, page: u32, frame: PhysAddr) -> Option<Frame> {
        let cell = self.in_memory.leaf(offset_of(page))?;
        let entry = cell.load();
        if entry.frame() != Some(frame) || entry.prot().write() || frames::is_shared(frame) {
            return None;
        }
        self.quota.give();
        freed_of(cell)
    }

    /// Gives up the pages of `range`, both copies, which no CPU may be able to translate to any more because of a mapping.
    pub fn remove(&mut self, range: PageRange) -> FrameChain {
        let mut freed = FrameChain::new();
        let Some(range) = range.offsets() else {
            return freed;
        };
        for table in [&self.in_memory, &self.stored] {
            table.visit(range, |_, cell| {
                self.quota.give();
                freed_of(cell)
                    .into_iter()
                    .for_each(|frame| freed.push(frame));
            });
        }
        freed
    }

    /// Gives up the tables of pages from `first` on, all of which are gone.
    pub fn remove_tables(&mut self, first: u32) -> FrameChain {
        let mut freed = FrameChain::new();
        let gap = (offset_of(first), USER_END);
        if let Some(range) = UserRange::from_bounds(gap.0, gap.1) {
            for table in [&mut self.in_memory, &mut self.stored] {
                if let Some(table) = &mut table.0 {
                    table.prune(range, gap, |_, _, table| freed.push(table));
                }
            }
        }
        freed
    }

    /// Makes what follows `end` in its page zeroes.
    fn clear_behind(&mut self, end: u64) {
        let (page, used) = (
            end as usize / PAGE_SIZE * PAGE_SIZE,
            end as usize % PAGE_SIZE,
        );
        if used == 0 {
            return;
        }
        for table in [&self.in_memory, &self.stored] {
            if let Some(frame) = table.frame(page) {
                let behind = frame.to_direct().wrapping_add(used);
                // SAFETY: the table owns the frame, and these are its last bytes.
                unsafe { behind.write_bytes(0, PAGE_SIZE - used) };
            }
        }
    }

    /// The part of one page that begins at `offset` and has at most `len` bytes, none at `end` or behind it.
    fn piece(&self, offset: u64, len: usize, end: u64) -> Option<Piece> {
        let left = end.checked_sub(offset).filter(|left| *left > 0)?;
        let into_page = offset as usize % PAGE_SIZE;
        let len = len.min(PAGE_SIZE - into_page);
        Some(Piece {
            page: offset as usize - into_page,
            into_page,
            len: usize::try_from(left).map_or(len, |left| len.min(left)),
        })
    }
}

/// What a page has that was never written to.
static ZEROES: [u8; PAGE_SIZE] = [0; PAGE_SIZE];

/// Bytes of one page of a file, for a copy without the lock of its contents. It owns a share of the page: whatever the file gives up meanwhile, the
/// frame is nobody else's before it is dropped. Who writes to the page meanwhile may be seen in part, as on Linux.
#[derive(Debug)]
pub struct PagePart {
    bytes: *const u8,
    len: usize,
    share: Option<Share>,
}

impl PagePart {
    const fn of(bytes: &'static [u8]) -> Self {
        Self {
            bytes: bytes.as_ptr(),
            len: bytes.len(),
            share: None,
        }
    }

    /// Where they are: to be read until this is dropped, by accesses that bear others' writes.
    pub const fn as_ptr(&self) -> *const u8 {
        self.bytes
    }

    /// How many there are.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Copies them to the start of `to`, which is not shorter.
    pub fn copy_to(&self, to: &mut [u8]) {
        let to = &mut to[..self.len];
        // SAFETY: the share keeps the frame, or they are there for ever. Programs may be writing to it: then it is theirs to say what they expect to read.
        unsafe {
            to.as_mut_ptr()
                .copy_from_nonoverlapping(self.bytes, self.len)
        };
    }
}

impl Drop for PagePart {
    fn drop(&mut self) {
        let last = self.share.take().and_then(Share::release);
        last.into_iter().for_each(frames::free);
    }
}

/// A part of one page.
struct Piece {
    page: usize,
    into_page: usize,
    len: usize,
}

/// Takes a page down as clean; whether it was there and dirty.
fn clean(table: &Pages, page: u32) -> bool {
    let cell = table.leaf(offset_of(page));
    cell.is_some_and(|cell| !cell.load().is_empty() && cell.protect(CLEAN).prot().write())
}

/// The entry of the page at `offset`, which is made of `spare` or of a new frame if there is none: zeroes, and what `fill` puts there.
fn filled<'a>(
    table: &'a mut Pages,
    quota: &mut Quota,
    offset: usize,
    spare: &mut Option<Frame>,
    fill: impl FnOnce(PhysAddr),
) -> Result<&'a PteCell, MapError> {
    let cell = table.leaf_or_create(offset).ok_or(MapError::NoMemory)?;
    if cell.load().is_empty() {
        quota.take()?;
        let Some(frame) = spare.take().or_else(frames::alloc_zeroed) else {
            quota.give();
            return Err(MapError::NoMemory);
        };
        fill(frame.address());
        cell.fill(Pte::leaf(Share::of(frame).into_raw(), CLEAN));
    }
    Ok(cell)
}

/// Copies a page that a table of the file owns to one that it owns or is about to.
fn copy_page(from: PhysAddr, to: PhysAddr) {
    let (from, to) = (from.to_direct(), to.to_direct());
    // SAFETY: both frames are in the direct map and owned by the file, whose lock is held; programs may be writing to the first one.
    unsafe { to.copy_from_nonoverlapping(from, PAGE_SIZE) };
}

/// Copies what a file was made with at `offset` to a page of zeroes that it is about to own.
fn copy_origin(origin: &[u8], offset: usize, to: PhysAddr) {
    let from = &origin[origin.len().min(offset)..];
    // SAFETY: the frame is in the direct map, and nobody else has it.
    unsafe {
        to.to_direct()
            .copy_from_nonoverlapping(from.as_ptr(), from.len().min(PAGE_SIZE));
    }
}

/// Empties an entry; its frame, if nobody else has it.
fn freed_of(cell: &PteCell) -> Option<Frame> {
    let frame: PhysAddr = cell.take().frame()?;
    // SAFETY: 1. entries hold usable frames only. 2. the entry had the share and is empty now.
    unsafe { Share::from_raw(frame) }.release()
}
