//! The memory that C provides, and how large it is.
//!
//! Sizes have some room above what the library uses, so that they change seldom; `Opaque::at` asserts that they suffice.

/// How many CPUs an engine knows: their numbers are below.
#[cfg(not(feature = "cpus-256"))]
pub const SHOOTDOWN_MAX_CPUS: usize = 64;
/// How many CPUs an engine knows: their numbers are below.
#[cfg(feature = "cpus-256")]
pub const SHOOTDOWN_MAX_CPUS: usize = 256;

/// Words of a set of CPUs.
#[cfg(not(feature = "cpus-256"))]
pub const SHOOTDOWN_CPU_WORDS: usize = 1;
/// Words of a set of CPUs.
#[cfg(feature = "cpus-256")]
pub const SHOOTDOWN_CPU_WORDS: usize = 4;

/// Bytes of an engine.
#[cfg(not(feature = "cpus-256"))]
pub const SHOOTDOWN_ENGINE_SIZE: usize = 8192;
/// Bytes of an engine.
#[cfg(feature = "cpus-256")]
pub const SHOOTDOWN_ENGINE_SIZE: usize = 32768;
/// Alignment of an engine.
pub const SHOOTDOWN_ENGINE_ALIGN: usize = 128;

/// Bytes of the memory of one CPU.
#[cfg(not(feature = "cpus-256"))]
pub const SHOOTDOWN_MEMORY_SIZE: usize = 4096;
/// Bytes of the memory of one CPU.
#[cfg(feature = "cpus-256")]
pub const SHOOTDOWN_MEMORY_SIZE: usize = 8192;
/// Alignment of the memory of one CPU.
pub const SHOOTDOWN_MEMORY_ALIGN: usize = 128;

/// Bytes of an address space.
pub const SHOOTDOWN_SPACE_SIZE: usize = 1024;
/// Alignment of an address space.
pub const SHOOTDOWN_SPACE_ALIGN: usize = 128;

/// Bytes of a ticket.
pub const SHOOTDOWN_TICKET_SIZE: usize = 192;
/// Alignment of a ticket.
pub const SHOOTDOWN_TICKET_ALIGN: usize = 8;

/// Bytes of a walk.
pub const SHOOTDOWN_WALK_SIZE: usize = 128;
/// Alignment of a walk.
pub const SHOOTDOWN_WALK_ALIGN: usize = 8;

/// Bytes of a reclaim.
pub const SHOOTDOWN_RECLAIM_SIZE: usize = 192;
/// Alignment of a reclaim.
pub const SHOOTDOWN_RECLAIM_ALIGN: usize = 8;

/// Bytes of a node.
pub const SHOOTDOWN_NODE_SIZE: usize = 128;
/// Alignment of a node.
pub const SHOOTDOWN_NODE_ALIGN: usize = 8;

/// The engine: one for the machine, all zero before shootdown_init, and never moved or freed after it.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct EngineStorage {
    opaque: [u8; SHOOTDOWN_ENGINE_SIZE],
}

/// What the engine keeps for one CPU: one for each CPU, all zero before shootdown_attach, and never moved or freed after it.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct MemoryStorage {
    opaque: [u8; SHOOTDOWN_MEMORY_SIZE],
}

/// The engine's view of one set of page tables: all zero before shootdown_space_init, and not moved or freed until shootdown_space_deinit.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct SpaceStorage {
    opaque: [u8; SHOOTDOWN_SPACE_SIZE],
}

/// The right, and the duty, to wait for one flush, kick or call. All zero (SHOOTDOWN_TICKET_INIT) before its first use; empty, and good for
/// another one, after shootdown_ticket_wait or shootdown_ticket_drop. It is not copied, and one task uses it: the one that submitted, or one to which it was handed
/// (shootdown_ticket_hand_over).
#[derive(Debug)]
#[repr(C, align(8))]
pub struct TicketStorage {
    opaque: [u8; SHOOTDOWN_TICKET_SIZE],
}

/// A section in which this CPU reads page tables without their lock. All zero (SHOOTDOWN_WALK_INIT) before its first use; empty, and good for another one, after
/// shootdown_walk_end. It lies on the stack of the task that walks.
#[derive(Debug)]
#[repr(C, align(8))]
pub struct WalkStorage {
    opaque: [u8; SHOOTDOWN_WALK_SIZE],
}

/// Spaces of which pages were unmapped that one flush is to be for. All zero (SHOOTDOWN_RECLAIM_INIT) before its first use; empty, and good for another one, after
/// shootdown_reclaim_submit. It is not copied, and one task uses it at a time.
#[derive(Debug)]
#[repr(C, align(8))]
pub struct ReclaimStorage {
    opaque: [u8; SHOOTDOWN_RECLAIM_SIZE],
}

/// A function that can be posted to one CPU at a time, in any number and under any lock: memory of the caller's, all zero (SHOOTDOWN_NODE_INIT)
/// before shootdown_node_init.
#[derive(Debug)]
#[repr(C, align(8))]
pub struct NodeStorage {
    opaque: [u8; SHOOTDOWN_NODE_SIZE],
}

/// Storage that is all zero, for callers in Rust: tests.
macro_rules! zeroed {
    ($($storage:ident, $size:ident;)+) => {
        $(impl $storage {
            /// As C has it at first.
            pub const ZERO: Self = Self { opaque: [0; $size] };
        })+
    };
}

zeroed! {
    EngineStorage, SHOOTDOWN_ENGINE_SIZE;
    MemoryStorage, SHOOTDOWN_MEMORY_SIZE;
    SpaceStorage, SHOOTDOWN_SPACE_SIZE;
    TicketStorage, SHOOTDOWN_TICKET_SIZE;
    WalkStorage, SHOOTDOWN_WALK_SIZE;
    ReclaimStorage, SHOOTDOWN_RECLAIM_SIZE;
    NodeStorage, SHOOTDOWN_NODE_SIZE;
}

const _: () = {
    assert!(size_of::<EngineStorage>() == SHOOTDOWN_ENGINE_SIZE);
    assert!(align_of::<EngineStorage>() == SHOOTDOWN_ENGINE_ALIGN);
    assert!(size_of::<MemoryStorage>() == SHOOTDOWN_MEMORY_SIZE);
    assert!(align_of::<MemoryStorage>() == SHOOTDOWN_MEMORY_ALIGN);
    assert!(size_of::<SpaceStorage>() == SHOOTDOWN_SPACE_SIZE);
    assert!(align_of::<SpaceStorage>() == SHOOTDOWN_SPACE_ALIGN);
    assert!(size_of::<TicketStorage>() == SHOOTDOWN_TICKET_SIZE);
    assert!(align_of::<TicketStorage>() == SHOOTDOWN_TICKET_ALIGN);
    assert!(size_of::<WalkStorage>() == SHOOTDOWN_WALK_SIZE);
    assert!(align_of::<WalkStorage>() == SHOOTDOWN_WALK_ALIGN);
    assert!(size_of::<ReclaimStorage>() == SHOOTDOWN_RECLAIM_SIZE);
    assert!(align_of::<ReclaimStorage>() == SHOOTDOWN_RECLAIM_ALIGN);
    assert!(size_of::<NodeStorage>() == SHOOTDOWN_NODE_SIZE);
    assert!(align_of::<NodeStorage>() == SHOOTDOWN_NODE_ALIGN);
    assert!(SHOOTDOWN_CPU_WORDS == SHOOTDOWN_MAX_CPUS.div_ceil(64));
};
