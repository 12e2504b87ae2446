//! `syscall`: what a policy adds to the way into the kernel and out of it.

use crate::bench::workload::Program;

/// The workload.
pub const PROGRAM: Program = Program {
    name: "syscall",
    about: "All threads make an empty system call, again and again",
    page_bounds: (0, 0),
    default_actors: &[1, 2],
    default_pages: &[0],
    // Deferral is what adds to system calls.
    default_policies: ["before", "best", "best+defer"],
    title: |_| "syscall: ns a getppid, all threads at once".into(),
    no_counters: |_| Some("no flush is part of it: the engine counts nothing"),
    ..Program::PLAIN
};
