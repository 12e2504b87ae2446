//! Guests on an emulated processor, which keeps everything that it may keep of nested tables and of guests' own, under ASIDs, or under VPIDs and
//! EPT pointers.
//!
//! `story` is a hypervisor in small on two CPUs. `known` holds cases by hand, and cases that must fail. `hypervisor` is what both drive.

mod hypervisor;
mod known;
mod processor;
mod story;
mod svm;
mod vmx;
