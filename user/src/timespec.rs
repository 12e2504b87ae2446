//! `struct timespec`, to and from nanoseconds.

const NS_PER_SECOND: i64 = 1_000_000_000;

/// So many nanoseconds.
pub const fn timespec(ns: i64) -> libc::timespec {
    libc::timespec {
        tv_sec: ns / NS_PER_SECOND,
        tv_nsec: ns % NS_PER_SECOND,
    }
}

/// How many they are.
pub const fn in_ns(time: libc::timespec) -> i64 {
    time.tv_sec * NS_PER_SECOND + time.tv_nsec
}
