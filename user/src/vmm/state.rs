//! Registers in which virtual CPUs begin, and what CPUID tells them.

use kvm_bindings::{CpuId, kvm_regs, kvm_sregs};

use super::boot::Start;
use crate::evacuate::start::{CODE, DATA, RFLAGS, flat};

const CR0_PE: u64 = 1 << 0;
const CR0_ET: u64 = 1 << 4;

/// Of CPUID leaf 1: EDX has a local APIC; ECX neither x2APIC nor deadlines of its timer, but a hypervisor, which Linux leaves to its VMM to say.
const HAS_APIC: u32 = 1 << 9;
const X2APIC: u32 = 1 << 21;
const TSC_DEADLINE: u32 = 1 << 24;
const HYPERVISOR: u32 = 1 << 31;
const LEAF_TOPOLOGY: u32 = 0xb;
const LEAF_KVM_FEATURES: u32 = 0x4000_0001;
const STEAL_TIME: u32 = 1 << 5;
const PV_TLB_FLUSH: u32 = 1 << 9;

/// The boot CPU at a kernel's PVH entry: flat 32-bit segments, no paging (Xen, "x86/HVM direct boot ABI").
pub fn at_entry(reset: &kvm_sregs, start: Start) -> (kvm_sregs, kvm_regs) {
    let mut special = *reset;
    let data = flat(0x10, DATA);
    special.cs = flat(0x08, CODE);
    (special.ds, special.es, special.ss) = (data, data, data);
    (special.fs, special.gs) = (data, data);
    special.cr0 = CR0_PE | CR0_ET;
    let general = kvm_regs {
        rip: start.entry.into(),
        rbx: start.start_info.into(),
        rflags: RFLAGS,
        ..kvm_regs::default()
    };
    (special, general)
}

/// Another CPU after a start-up: real mode, in that page (SDM vol. 3A, "MP Initialization Protocol").
pub fn at_startup(reset: &kvm_sregs, page: u8) -> (kvm_sregs, kvm_regs) {
    let mut special = *reset;
    special.cs.selector = u16::from(page) << 8;
    special.cs.base = u64::from(page) << 12;
    let general = kvm_regs {
        rflags: RFLAGS,
        ..kvm_regs::default()
    };
    (special, general)
}

/// What the kernel below can do, for that CPU with the controller of this program.
pub fn cpuid(supported: &CpuId, cpu: u8, cpus: u8, pv_flush: bool) -> CpuId {
    let mut all = supported.clone();
    for entry in all.as_mut_slice() {
        match entry.function {
            1 => {
                entry.ebx = entry.ebx & 0xff00 | u32::from(cpus) << 16 | u32::from(cpu) << 24;
                entry.ecx = entry.ecx & !(X2APIC | TSC_DEADLINE) | HYPERVISOR;
                entry.edx |= HAS_APIC;
            }
            LEAF_TOPOLOGY => entry.edx = cpu.into(),
            LEAF_KVM_FEATURES if !pv_flush => entry.eax &= !(STEAL_TIME | PV_TLB_FLUSH),
            _ => {}
        }
    }
    all
}
