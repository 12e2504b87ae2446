//! Secondary TLBs: who else translates by page tables, and is told of flushes.

use core::ffi::c_void;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

use shootdown::{Cpus, FlushScope};

use crate::layout::{EngineStorage, SpaceStorage};
use crate::machine::{Machine, N, machine};
use crate::opaque::check_pointer;
use crate::space::space_of;
use crate::status::{
    Outcome, SHOOTDOWN_ALREADY, SHOOTDOWN_FAILED, SHOOTDOWN_INVALID, Status, status,
};

/// Who listens to the flushes of a space, or of the kernel's part; null for nobody.
#[derive(Debug)]
pub(crate) struct Listener(AtomicPtr<c_void>);

impl Listener {
    pub(crate) const fn none() -> Self {
        Self(AtomicPtr::new(null_mut()))
    }

    pub(crate) fn listens(&self) -> bool {
        !self.0.load(Ordering::Relaxed).is_null()
    }
}

/// The machine; a space of it, or the kernel's part if the pointer is null; and who listens there.
///
/// # Safety
/// 1. As `machine` and `space_of`.
unsafe fn scope(
    engine: *mut EngineStorage,
    space: *const SpaceStorage,
) -> Outcome<(
    &'static Machine,
    FlushScope<'static, Cpus<N>>,
    &'static Listener,
)> {
    // SAFETY: duty 1.
    let machine = unsafe { machine(engine) }?;
    if space.is_null() {
        return Ok((machine, FlushScope::Kernel, &machine.listener));
    }
    // SAFETY: duty 1.
    let space = unsafe { space_of(machine, space) }?;
    Ok((machine, FlushScope::Space(&space.space), &space.listener))
}

/// From here on each flush of space, or of the kernel's part if space is null, is told to listener, which is not null and whose meaning is the kernel's, by begin_secondary and
/// finish_secondary of the platform. Begin to read the tables only when this has returned. Rights that are only added make no flush. Where several keep
/// translations of one space, the kernel tells them one by one. Calls of this, shootdown_unlisten and shootdown_release for one space come one after the other. Any context; does not block.
///
/// Errors: SHOOTDOWN_NULL, SHOOTDOWN_INVALID (also if the platform lacks one of the three functions), SHOOTDOWN_NOT_INITIALISED, SHOOTDOWN_OTHER_ENGINE,
/// SHOOTDOWN_ALREADY (somebody listens there).
///
/// # Safety
/// 1. The pointers are null or lead to what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_listen(
    engine: *mut EngineStorage,
    space: *mut SpaceStorage,
    listener: *mut c_void,
) -> Status {
    status((|| {
        // SAFETY: duty 1.
        let (machine, scope, known) = unsafe { scope(engine, space) }?;
        check_pointer(listener.cast::<u8>())?;
        if !machine.engine.platform().has_secondary() {
            return Err(SHOOTDOWN_INVALID);
        }
        // ORDERING: acquires the end of the one before; pairs with `end`.
        let claimed =
            (known.0).compare_exchange(null_mut(), listener, Ordering::Acquire, Ordering::Relaxed);
        claimed.map_err(|_| SHOOTDOWN_ALREADY)?;
        let secondary = machine.engine.secondary_tlbs();
        secondary.listen(scope, listener.expose_provenance() as u64);
        Ok(())
    })())
}

/// Nobody listens to flushes of space, or of the kernel's part if it is null, any more, if somebody did. When this returns, no begin_secondary is under way or comes; what was begun is
/// still finished. Its device must not read the tables any more before. Interrupts and preemption in any state; spins as long as another CPU is inside begin_secondary, serving the
/// flushes of this CPU: hold no lock that this takes.
///
/// Errors: SHOOTDOWN_NULL, SHOOTDOWN_INVALID, SHOOTDOWN_NOT_INITIALISED, SHOOTDOWN_OTHER_ENGINE.
///
/// # Safety
/// 1. The pointers are null or lead to what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_unlisten(
    engine: *mut EngineStorage,
    space: *mut SpaceStorage,
) -> Status {
    status((|| {
        // SAFETY: duty 1.
        let (machine, scope, known) = unsafe { scope(engine, space) }?;
        machine.engine.secondary_tlbs().unlisten(scope);
        known.end();
        Ok(())
    })())
}

/// Has the listener of space, if there is one, let go of its tables by release_secondary. It is told nothing any more. Before shootdown_space_deinit. Context as
/// shootdown_unlisten.
///
/// Errors: SHOOTDOWN_NULL, SHOOTDOWN_INVALID, SHOOTDOWN_NOT_INITIALISED, SHOOTDOWN_OTHER_ENGINE, SHOOTDOWN_FAILED (it did not let go, and listens still: the tables must
/// stay).
///
/// # Safety
/// 1. The pointers are null or lead to what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_release(
    engine: *mut EngineStorage,
    space: *mut SpaceStorage,
) -> Status {
    status((|| {
        // SAFETY: duty 1.
        let (machine, scope, known) = unsafe { scope(engine, space) }?;
        let released = machine.engine.secondary_tlbs().release(scope);
        released.map_err(|_| SHOOTDOWN_FAILED)?;
        known.end();
        Ok(())
    })())
}

impl Listener {
    fn end(&self) {
        // ORDERING: Release: the engine has forgotten it; pairs with `shootdown_listen`.
        self.0.store(null_mut(), Ordering::Release);
    }
}
