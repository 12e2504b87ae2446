//! Clocks: nanoseconds since kernel entry (TSC) and wall-clock time (CMOS clock read once at boot).

/// Nanoseconds since kernel entry. Monotonic on every CPU; any context.
pub fn now_ns() -> u64 {
    todo!()
}

/// Nanoseconds since 1970-01-01 UTC. Any context.
pub fn realtime_ns() -> u64 {
    todo!()
}
