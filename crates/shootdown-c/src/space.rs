//! Address spaces: which CPU has which page tables loaded.

use shootdown::{AddressSpace, Cpus, KernelRoot, Root};

use crate::layout::{EngineStorage, SpaceStorage};
use crate::machine::{Here, Machine, N, machine};
use crate::opaque::{Opaque, Stored, check_pointer};
use crate::secondary::Listener;
use crate::status::{
    Outcome, SHOOTDOWN_BUSY, SHOOTDOWN_LOADED, SHOOTDOWN_NOT_LOADED, SHOOTDOWN_OTHER_ENGINE,
    Status, status,
};

/// What lies in the memory of a space.
#[derive(Debug)]
pub(crate) struct Space {
    machine: &'static Machine,
    pub(crate) space: AddressSpace<Cpus<N>>,
    pub(crate) listener: Listener,
}

// SAFETY: 1. `Opaque::at` asserts it.
unsafe impl Stored for Space {
    type Storage = SpaceStorage;
    const MARK: u64 = 0x7370_6163_652d_2d43;
}

/// The space behind a pointer of C's, of this engine.
///
/// # Safety
/// 1. It is null or a space of C's, whose duty it is that it stays until `shootdown_space_deinit`.
pub(crate) unsafe fn space_of(
    machine: &'static Machine,
    space: *const SpaceStorage,
) -> Outcome<&'static Space> {
    // SAFETY: duty 1.
    let space = unsafe { Opaque::<Space>::at(space) }?.get()?;
    match core::ptr::eq(space.machine, machine) {
        true => Ok(space),
        false => Err(SHOOTDOWN_OTHER_ENGINE),
    }
}

/// The root of a space, for which C vouches.
fn root(value: u64) -> Root {
    // SAFETY: 1. to 3. are duties that the header states where it takes a root. 4. There are no windows.
    unsafe { Root::new(value) }
}

/// A kernel's root, for which C vouches.
fn kernel_root(value: u64) -> KernelRoot {
    // SAFETY: 1. to 3. as above.
    unsafe { KernelRoot::new(value) }
}

/// The running CPU, which is online and may switch.
fn here(machine: &'static Machine) -> Outcome<Here<'static>> {
    let here = machine.here()?;
    here.check_outside_function()?;
    machine.check_online(here.cpu)?;
    Ok(here)
}

/// Makes a space of zeroed memory. root is what load_root takes: the tables map what the kernel and the engine need to go on, are those of no other space,
/// are loaded by the engine alone, and stay until shootdown_space_deinit. Any context; does not block.
///
/// Errors: SHOOTDOWN_NULL, SHOOTDOWN_INVALID, SHOOTDOWN_NOT_INITIALISED (the engine), SHOOTDOWN_ALREADY.
///
/// # Safety
/// 1. The pointers are null or lead to what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_space_init(
    engine: *mut EngineStorage,
    space: *mut SpaceStorage,
    root: u64,
) -> Status {
    status((|| {
        // SAFETY: duty 1.
        let machine = unsafe { machine(engine) }?;
        // SAFETY: duty 1.
        let memory = unsafe { Opaque::<Space>::at(space) }?;
        let root = self::root(root);
        memory.fill(|| Space {
            machine,
            space: AddressSpace::new(&machine.engine, root),
            listener: Listener::none(),
        })
    })())
}

/// Ends a space, whose tables may be freed then: no CPU has it loaded, lazily or not, and nobody uses it in any other way. Any context; does
/// not block.
///
/// Errors: SHOOTDOWN_NULL, SHOOTDOWN_INVALID, SHOOTDOWN_NOT_INITIALISED, SHOOTDOWN_OTHER_ENGINE, SHOOTDOWN_LOADED (some CPU has not left
/// it: its tables must not be freed), SHOOTDOWN_BUSY (somebody listens: call shootdown_release before).
///
/// # Safety
/// 1. The pointers are null or lead to what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_space_deinit(
    engine: *mut EngineStorage,
    space: *mut SpaceStorage,
) -> Status {
    status((|| {
        // SAFETY: duty 1.
        let machine = unsafe { machine(engine) }?;
        // SAFETY: duty 1.
        let known = unsafe { space_of(machine, space) }?;
        if machine.has_loaded(known) || !known.space.cpus().is_empty() {
            return Err(SHOOTDOWN_LOADED);
        }
        if known.listener.listens() {
            return Err(SHOOTDOWN_BUSY);
        }
        // SAFETY: duty 1.
        let memory = unsafe { Opaque::<Space>::at(space) }?;
        memory.take().map(drop)
    })())
}

