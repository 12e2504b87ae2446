//! Nodes: posted functions whose memory is the caller's.
//!
//! A closure has a type without a name, so a node keeps the engine's data as bytes, and beside them the functions that know the type.

use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::mem::MaybeUninit;

use shootdown::{
    CpuId,
    calls::{CallData, PostRefused},
};

use crate::cpus::cpu_id;
use crate::function::{Bound, Function};
use crate::layout::{EngineStorage, NodeStorage};
use crate::machine::{Machine, machine};
use crate::opaque::{Opaque, Stored, check_pointer};
use crate::status::{SHOOTDOWN_BUSY, SHOOTDOWN_NOT_ONLINE, SHOOTDOWN_OTHER_ENGINE, Status, status};

/// Words of the engine's data, with the closure.
const DATA_WORDS: usize = 8;

/// What lies in the memory of a node.
pub(crate) struct Node {
    machine: &'static Machine,
    /// The `CallData` of the closure that the functions below know.
    data: UnsafeCell<MaybeUninit<[u64; DATA_WORDS]>>,
    post: fn(&'static Node, CpuId, bool) -> Result<(), PostRefused>,
    is_posted: fn(&'static Node) -> bool,
}

// SAFETY: 1. `Opaque::at` asserts it.
unsafe impl Stored for Node {
    type Storage = NodeStorage;
    const MARK: u64 = 0x6e6f_6465_2d66_6f43;
}

impl Node {
    fn new<F: Fn(CpuId) + Sync + 'static>(machine: &'static Machine, function: F) -> Self {
        const {
            assert!(size_of::<CallData<F>>() <= size_of::<[u64; DATA_WORDS]>());
            assert!(align_of::<CallData<F>>() <= align_of::<u64>());
        }
        let mut data = MaybeUninit::<[u64; DATA_WORDS]>::uninit();
        let place = data.as_mut_ptr().cast::<CallData<F>>();
        // SAFETY: the assertions above make the words large enough and aligned.
        unsafe { place.write(CallData::new(function)) };
        Self {
            machine,
            data: UnsafeCell::new(data),
            post: |node, target, defers| {
                // SAFETY: 1. the node is made with a function of this type.
                let data = unsafe { node.data::<F>() };
                let engine = &node.machine.engine;
                match defers {
                    true => engine.control().post_deferrable(target, data),
                    false => engine.post_data(target, data),
                }
            },
            is_posted: |node| {
                // SAFETY: as above.
                let data = unsafe { node.data::<F>() };
                data.is_posted()
            },
        }
    }

    /// # Safety
    /// 1. The node was made with a function of type `F`.
    unsafe fn data<F>(&'static self) -> &'static CallData<F> {
        let data = self.data.get().cast::<CallData<F>>();
        // SAFETY: duty 1.
        unsafe { &*data }
    }
}

/// The node behind a pointer of C's.
///
/// # Safety
/// 1. It is null or a node of C's, whose duty it is that it stays until each accepted post has returned from its function.
unsafe fn node_at(node: *const NodeStorage) -> Result<&'static Node, Status> {
    // SAFETY: duty 1.
    unsafe { Opaque::<Node>::at(node) }?.get()
}

/// Binds a function and its data to zeroed memory. Once, before it is posted. The memory may be freed, or zeroed to bind another function, when
/// the function has returned as often as posts of the node were accepted: not inside the function, and shootdown_node_is_posted does not say
/// it. Any context; does not block.
///
/// Errors: SHOOTDOWN_NULL, SHOOTDOWN_INVALID, SHOOTDOWN_NOT_INITIALISED, SHOOTDOWN_ALREADY.
///
/// # Safety
/// 1. The pointers are null or lead to what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_node_init(
    engine: *mut EngineStorage,
    node: *mut NodeStorage,
    function: Function,
    data: *mut c_void,
) -> Status {
    status((|| {
        // SAFETY: duty 1.
        let machine = unsafe { machine(engine) }?;
        let function = Bound::new(machine, function, data)?;
        // SAFETY: duty 1.
        let memory = unsafe { Opaque::<Node>::at(node) }?;
        memory.fill(|| {
            Node::new(machine, move |cpu| {
                // A copy: C may post the node again meanwhile.
                let function = function;
                function.run(cpu);
            })
        })
    })())
}

/// Has target, this CPU too, run the node's function in its next interrupt, after what was posted to it before. Any context but NMI, also inside a
/// called function and under any lock; never waits for other CPUs. It may be posted again as soon as the function begins to run.
///
/// Errors: SHOOTDOWN_NULL, SHOOTDOWN_INVALID, SHOOTDOWN_NOT_INITIALISED, SHOOTDOWN_OTHER_ENGINE, SHOOTDOWN_UNKNOWN_CPU, SHOOTDOWN_NO_MEMORY,
/// SHOOTDOWN_NOT_ONLINE (target), SHOOTDOWN_BUSY: it is posted and has not begun to run, so it will; or, where the running CPU is not online, another CPU
/// that is not online posts or one goes offline: try again. With each of them nothing was sent by this call.
///
/// # Safety
/// 1. The pointers are null or lead to what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_post_node(
    engine: *mut EngineStorage,
    target: u32,
    node: *mut NodeStorage,
) -> Status {
    // SAFETY: duty 1.
    unsafe { post(engine, target, node, false) }
}

/// As shootdown_post_node, but does not interrupt a target that is quiet (shootdown_enter_quiet): that one runs the function when it is in the kernel again.
///
/// Errors: as there.
///
/// # Safety
/// 1. The pointers are null or lead to what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_post_deferrable(
    engine: *mut EngineStorage,
    target: u32,
    node: *mut NodeStorage,
) -> Status {
    // SAFETY: duty 1.
    unsafe { post(engine, target, node, true) }
}

/// # Safety
/// 1. The pointers are null or lead to what the header says.
unsafe fn post(
    engine: *mut EngineStorage,
    target: u32,
    node: *mut NodeStorage,
    defers: bool,
) -> Status {
    status((|| {
        // SAFETY: duty 1.
        let machine = unsafe { machine(engine) }?;
        let target = cpu_id(target)?;
        // SAFETY: duty 1.
        let node = unsafe { node_at(node) }?;
        if !core::ptr::eq(node.machine, machine) {
            return Err(SHOOTDOWN_OTHER_ENGINE);
        }
        machine.check_memory()?;
        (node.post)(node, target, defers).map_err(|refused| match refused {
            PostRefused::NotReady => SHOOTDOWN_NOT_ONLINE,
            PostRefused::Busy => SHOOTDOWN_BUSY,
        })
    })())
}

/// Writes to is_posted whether the node waits for its CPU; a hint, as it may begin to run meanwhile. Any context; does not block.
///
/// Errors: SHOOTDOWN_NULL, SHOOTDOWN_INVALID, SHOOTDOWN_NOT_INITIALISED.
///
/// # Safety
/// 1. The pointers are null or lead to what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_node_is_posted(
    node: *const NodeStorage,
    is_posted: *mut bool,
) -> Status {
    status((|| {
        // SAFETY: duty 1.
        let node = unsafe { node_at(node) }?;
        check_pointer(is_posted)?;
        // SAFETY: duty 1.
        unsafe { is_posted.write((node.is_posted)(node)) };
        Ok(())
    })())
}
