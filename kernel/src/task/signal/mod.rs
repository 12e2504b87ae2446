//! Signals: numbers and sets, actions, what is pending, and delivery to handlers in user mode.
//!
//! A signal is posted to a thread; the thread itself delivers it on its way to user mode
//! ([`handle_work`]).
//!
//! It may not know files, or how threads are chosen; only how to wake and to hurry them.

mod action;
mod deliver;
mod exception;
mod frame;
mod number;
mod pending;
mod post;
mod wait;

pub use action::{Action, Actions};
pub use deliver::{force, handle_work, sigreturn};
pub use exception::{UserException, user_exception};
pub use number::{Signal, SignalSet};
pub use pending::{AltStack, SigInfo, ThreadSignals};
pub use post::{post_to_process, post_to_thread, set_blocked};
pub use wait::{set_action, set_alt_stack, suspend, unblock_after, wait_for};
