//! [`Machines`]: the machines of a space, which listen to its flushes and follow what it loses.

use super::machine::Nested;
use crate::mm::error::MapError;
use crate::mm::invalidate::GuestPending;
use crate::mm::layout::PhysAddr;
use crate::mm::page_table::PageTable;
use crate::mm::space::MemorySpace;
use crate::platform::SHOOTDOWN;
use crate::sync::IrqMutex;
use alloc::sync::Arc;
use core::num::NonZeroU64;
use core::ptr;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use shootdown::remote::FlushRequest;

/// Most machines at one time: each takes kernel heap that programs could ask for without end.
const MOST_MACHINES: usize = 16;

/// A machine by its number, which others may get after it.
#[derive(Debug)]
struct Seat {
    machine: IrqMutex<Option<Arc<Nested>>>,
    /// Flushes of its space that have taken something away from it, or from who had the number before, and have not had it flushed.
    owed: AtomicUsize,
}

static SEATS: [Seat; MOST_MACHINES] = [const {
    Seat {
        machine: IrqMutex::new(None),
        owed: AtomicUsize::new(0),
    }
}; MOST_MACHINES];

/// The virtual machines whose memory is a part of an address space: their numbers, a bit each. They change under the lock of the space.
#[derive(Debug)]
pub(in crate::mm) struct Machines(AtomicU64);

impl Machines {
    /// None.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Whether there are some.
    pub fn are_any(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }
}

impl MemorySpace {
    /// One more machine, which shows nothing yet, and keeps this space; its number.
    pub(super) fn add_machine(&self, machine: &Arc<Nested>) -> Result<usize, MapError> {
        let inner = self.lock();
        let number = take_seat(machine).ok_or(MapError::NoMemory)?;
        if self.machines.0.fetch_or(1 << number, Ordering::Relaxed) == 0 {
            let name = ptr::from_ref(self).expose_provenance() as u64;
            SHOOTDOWN.secondary_tlbs().listen(&self.engine, name);
        }
        drop(inner);
        Ok(number)
    }

    /// The machine with that number is no more.
    pub(super) fn remove_machine(&self, number: usize) {
        let inner = self.lock();
        let bit = 1 << number;
        if self.machines.0.fetch_and(!bit, Ordering::Relaxed) == bit {
            SHOOTDOWN.secondary_tlbs().unlisten(&self.engine);
        }
        let gone = SEATS[number].machine.lock().take();
        drop(inner);
        drop(gone);
    }

    /// What the page table has at a user address: the frame, and whether it may be written to.
    ///
    /// # Safety
    /// 1. As [`PageTable::peek`].
    unsafe fn peek(&self, user: usize) -> Option<(PhysAddr, bool)> {
        // SAFETY: 1. the caller's.
        let entry = unsafe { PageTable::peek(PhysAddr::new(self.engine.root()), user) }?;
        let frame = entry.frame().filter(|_| entry.is_present())?;
        Some((frame, entry.prot().write()))
    }
}

fn take_seat(machine: &Arc<Nested>) -> Option<usize> {
    SEATS.iter().position(|seat| {
        let mut place = seat.machine.lock();
        let is_free = place.is_none();
        if is_free {
            *place = Some(machine.clone());
        }
        is_free
    })
}

/// The space `listener` is being flushed: its machines show no more of what `request` names than its page table does. Returns the numbers of those that have to be
/// flushed, a bit each, and those of `before`. Interrupts are off, and the lock of the space is held (but for deliberate mistakes).
///
/// # Safety
/// 1. `listener` listens, by `add_machine`.
pub unsafe fn begin_notice(
    listener: u64,
    request: &FlushRequest,
    before: Option<NonZeroU64>,
) -> Option<NonZeroU64> {
    let space = ptr::with_exposed_provenance::<MemorySpace>(listener as usize);
    // SAFETY: 1. it has a machine, which keeps it; `remove_machine` waits for us.
    let space = unsafe { &*space };
    let mut owed = before.map_or(0, NonZeroU64::get);
    for number in numbers(space.machines.0.load(Ordering::Relaxed)) {
        let seat = &SEATS[number];
        let machine = seat.machine.lock();
        // ORDERING: who finds nothing owed comes after what was waited for; pairs with the release in `finish_notice`.
        let is_owed = seat.owed.load(Ordering::Acquire) > 0;
        let has_lost = |machine: &Arc<Nested>| machine.narrow(space, request) || is_owed;
        // Twice in one wait it is flushed once.
        if machine.as_ref().is_some_and(has_lost) && owed & 1 << number == 0 {
            seat.owed.fetch_add(1, Ordering::Relaxed);
            owed |= 1 << number;
        }
    }
    NonZeroU64::new(owed)
}

/// Returns when no virtual CPU uses what the machines with these numbers have lost. A machine that is gone has none that runs. Context: as a wait for other CPUs.
pub fn finish_notice(owed: u64) {
    for number in numbers(owed) {
        let seat = &SEATS[number];
        let machine = seat.machine.lock().clone();
        if let Some(machine) = machine {
            let pending = GuestPending::submit_narrowed(&machine.engine, &machine.in_flight);
            pending.into_iter().for_each(GuestPending::finish);
        }
        // ORDERING: what was waited for comes before; pairs with `begin_notice`.
        seat.owed.fetch_sub(1, Ordering::Release);
    }
}

fn numbers(bits: u64) -> impl Iterator<Item = usize> {
    (0..MOST_MACHINES).filter(move |number| bits & 1 << number != 0)
}

impl Nested {
    /// Whether it may have lost something, now or in a flush that is not over.
    fn narrow(&self, space: &MemorySpace, request: &FlushRequest) -> bool {
        let state = self.state.lock();
        let mut has_lost = false;
        for range in request.ranges() {
            for slot in &state.slots {
                if let Some(shown) = slot.shown_in((range.start(), range.end())) {
                    // SAFETY: 1. whoever flushes the space holds its lock, under which tables are taken out (but for deliberate mistakes).
                    let allowed = |guest| unsafe { space.peek(slot.user_of(guest)) };
                    has_lost |= state.table.narrow(shown, allowed);
                }
            }
        }
        // What is in flight the guest has lost already, and may still use.
        has_lost || self.in_flight.is_any()
    }
}