/// Makes space the loaded one of this CPU, and leaves the one that was loaded so far, lazily or not. The engine loads the root. Interrupts in any
/// state, but the caller must not leave this CPU meanwhile; does not block. If space is loaded already, ends lazy mode, or does nothing.
///
/// Errors: SHOOTDOWN_NULL, SHOOTDOWN_INVALID, SHOOTDOWN_NOT_INITIALISED, SHOOTDOWN_OTHER_ENGINE, SHOOTDOWN_NO_MEMORY, SHOOTDOWN_NOT_ONLINE,
/// SHOOTDOWN_IN_FUNCTION.
///
/// # Safety
/// 1. The pointers are null or lead to what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_switch_to(
    engine: *mut EngineStorage,
    space: *mut SpaceStorage,
) -> Status {
    status((|| {
        // SAFETY: duty 1.
        let machine = unsafe { machine(engine) }?;
        // SAFETY: duty 1.
        let next = unsafe { space_of(machine, space) }?;
        let here = here(machine)?;
        let previous = here.loaded().map(|previous| &previous.space);
        machine.engine.switch_to(previous, &next.space);
        here.set_loaded(Some(next));
        Ok(())
    })())
}

/// Leaves the space that this CPU has loaded for kernel_root, which maps no user memory and whose tables stay for ever. Context as
/// shootdown_switch_to.
///
/// Errors: SHOOTDOWN_NULL, SHOOTDOWN_NOT_INITIALISED, SHOOTDOWN_NO_MEMORY, SHOOTDOWN_NOT_ONLINE, SHOOTDOWN_IN_FUNCTION, SHOOTDOWN_NOT_LOADED.
///
/// # Safety
/// 1. The pointers are null or lead to what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_switch_away(
    engine: *mut EngineStorage,
    kernel_root: u64,
) -> Status {
    status((|| {
        // SAFETY: duty 1.
        let machine = unsafe { machine(engine) }?;
        let here = here(machine)?;
        let previous = here.loaded().ok_or(SHOOTDOWN_NOT_LOADED)?;
        let root = self::kernel_root(kernel_root);
        machine.engine.switch_away(&previous.space, root);
        here.set_loaded(None);
        Ok(())
    })())
}

/// Keeps the space loaded while this CPU runs something that uses no user memory: its idle loop, a kernel thread. Flushes leave the CPU alone, but
/// those that free tables: at the first of these it loads kernel_root, which is as in shootdown_switch_away. shootdown_switch_to or
/// shootdown_switch_away ends it; until then the space must stay. Context and errors as shootdown_switch_away.
///
/// # Safety
/// 1. The pointers are null or lead to what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_enter_lazy(
    engine: *mut EngineStorage,
    kernel_root: u64,
) -> Status {
    status((|| {
        // SAFETY: duty 1.
        let machine = unsafe { machine(engine) }?;
        let here = here(machine)?;
        let space = here.loaded().ok_or(SHOOTDOWN_NOT_LOADED)?;
        let root = self::kernel_root(kernel_root);
        machine.engine.user_memory().enter_lazy(&space.space, root);
        Ok(())
    })())
}

/// Writes to is_ok whether code that interrupted this CPU anywhere may touch user memory of space: false while another space or none is loaded, between
/// an early acknowledgement and the flush that it promised, and in lazy mode. For NMI handlers: any context, does not block.
///
/// Errors: SHOOTDOWN_NULL, SHOOTDOWN_INVALID, SHOOTDOWN_NOT_INITIALISED, SHOOTDOWN_OTHER_ENGINE, SHOOTDOWN_NO_MEMORY.
///
/// # Safety
/// 1. The pointers are null or lead to what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_user_access_ok(
    engine: *const EngineStorage,
    space: *const SpaceStorage,
    is_ok: *mut bool,
) -> Status {
    status((|| {
        // SAFETY: duty 1.
        let machine = unsafe { machine(engine) }?;
        // SAFETY: duty 1.
        let space = unsafe { space_of(machine, space) }?;
        check_pointer(is_ok)?;
        machine.check_attached()?;
        // SAFETY: duty 1.
        unsafe { is_ok.write(machine.engine.user_memory().access_ok(space.space.id())) };
        Ok(())
    })())
}
