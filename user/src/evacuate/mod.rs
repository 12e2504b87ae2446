//! Workload of guests: virtual machines are copied elsewhere while they run, by the kernel's log of dirty pages.
//!
//! This is a hypervisor's user side on `/dev/kvm`, the same on the reference kernel and on Linux. Each virtual CPU writes to the pages of a
//! working set in an order that looks like chance, and checks each time that the page has what it wrote there last. Meanwhile the
//! program copies the memory in rounds, as if to another host: it reads the log, has a piece of it cleared, which takes the right to write away
//! from those pages and flushes them on every CPU that runs the machine, and copies the pages of that piece. In the end the virtual CPUs are
//! stopped, a last round is made, and the copy must be the memory, byte for byte: a write through a translation that outlived its
//! flush is in no log.
//!
//! * [`device`]: `/dev/kvm`, and how it comes into being on Linux;
//! * [`guest`]: what runs in a virtual machine; [`start`]: the state in which it begins;
//! * [`vm`]: one virtual machine and its log;
//! * [`vcpu`]: threads that run virtual CPUs; [`crew`]: starting and stopping them all;
//! * [`churn`]: virtual CPUs that move, and CPUs that leave, meanwhile;
//! * [`copy`]: copying in rounds; [`first_writes`]: what the kernel does at the first write to a clean page;
//! * [`mod@bench`]: options, and what differs from other [courses](crate::course).

pub mod bench;
pub mod churn;
pub mod copy;
pub mod crew;
pub mod device;
pub mod first_writes;
pub mod guest;
pub mod start;
pub mod vcpu;
pub mod vm;

pub use bench::Evacuate;
