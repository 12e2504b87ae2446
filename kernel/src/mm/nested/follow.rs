//! [`Machines`]: the machines of a space, which follow what it loses.

use super::machine::Nested;
use crate::mm::error::MapError;
use crate::mm::invalidate::GuestPending;
use crate::mm::layout::PhysAddr;
use crate::mm::pte::PteCell;
use crate::mm::space::{Inner, MemorySpace};
use crate::sync::SleepMutex;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

/// The virtual machines whose memory is a part of an address space.
#[derive(Debug)]
pub(in crate::mm) struct Machines {
    /// Whether there ever were any. Spares all others the look.
    any: AtomicBool,
    list: SleepMutex<Vec<Arc<Nested>>>,
}

impl Machines {
    /// None.
    pub const fn new() -> Self {
        Self {
            any: AtomicBool::new(false),
            list: SleepMutex::new(Vec::new()),
        }
    }

    /// One more, which shows nothing yet.
    pub(super) fn add(&self, machine: &Arc<Nested>) -> Result<(), MapError> {
        let mut list = self.list.lock();
        list.try_reserve(1).map_err(|_| MapError::NoMemory)?;
        list.push(machine.clone());
        // Before it shows anything: its first entry is made under the lock of the space, which orders this for all that take it.
        self.any.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// That one is no more.
    pub(super) fn remove(&self, machine: &Arc<Nested>) {
        let mut list = self.list.lock();
        let at = list.iter().position(|known| Arc::ptr_eq(known, machine));
        let gone = at.map(|at| list.swap_remove(at));
        drop(list);
        drop(gone);
    }

    /// Has the nested tables show of the user addresses `span` no more than `allowed` says, and submits the flushes that this takes. The lock of the space is
    /// held. All but the last are waited for here: a space has one machine, mostly.
    fn narrow(
        &self,
        span: (usize, usize),
        allowed: impl Fn(usize) -> Option<(PhysAddr, bool)>,
    ) -> Option<GuestPending> {
        if !self.any.load(Ordering::Relaxed) {
            return None;
        }
        let mut last: Option<GuestPending> = None;
        for machine in self.list.lock().iter() {
            if let Some(pending) = machine.narrow(span, &allowed)
                && let Some(before) = last.replace(pending)
            {
                before.finish();
            }
        }
        last
    }
}

impl Nested {
    fn narrow(
        &self,
        span: (usize, usize),
        allowed: impl Fn(usize) -> Option<(PhysAddr, bool)>,
    ) -> Option<GuestPending> {
        let state = self.state.lock();
        let mut has_lost = false;
        for slot in &state.slots {
            if let Some(range) = slot.shown_in(span) {
                has_lost |= state
                    .table
                    .narrow(range, |guest| allowed(slot.user_of(guest)));
            }
        }
        // What is in flight the guest has lost already, and may still use.
        if !has_lost && !self.in_flight.is_any() {
            return None;
        }
        // Under the lock: the change comes before the generation (I1), and nobody installs anything in between.
        GuestPending::submit_narrowed(&self.engine, &self.in_flight)
    }
}

impl MemorySpace {
    /// Something at the user addresses `span` was taken away in this space, whose lock the caller has: nested tables follow.
    pub(in crate::mm) fn narrow_guests(
        &self,
        inner: &Inner,
        span: (usize, usize),
    ) -> Option<GuestPending> {
        self.machines.narrow(span, |user| {
            let entry = inner.table.leaf(user).map(PteCell::load)?;
            let frame = entry.frame().filter(|_| entry.is_present())?;
            Some((frame, entry.prot().write()))
        })
    }

    /// Nested tables show nothing of the user addresses `span` any more; returns when no guest uses it. The lock of the space is held.
    pub(in crate::mm) fn hide_from_guests(&self, span: (usize, usize)) {
        let pending = self.machines.narrow(span, |_| None);
        pending.into_iter().for_each(GuestPending::finish);
    }
}
