//! A small virtual machine monitor on `/dev/kvm`: it boots a kernel by PVH on several virtual CPUs, the same on the reference kernel and on Linux.
//!
//! Interrupt controllers are all here, none in the kernel below: local APICs whose registers are reached by MMIO exits, and whose interrupts go to the
//! guest by `KVM_INTERRUPT`. A virtual CPU is a thread; one that halts sleeps until an interrupt comes.
//!
//! * [`options`]: the command line;
//! * [`memory`], [`elf`], [`tables`], [`boot`]: what the guest finds when it starts;
//! * [`apic`], [`timer`], [`command`]: one local APIC; [`bus`]: all of them, and what they send each other;
//! * [`ports`], [`pit`], [`rtc`], [`serial`]: the devices that the reference kernel looks for;
//! * [`state`]: registers in which virtual CPUs begin; [`vcpu`]: threads that run them;
//! * [`machine`]: all of it together.

pub mod apic;
pub mod boot;
pub mod bus;
pub mod command;
pub mod elf;
pub mod machine;
pub mod memory;
pub mod options;
pub mod pit;
pub mod ports;
pub mod rtc;
pub mod serial;
pub mod state;
pub mod tables;
pub mod timer;
pub mod vcpu;
