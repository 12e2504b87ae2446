//! The workloads: one file each, which names its axes, its columns, what was published of it, and how it is simulated. Nothing else knows it.

mod dirtysync;
mod madvise;
mod overcommit;
mod pingpong;
mod preemptoff;
mod selected;
mod shoot;
mod syscall;
mod zerocopy;

use super::workload::{Contest, OnLinux, Program};

/// Those that are a user program, in the order of the help; `bench` without a name measures the first.
pub const PROGRAMS: &[&Program] = &[
    &madvise::PROGRAM,
    &dirtysync::PROGRAM,
    &pingpong::PROGRAM,
    &preemptoff::PROGRAM,
    &zerocopy::PROGRAM,
    &syscall::PROGRAM,
    &overcommit::PROGRAM,
];

/// Those that are a contest of calls.
pub const CONTESTS: &[&Contest] = &[&selected::CONTEST, &shoot::CONTEST];

/// Whether a program needs a disk on Linux.
pub fn needs_disk(name: &str) -> bool {
    let mut programs = PROGRAMS.iter();
    programs.any(|program| program.name == name && program.linux == OnLinux::WithDisk)
}

#[cfg(test)]
pub mod tests {
    use super::{PROGRAMS, Program};

    /// A program by its name.
    pub fn program(name: &str) -> &'static Program {
        let mut programs = PROGRAMS.iter();
        programs.find(|program| program.name == name).unwrap()
    }
}
