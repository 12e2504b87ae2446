//! Names of what the kernel runs on, for `/proc`.

use alloc::string::{String, ToString};

use raw_cpuid::CpuId;

use crate::arch::{percpu, tlb};

/// The way in which interrupts reach other CPUs: boot switches to x2APIC wherever CPUID has it.
pub(super) fn apic_mode_name() -> &'static str {
    let x2apic = CpuId::new()
        .get_feature_info()
        .is_some_and(|features| features.has_x2apic());
    if x2apic { "x2apic" } else { "xapic" }
}

/// Who emulates the processor, if anybody says so.
pub(super) fn hypervisor_name() -> String {
    match CpuId::new().get_hypervisor_info() {
        Some(info) => alloc::format!("{:?}", info.identify()).to_lowercase(),
        None => "none".to_string(),
    }
}

/// The maker of the processor.
pub(super) fn vendor_name() -> String {
    CpuId::new()
        .get_vendor_info()
        .map_or_else(|| "unknown".to_string(), |v| v.as_str().to_string())
}

/// The processor's name for itself.
pub(super) fn processor_name() -> String {
    CpuId::new()
        .get_processor_brand_string()
        .map_or_else(vendor_name, |name| name.as_str().trim().to_string())
}

/// How many tags each CPU uses.
pub(super) fn tags_a_cpu() -> usize {
    tlb::slots(percpu::cpu_id()).len()
}

/// Page faults of the kernel on pages that permitted the access by then.
pub(super) fn spurious_faults() -> u64 {
    tlb::retries()
}

/// Whether one instruction drops what a tag has cached.
pub(super) fn has_invpcid() -> bool {
    CpuId::new()
        .get_extended_feature_info()
        .is_some_and(|features| features.has_invpcid())
}
