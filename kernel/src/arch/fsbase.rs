//! The user's FS base: where thread-local storage lives.

/// The FS base of this CPU.
pub fn read() -> u64 {
    todo!()
}

/// Sets the FS base of this CPU. The address must be canonical (callers check that it is below
/// [`USER_END`](crate::addr::USER_END)), else the processor raises #GP.
pub fn write(base: u64) {
    let _ = base;
    todo!()
}
