//! The engine for kernels in C: a static library, and `include/shootdown.h`, which a test writes from this source.
//!
//! C has no types that prevent a mistake, so what the engine's types forbid is checked here where it can be seen, and answered by a
//! [status](Status); what cannot be seen is a duty that the header states. Nothing is allocated: C gives the memory, zeroed, and each
//! piece of it remembers by a mark what it holds.

#![no_std]
#![deny(missing_docs, missing_debug_implementations, unsafe_op_in_unsafe_fn)]

// A static library for a host has to come with what handles panics.
#[cfg(not(all(feature = "panic-handler", target_os = "none")))]
extern crate std;

// In the order of the header.
mod layout;
mod status;

mod host;
mod lifecycle;

mod call;
mod control;
mod cpus;
mod function;
mod node;

mod space;

mod flush;
mod reclaim;
mod secondary;
mod ticket;
mod walk;

#[cfg(all(feature = "panic-handler", target_os = "none"))]
mod panic;
mod report;

mod line;
mod machine;
mod opaque;

pub use call::{
    shootdown_call_all, shootdown_call_many, shootdown_call_one, shootdown_post,
    shootdown_submit_call, shootdown_try_submit_call,
};
pub use control::{
    SHOOTDOWN_LOST, SHOOTDOWN_OF_THREADS, SHOOTDOWN_WITHOUT_FLUSHES, StepFunction, Unserved,
    shootdown_arrive, shootdown_ask, shootdown_barrier, shootdown_declare_dead,
    shootdown_enter_quiet, shootdown_is_settled, shootdown_kick, shootdown_leave_quiet,
    shootdown_rendezvous, shootdown_serialise,
};
pub use cpus::{CpuSet, shootdown_ready_cpus};
pub use flush::{
    Range, SHOOTDOWN_ALL_PAGES, SHOOTDOWN_FREED_TABLES, SHOOTDOWN_STRICT, shootdown_flush,
    shootdown_flush_kernel, shootdown_submit_flush, shootdown_submit_flush_kernel,
};
pub use function::Function;
pub use host::{Change, Platform, Stall};
pub use layout::*;
pub use lifecycle::{
    shootdown_attach, shootdown_handle_ipi, shootdown_init, shootdown_offline, shootdown_online,
    shootdown_poll,
};
pub use node::{
    shootdown_node_init, shootdown_node_is_posted, shootdown_post_deferrable, shootdown_post_node,
};
pub use reclaim::{shootdown_reclaim_add, shootdown_reclaim_submit};
pub use report::{
    SHOOTDOWN_ALL_CPUS, shootdown_look, shootdown_policy_name, shootdown_set_policy,
    shootdown_set_stall_ns, shootdown_stat, shootdown_stat_name,
};
pub use secondary::{shootdown_listen, shootdown_release, shootdown_unlisten};
pub use space::{
    shootdown_enter_lazy, shootdown_space_deinit, shootdown_space_init, shootdown_switch_away,
    shootdown_switch_to, shootdown_user_access_ok,
};
pub use status::*;
pub use ticket::{
    shootdown_ticket_drop, shootdown_ticket_give_up, shootdown_ticket_hand_over,
    shootdown_ticket_is_done, shootdown_ticket_wait,
};
pub use walk::{shootdown_sync_walks, shootdown_walk_begin, shootdown_walk_end};
