//! Flushes: make every CPU forget these pages.

use shootdown::{FlushRange, FlushRanges, FlushScope, FreedTables, PageSize};

use crate::layout::{EngineStorage, SpaceStorage, TicketStorage};
use crate::machine::{Machine, machine};
use crate::opaque::{Opaque, check_pointer};
use crate::space::{Space, space_of};
use crate::status::{Outcome, SHOOTDOWN_FAILED, SHOOTDOWN_INVALID, SHOOTDOWN_OK, Status, status};
use crate::ticket::{Ticket, shootdown_ticket_give_up, shootdown_ticket_wait};

/// Flag of a flush: page-table pages were unlinked and will be freed or reused. Its ranges then cover everything that they translated, not just what
/// was mapped. Without it only leaf entries changed.
pub const SHOOTDOWN_FREED_TABLES: u32 = 1;

/// Flag of a flush: when the wait has returned, no CPU holds an old translation under a tag that is loaded, and none is left out that looks later. For
/// changes in which the old entry and the new one must not be cached side by side: break before make, and changes of the page size on some processors.
/// Clear the entry, flush, wait, write the new one.
pub const SHOOTDOWN_STRICT: u32 = 2;

/// As the count of a range: the whole space. The header has it by the name of its value.
///
/// cbindgen:ignore
pub const SHOOTDOWN_ALL_PAGES: usize = usize::MAX;

/// Pages to forget: count pages of 2^page_shift bytes from the one that holds start on. page_shift is that of the smallest pages that may be mapped
/// there (x86: 12, 21 or 30), also with SHOOTDOWN_FREED_TABLES; 12 if that is not known. Translations are dropped one for each such page.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Range {
    /// An address in the first page.
    pub start: usize,
    /// How many pages; SHOOTDOWN_ALL_PAGES is everything.
    pub count: usize,
    /// Binary logarithm of the size of a page, 12 to 48.
    pub page_shift: u32,
}

/// What C may ask for.
const SHIFTS: core::ops::RangeInclusive<u32> = 12..=48;

impl Range {
    /// As the engine has it.
    pub(crate) fn of(range: FlushRange) -> Self {
        if range == FlushRange::WHOLE {
            return Self {
                start: 0,
                count: SHOOTDOWN_ALL_PAGES,
                page_shift: 12,
            };
        }
        Self {
            start: range.start(),
            count: range.page_count(),
            page_shift: range.page_size().bytes().trailing_zeros(),
        }
    }

    fn checked(&self) -> Outcome<FlushRange> {
        if self.count == SHOOTDOWN_ALL_PAGES {
            return Ok(FlushRange::WHOLE);
        }
        if !SHIFTS.contains(&self.page_shift) {
            return Err(SHOOTDOWN_INVALID);
        }
        let size = PageSize::from_shift(self.page_shift as u8);
        Ok(FlushRange::pages(self.start, self.count, size))
    }
}

/// What a flush is about, as C says it.
struct Wanted {
    ranges: *const Range,
    count: usize,
    flags: u32,
}

impl Wanted {
    /// # Safety
    /// 1. The ranges are null or as many as the count says.
    unsafe fn checked(&self) -> Outcome<(FlushRanges, FreedTables)> {
        if self.flags & !(SHOOTDOWN_FREED_TABLES | SHOOTDOWN_STRICT) != 0 {
            return Err(SHOOTDOWN_INVALID);
        }
        let freed = match self.flags & SHOOTDOWN_FREED_TABLES {
            0 => FreedTables::No,
            _ => FreedTables::Yes,
        };
        let mut all = FlushRanges::EMPTY;
        if self.count > 0 {
            check_pointer(self.ranges)?;
        }
        for index in 0..self.count {
            // SAFETY: duty 1.
            let range = unsafe { self.ranges.add(index) };
            // SAFETY: duty 1.
            let range = unsafe { *range };
            all.add(range.checked()?);
        }
        match self.flags & SHOOTDOWN_STRICT {
            0 => Ok((all, freed)),
            _ => Ok((all.strict(), freed)),
        }
    }
}

