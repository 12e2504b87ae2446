//! Platforms that unwind, as contract 9 says that none does.

use std::cell::Cell;

use crate::machine::try_context;

/// What such a platform says.
pub(crate) const UNWINDS: &str = "the platform unwinds";

thread_local! {
    /// Calls of the platform's methods before one unwinds; 0 for none.
    static LEFT: Cell<u32> = const { Cell::new(0) };
}

/// From now on, one call of a method unwinds on this thread: the one with this number, interrupt handlers not counted. 0 for none.
pub(crate) fn unwind_at(call: u32) {
    LEFT.set(call);
}

/// A method of the platform is called.
#[inline]
pub(super) fn may_unwind() {
    if LEFT.get() != 0 {
        count_down();
    }
}

#[cold]
fn count_down() {
    let in_handler =
        try_context().is_none_or(|context| context.with(|state| state.me().in_handler));
    if in_handler {
        return;
    }
    LEFT.set(LEFT.get() - 1);
    assert!(LEFT.get() != 0, "{UNWINDS}");
}
