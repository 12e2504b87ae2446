//! Programs that show whether a kernel's TLB shootdown is fast and whether it is right.
//!
//! They are ordinary static Linux programs: the same file runs on the reference kernel, on Linux
//! in the same emulator, and on the machine that built it. Nine of them matter:
//!
//! * [`madvise`] measures the cost of one discard-and-touch iteration (workload T1) and checks
//!   that no thread ever reads a discarded page's old value after the call returned.
//! * [`dirtysync`] measures writes through a shared mapping of a file and the syncs that store them (also of T1), and
//!   checks that none is lost.
//! * [`pingpong`] measures how long processes on one CPU take to hand a token round (workload T4) and checks that
//!   none of them ever reads another's page, or an old one of its own.
//! * [`preemptoff`] measures how late a thread of high priority wakes up while others unmap memory on all CPUs and some
//!   keep interrupts off (workload T3), and how long the kernel had preemption off.
//! * [`zerocopy`] measures calls that lend pages to a server on the client's CPU (workload T2), and checks every copy.
//! * [`evacuate`] copies virtual machines while they run, by the log of dirty pages, and compares the copy.
//! * [`collapse`] measures how long it takes to free a page table that other threads fault on.
//! * [`threads`] measures how threads that change memory of their own get on beside each other.
//! * [`torture`] changes mappings at random from every CPU while other threads read and write
//!   through them, and reports every access that used a translation which was no longer valid.
//!
//! [`survey`] runs most of them on the machine that it finds, and shows their tables: the first process on a PC.
//!
//! What both print for the lab is described in [`report`].
#![deny(missing_docs)]

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
compile_error!("these programs are for x86-64 Linux: they use rdtsc and its signal frame");

pub mod args;
pub mod checks;
pub mod child;
pub mod clock;
pub mod collapse;
pub mod counters;
pub mod course;
pub mod differential;
pub mod dirtysync;
pub mod evacuate;
pub mod fault;
pub mod fire;
pub mod hotplug;
pub mod kvm;
pub mod machine;
pub mod madvise;
pub mod memory_file;
pub mod modules;
pub mod pingpong;
pub mod policy;
pub mod preemptoff;
pub mod program;
pub mod realtime;
pub mod region;
pub mod report;
pub mod signals;
pub mod summary;
pub mod survey;
pub mod sysbench;
pub mod threads;
pub mod timespec;
pub mod torture;
pub mod vmm;
pub mod wanderer;
pub mod zerocopy;
