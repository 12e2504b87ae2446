//! What a hypervisor does for its guests' flushes.
//!
//! A vCPU that does not run keeps its initiators waiting until it runs again, though it uses no translation meanwhile. A hypervisor that
//! says who does not run, and that flushes a vCPU before it runs again, spares the interrupt and the wait:
//!
//! * [`kvm`]: a byte in memory that guest and hypervisor share;
//! * [`hyperv`]: hypercalls that name virtual processors and ranges;
//! * [`xen`]: a hypercall with a list of operations.
//!
//! The reference kernel's hypervisor offers its guests KVM's byte, and the kernel uses it as a guest. Fake ones offer all of them, in
//! `tests/kvm.rs`, which takes vCPUs away between any two accesses, and in `tests/hyperv.rs` and `tests/xen.rs`, which stop in the middle of lists and fail.

pub mod hyperv;
pub mod kvm;
pub mod xen;