/// Submits a flush of `space`, or of the kernel's part, into the memory of a ticket.
///
/// # Safety
/// 1. Pointers are null or lead to what the header says.
unsafe fn submit(
    machine: &'static Machine,
    space: Option<&Space>,
    wanted: &Wanted,
    ticket: *mut TicketStorage,
) -> Outcome {
    // SAFETY: duty 1.
    let (ranges, freed) = unsafe { wanted.checked() }?;
    // SAFETY: duty 1.
    let memory = unsafe { Opaque::<Ticket>::at(ticket) }?;
    machine.check_memory()?;
    memory.fill(|| {
        Ticket::Flush(match space {
            Some(space) => machine.engine.submit_flush(&space.space, ranges, freed),
            None => machine
                .engine
                .submit_flush(FlushScope::Kernel, ranges, freed),
        })
    })
}

/// Starts making every CPU forget count ranges of space, here and elsewhere, and puts into ticket, which is empty, the duty to wait for the rest.
/// Call it after changing the page tables and before releasing the lock that protects them; unlock, wait, and only then reuse frames and
/// tables. No range without SHOOTDOWN_FREED_TABLES is nothing to do, with it everything. Any context but NMI, also inside a called
/// function and under locks whose spin loops poll; does not wait for other CPUs (it may wait for a free slot of this one, serving flushes).
///
/// Errors: SHOOTDOWN_NULL, SHOOTDOWN_INVALID (a shift or a flag), SHOOTDOWN_NOT_INITIALISED, SHOOTDOWN_OTHER_ENGINE, SHOOTDOWN_NO_MEMORY,
/// SHOOTDOWN_ALREADY (the ticket is not empty); then nothing is flushed, and nothing may be reused.
///
/// # Safety
/// 1. The pointers are null or lead to what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_submit_flush(
    engine: *mut EngineStorage,
    space: *mut SpaceStorage,
    ranges: *const Range,
    count: usize,
    flags: u32,
    ticket: *mut TicketStorage,
) -> Status {
    status((|| {
        // SAFETY: duty 1.
        let machine = unsafe { machine(engine) }?;
        // SAFETY: duty 1.
        let space = unsafe { space_of(machine, space) }?;
        let wanted = Wanted {
            ranges,
            count,
            flags,
        };
        // SAFETY: duty 1.
        unsafe { submit(machine, Some(space), &wanted, ticket) }
    })())
}

/// As shootdown_submit_flush, for the kernel's part, which all spaces share; global pages too.
///
/// # Safety
/// 1. The pointers are null or lead to what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_submit_flush_kernel(
    engine: *mut EngineStorage,
    ranges: *const Range,
    count: usize,
    flags: u32,
    ticket: *mut TicketStorage,
) -> Status {
    status((|| {
        // SAFETY: duty 1.
        let machine = unsafe { machine(engine) }?;
        let wanted = Wanted {
            ranges,
            count,
            flags,
        };
        // SAFETY: duty 1.
        unsafe { submit(machine, None, &wanted, ticket) }
    })())
}

/// As shootdown_submit_flush, and waits at once: under a lock only if every CPU that spins for it polls.
///
/// Errors: as there, and SHOOTDOWN_FAILED: a secondary TLB may go on using what was flushed, which must not be reused.
///
/// # Safety
/// 1. The pointers are null or lead to what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_flush(
    engine: *mut EngineStorage,
    space: *mut SpaceStorage,
    ranges: *const Range,
    count: usize,
    flags: u32,
) -> Status {
    let mut ticket = TicketStorage::ZERO;
    // SAFETY: duty 1; the ticket is ours.
    let submitted =
        unsafe { shootdown_submit_flush(engine, space, ranges, count, flags, &raw mut ticket) };
    finish(submitted, &mut ticket)
}

/// As shootdown_flush, for the kernel's part.
///
/// # Safety
/// 1. The pointers are null or lead to what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_flush_kernel(
    engine: *mut EngineStorage,
    ranges: *const Range,
    count: usize,
    flags: u32,
) -> Status {
    let mut ticket = TicketStorage::ZERO;
    // SAFETY: duty 1; the ticket is ours.
    let submitted =
        unsafe { shootdown_submit_flush_kernel(engine, ranges, count, flags, &raw mut ticket) };
    finish(submitted, &mut ticket)
}

/// Waits for a flush that was submitted.
fn finish(submitted: Status, ticket: &mut TicketStorage) -> Status {
    match submitted {
        SHOOTDOWN_OK => {
            // SAFETY: the ticket is a ticket.
            let waited = unsafe { shootdown_ticket_wait(ticket) };
            if waited == SHOOTDOWN_FAILED {
                // SAFETY: as above.
                unsafe { shootdown_ticket_give_up(ticket) };
            }
            waited
        }
        refused => refused,
    }
}
