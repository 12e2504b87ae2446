//! Scheduling: who runs where, who sleeps, and what wakes them.

mod park;
mod place;
mod space;
mod switch;
mod vacate;

pub(super) use park::{park, unpark};
pub(super) use place::{nudge, start};
pub(super) use space::{enter_own_space, leave_space};
pub(super) use switch::{finish_first_switch, leave_forever, reschedule_idle};

pub use park::{doze, sleep_until};
pub use place::{cpu_count, set_affinity, usable_cpu_bits};
pub use switch::{before_user_return, timer_tick, yield_if_due, yield_now};
pub use vacate::{close_cpu, reopen_cpu, vacate};
