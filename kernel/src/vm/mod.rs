//! Virtual machines: a hypervisor on AMD's SVM with nested paging, offered as a part of Linux's KVM interface.
//!
//! The memory of a machine is the memory of its VMM, the program that opened `/dev/kvm` (`mm::nested`). The engine says which tag a virtual CPU runs
//! under, and ends guest mode where a flush needs it (`GuestSpace::run`).
//!
//! | file | what |
//! |---|---|
//! | `abi` | requests, structures and exits of `linux/kvm.h` |
//! | `request` | from the number of a request to its function |
//! | `machine`, `vcpu` | what descriptors stand for |
//! | `run` | into the guest and back |
//! | `exits`, `port`, `mmio`, `msr`, `cpuid`, `debug` | what a guest was stopped for |
//! | `walk`, `decode` | a guest's page tables and instructions, as far as `mmio` and `debug` have to read them |
//! | `event`, `interrupt`, `nmi` | exceptions, and interrupts that the VMM sends: which comes first, and when a guest takes them |
//! | `steal` | what a guest is told of virtual CPUs that do not run, and flushes before they run again |
//! | `registers`, `segments`, `vmcb`, `run_page` | state of a virtual CPU: as KVM, as the processor, and as both sides of RUN have it |
//! | `host` | what each CPU needs to run guests |
//!
//! # What is defined
//!
//! * Whatever a guest does ends in an exit, whatever a VMM does in an answer or an error number. What is not here: an interrupt controller, timers,
//!   instructions that move strings to or from ports, breakpoints (debug registers only keep what is written), exceptions from the VMM.
//! * A virtual CPU is a thread of its VMM inside RUN. It loses its CPU as any thread does, and may go on on another one. A signal ends RUN with EINTR.
//! * A forked process has the descriptors, but the machine is its parent's: EIO.
//! * A CPU that goes offline has no guest: its threads have gone before.
//!
//! It may not know threads, files or system calls: the caller says which space it is about, and when to stop ([`Caller`]).

// The interface's own names say what they are.
#[allow(missing_docs)]
mod abi;
mod cpuid;
mod debug;
#[allow(missing_docs)]
mod decode;
mod event;
mod exits;
mod host;
mod interrupt;
mod machine;
mod mmio;
mod msr;
mod nmi;
mod port;
mod registers;
mod request;
mod run;
mod run_page;
mod segments;
#[cfg(feature = "selftest")]
pub mod selftest;
mod steal;
mod vcpu;
mod vmcb;
mod walk;

pub use host::cpu_left;
pub use request::{Answer, Caller, Object};

/// Where machines come from.
pub const DEVICE: &str = "/dev/kvm";

pub use crate::arch::svm::is_supported;
