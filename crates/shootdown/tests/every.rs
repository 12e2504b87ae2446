//! All tests on the puppet machine in one program, which is linked once: for `cargo mutants`. Not among those that `cargo test` runs.

#![cfg(not(loom))]
#![allow(clippy::duplicate_mod, reason = "each has the puppet")]

/// For a copy of the tree in which the others use this one (`docs/verification/mutants.md`).
mod puppet;

#[path = "bare.rs"]
mod bare;
#[path = "broadcast.rs"]
mod broadcast;
#[path = "call.rs"]
mod call;
#[path = "control.rs"]
mod control;
#[path = "data.rs"]
mod data;
#[path = "defer.rs"]
mod defer;
#[path = "global_tag.rs"]
mod global_tag;
#[path = "guard.rs"]
mod guard;
#[path = "guest.rs"]
mod guest;
#[path = "host_load.rs"]
mod host_load;
#[path = "idle.rs"]
mod idle;
#[path = "inbox.rs"]
mod inbox;
#[path = "offline.rs"]
mod offline;
#[path = "preempt.rs"]
mod preempt;
#[path = "ranges.rs"]
mod ranges;
#[path = "remote.rs"]
mod remote;
#[path = "reports.rs"]
mod reports;
#[path = "sets.rs"]
mod sets;
#[path = "split.rs"]
mod split;
#[path = "stopped.rs"]
mod stopped;
#[path = "switch.rs"]
mod switch;
#[path = "tlb.rs"]
mod tlb;
#[path = "watchdog.rs"]
mod watchdog;
#[path = "window.rs"]
mod window;
