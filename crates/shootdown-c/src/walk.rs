//! Walks of page tables without their lock.

use shootdown::{CpuId, user_memory::Walk};

use crate::host::Host;
use crate::layout::{EngineStorage, SpaceStorage, WalkStorage};
use crate::machine::{Machine, machine};
use crate::opaque::{Opaque, Stored};
use crate::space::space_of;
use crate::status::{SHOOTDOWN_INVALID, Status, status};

/// What lies in the memory of a walk.
#[derive(Debug)]
pub(crate) struct Section {
    machine: &'static Machine,
    cpu: CpuId,
    walk: Walk<'static, Host>,
}

// SAFETY: 1. `Opaque::at` asserts it.
unsafe impl Stored for Section {
    type Storage = WalkStorage;
    const MARK: u64 = 0x7761_6c6b_2d2d_2d43;
}

/// Begins a section: until shootdown_walk_end no page table of space is freed or reused, because flushes with SHOOTDOWN_FREED_TABLES or SHOOTDOWN_STRICT and
/// shootdown_sync_walks wait. Tables stay, pages do not: read an entry once, take a reference to the page unless it has none left, then read the entry again.
/// Interrupts are off from here to shootdown_walk_end, on this CPU. Inside, poll as in any lock; take no lock whose holder may wait for freed tables (try, and end the
/// section if that fails); do not wait in the engine, flush freed tables, call and wait, load a root or become lazy: the engine panics at these. Sections may lie
/// in each other, the inner one ends first. Does not block.
///
/// Errors: SHOOTDOWN_NULL, SHOOTDOWN_INVALID, SHOOTDOWN_NOT_INITIALISED, SHOOTDOWN_OTHER_ENGINE, SHOOTDOWN_NO_MEMORY, SHOOTDOWN_NOT_ONLINE, SHOOTDOWN_ALREADY (walk is
/// in use).
///
/// # Safety
/// 1. The pointers are null or lead to what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_walk_begin(
    engine: *mut EngineStorage,
    space: *mut SpaceStorage,
    walk: *mut WalkStorage,
) -> Status {
    status((|| {
        // SAFETY: duty 1.
        let machine = unsafe { machine(engine) }?;
        // SAFETY: duty 1.
        let space = unsafe { space_of(machine, space) }?;
        // SAFETY: duty 1.
        let memory = unsafe { Opaque::<Section>::at(walk) }?;
        let here = machine.here()?;
        machine.check_online(here.cpu)?;
        memory.fill(|| Section {
            machine,
            cpu: here.cpu,
            walk: machine.engine.user_memory().walk(&space.space),
        })
    })())
}

/// Ends a section on the CPU that began it, and answers what waited for its end.
///
/// Errors: SHOOTDOWN_NULL, SHOOTDOWN_INVALID (also on another CPU), SHOOTDOWN_NOT_INITIALISED (it is empty).
///
/// # Safety
/// 1. The pointer is null or leads to what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_walk_end(walk: *mut WalkStorage) -> Status {
    status((|| {
        // SAFETY: duty 1.
        let memory = unsafe { Opaque::<Section>::at(walk) }?;
        let section = memory.get()?;
        if section.machine.here()?.cpu != section.cpu {
            return Err(SHOOTDOWN_INVALID);
        }
        drop(memory.take()?.walk);
        Ok(())
    })())
}

/// Waits until every CPU that was walking tables of space has ended its section: for tables that change and stay in use. Unlink the table first. Flushes with
/// SHOOTDOWN_FREED_TABLES do the same by themselves. Interrupts and preemption in any state; spins, serving the flushes of this CPU. Not inside a section.
///
/// Errors: SHOOTDOWN_NULL, SHOOTDOWN_INVALID, SHOOTDOWN_NOT_INITIALISED, SHOOTDOWN_OTHER_ENGINE, SHOOTDOWN_NO_MEMORY.
///
/// # Safety
/// 1. The pointers are null or lead to what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_sync_walks(
    engine: *mut EngineStorage,
    space: *mut SpaceStorage,
) -> Status {
    status((|| {
        // SAFETY: duty 1.
        let machine = unsafe { machine(engine) }?;
        // SAFETY: duty 1.
        let space = unsafe { space_of(machine, space) }?;
        machine.here()?;
        machine.engine.user_memory().sync_walks(&space.space);
        Ok(())
    })())
}
