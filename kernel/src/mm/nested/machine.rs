//! [`GuestMemory`]: the memory of one machine, for the code that runs it.

use super::fault::{TRIES, access};
use super::slot::{Log, Slot, SlotRequest};
use super::state::{Change, MOST_SLOTS, State};
use super::table::NestedTable;
use crate::cpus::Cpus;
use crate::errno::Errno;
use crate::mm::error::MapError;
use crate::mm::invalidate::{GuestPending, InFlight};
use crate::mm::space::MemorySpace;
use crate::platform::SHOOTDOWN;
use crate::sync::{IrqMutex, SleepMutex};
use alloc::sync::Arc;
use alloc::vec::Vec;
use shootdown::{Root, guest::GuestSpace};

/// One machine, as its space has it.
#[derive(Debug)]
pub(super) struct Nested {
    pub engine: GuestSpace<Cpus>,
    /// Requests about slots and logs come one after the other, with their flushes: who finds a page clean relies on it.
    pub requests: SleepMutex<()>,
    pub state: IrqMutex<State>,
    /// Flushes of the machine that are not its space's. Each is noted here before something is taken away, under the lock of `state`, and submitted afterwards.
    pub in_flight: InFlight,
}

/// The memory of a virtual machine: parts of the address space of its VMM. Dropping it ends that; no virtual CPU may run, and the caller
/// holds no lock.
#[derive(Debug)]
pub struct GuestMemory {
    pub(super) space: Arc<MemorySpace>,
    pub(super) nested: Arc<Nested>,
    number: usize,
}

impl GuestMemory {
    /// Nothing yet, of this space.
    ///
    /// # Errors
    /// [`MapError::NoMemory`].
    pub fn new(space: Arc<MemorySpace>) -> Result<Self, MapError> {
        let mut slots = Vec::new();
        slots
            .try_reserve_exact(MOST_SLOTS)
            .map_err(|_| MapError::NoMemory)?;
        let table = NestedTable::new().ok_or(MapError::NoMemory)?;
        // SAFETY: 1. it is loaded for guests only, who need nothing of the kernel. 2. tables leave it through a flush of the guest, and the
        // root when no virtual CPU is left. 3. it is no window root.
        let root = unsafe { Root::new(table.root().as_u64()) };
        let nested = Arc::new(Nested {
            engine: GuestSpace::new(&SHOOTDOWN, root),
            requests: SleepMutex::new(()),
            state: IrqMutex::new(State { slots, table }),
            in_flight: InFlight::none(),
        });
        let number = space.add_machine(&nested)?;
        Ok(Self {
            space,
            nested,
            number,
        })
    }

    /// The engine's handle.
    pub fn engine(&self) -> &GuestSpace<Cpus> {
        &self.nested.engine
    }

    /// Whether it is a part of that space.
    pub fn is_of(&self, space: &Arc<MemorySpace>) -> bool {
        Arc::ptr_eq(&self.space, space)
    }

    /// Adds, changes or removes a slot. Returns when no virtual CPU uses what it has lost. The pages of a new log are all dirty if `all_dirty`.
    ///
    /// # Errors
    /// As Linux's `KVM_SET_USER_MEMORY_REGION`: EINVAL, EEXIST, ENOMEM.
    pub fn set_slot(&self, wanted: &SlotRequest, all_dirty: bool) -> Result<(), Errno> {
        let turn = self.nested.requests.lock();
        let Nested {
            engine, in_flight, ..
        } = &*self.nested;
        // Before anything is taken away: who finds it gone waits as well.
        let noted = in_flight.clone();
        let mut log = None;
        let tables = loop {
            let change = self.nested.state.lock().set(wanted, &mut log, all_dirty)?;
            match change {
                // Nothing else changes slots meanwhile.
                Change::Log(pages) => log = Some(Log::new(pages, all_dirty)?),
                Change::Done => break None,
                Change::Flush(tables) => break Some(tables),
            }
        };
        let pending = tables.map(|tables| GuestPending::submit(engine, &noted, tables));
        pending.into_iter().for_each(GuestPending::finish);
        drop(turn);
        Ok(())
    }

    /// Where the VMM has what the guest has at that address.
    pub fn user_address(&self, guest: usize) -> Option<usize> {
        let state = self.nested.state.lock();
        let slot = state.slots.iter().find(|slot| slot.holds(guest))?;
        Some(slot.user_of(guest))
    }

    /// Writes to what the guest has at that address: `write` gets the place where the VMM has it until it returns. Interrupts are off; where it fails the
    /// page is made, and it is called again. The page is dirty. `None` where the guest may not write either, or the page cannot be made. May sleep.
    pub fn write_with<R, E>(
        &self,
        guest: usize,
        mut write: impl FnMut(usize) -> Result<R, E>,
    ) -> Option<R> {
        for _ in 0..TRIES {
            let mut state = self.nested.state.lock();
            let slot = state.writable_slot(guest)?;
            let user = slot.user_of(guest);
            if let Ok(done) = write(user) {
                slot.mark_dirty(slot.page_of(guest));
                return Some(done);
            }
            drop(state);
            // Without the lock, which a fault takes behind that of the space.
            self.space.fault(user, access(true)).ok()?;
        }
        None
    }

    /// The same, but never sleeps: `None` also where others are at it, or the page is not there.
    pub fn write_now<R, E>(
        &self,
        guest: usize,
        write: impl FnOnce(usize) -> Result<R, E>,
    ) -> Option<R> {
        let mut state = self.nested.state.try_lock()?;
        let slot = state.writable_slot(guest)?;
        let done = write(slot.user_of(guest)).ok()?;
        slot.mark_dirty(slot.page_of(guest));
        Some(done)
    }
}

impl State {
    fn writable_slot(&mut self, guest: usize) -> Option<&mut Slot> {
        let slot = self.slots.iter_mut().find(|slot| slot.holds(guest))?;
        (!slot.is_read_only).then_some(slot)
    }
}

impl Drop for GuestMemory {
    fn drop(&mut self) {
        self.space.remove_machine(self.number);
    }
}
