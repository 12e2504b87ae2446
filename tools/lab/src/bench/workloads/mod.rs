//! The workloads: one file each, which names its axes, its columns, what was published of it, and how it is simulated. Nothing else knows it.

mod collapse;
mod dirtysync;
mod evacuate;
mod evacuated;
mod madvise;
mod overcommit;
mod pingpong;
mod preemptoff;
mod quiet;
mod reclaim;
mod selected;
mod shoot;
mod sysbench;
mod syscall;
mod threads;
mod zerocopy;

use super::workload::{Contest, OnLinux, Program};

/// Those that are a user program, in the order of the help; `bench` without a name measures the first.
pub const PROGRAMS: &[&Program] = &[
    &madvise::PROGRAM,
    &dirtysync::PROGRAM,
    &sysbench::PROGRAM,
    &pingpong::PROGRAM,
    &preemptoff::PROGRAM,
    &zerocopy::PROGRAM,
    &syscall::PROGRAM,
    &evacuate::PROGRAM,
    &overcommit::PROGRAM,
    &collapse::PROGRAM,
    &reclaim::PROGRAM,
    &quiet::PROGRAM,
    &threads::PROGRAM,
];

/// Those that are a contest of calls.
pub const CONTESTS: &[&Contest] = &[&selected::CONTEST, &shoot::CONTEST];

/// What Linux has of a program; all of it where that is no workload.
pub fn on_linux(name: &str) -> OnLinux {
    let mut programs = PROGRAMS.iter();
    let program = programs.find(|program| program.name == name);
    program.map_or(OnLinux::Always, |program| program.linux)
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
