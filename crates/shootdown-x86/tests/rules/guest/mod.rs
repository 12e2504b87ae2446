//! Guests on an emulated processor, which keeps everything that it may keep of nested tables and of guests' own, under ASIDs, or under VPIDs and
//! EPT pointers.
//!
//! `story` has two CPUs do whatever comes; `known` holds cases by hand, and `refused` what must fail. `hypervisor` is what they drive.

mod cpu;
mod hypervisor;
mod known;
mod processor;
mod refused;
mod story;
mod svm;
mod vmx;
