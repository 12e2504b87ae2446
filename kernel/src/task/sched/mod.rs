//! Scheduling: who runs where, who sleeps, and what wakes them.
//!
//! It may not know files or programs.

mod defer;
mod fetch;
mod park;
mod place;
mod space;
mod switch;
mod vacate;

pub(super) use park::park;
pub(super) use place::{nudge, start};
pub use space::{
    change_space, close_window, load_own_root, open_window, refresh_windows, take_region,
};
pub(super) use space::{enter_own_space, leave_space};
pub(super) use switch::{finish_first_switch, leave_forever, reschedule_idle};

pub use defer::{catch_up, catch_up_before_access, defer_flushes};
pub use park::{doze, expire_deadlines, hand_over, park_uninterrupted, sleep_until, unpark};
pub use place::{cpu_count, set_affinity, set_scheduling, tell_server, usable_cpu_bits};
pub use switch::{before_user_return, preempt, preempt_interrupted, timer_tick, yield_now};
pub use vacate::{close_cpu, reopen_cpu, vacate};
