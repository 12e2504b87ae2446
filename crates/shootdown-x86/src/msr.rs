//! Model-specific registers: the two instructions, and the names used here.

use core::arch::asm;

/// The number of a model-specific register that this crate uses. Others cannot be named:
///
/// ```compile_fail,E0423
/// let lstar = shootdown_x86::msr::Msr(0xc000_0082);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Msr(u32);

impl Msr {
    /// Where the local APIC is and whether it is on (SDM vol. 3A, "Local APIC Status and Location").
    pub const APIC_BASE: Self = Self(0x1b);
    /// Revision of the microcode, in the upper half (SDM vol. 3A, "Microcode Update Facilities").
    pub const BIOS_SIGN_ID: Self = Self(0x8b);
    /// Time-stamp value at which the APIC timer fires (SDM vol. 3A, "TSC-Deadline Mode").
    pub const TSC_DEADLINE: Self = Self(0x6e0);

    /// Where a guest's steal-time record is (Linux, `Documentation/virt/kvm/x86/msr.rst`).
    pub const KVM_STEAL_TIME: Self = Self(0x4b56_4d03);

    /// What a model has beside its features (SDM vol. 4, "IA32_CORE_CAPABILITIES").
    pub const CORE_CAPABILITIES: Self = Self(0xcf);
    /// Whether remote actions are carried out, and when ([`rar`](crate::rar), for this and the next three).
    pub const RAR_CONTROL: Self = Self(0xed);
    /// Physical address of this CPU's action vector.
    pub const RAR_ACTION_VECTOR: Self = Self(0xee);
    /// Physical address of the payloads.
    pub const RAR_PAYLOAD_BASE: Self = Self(0xef);
    /// How many payloads there may be.
    pub const RAR_INFO: Self = Self(0xf0);

    /// What is enabled (APM vol. 2, "Extended Feature Enable Register (EFER)").
    pub const EFER: Self = Self(0xc000_0080);
    /// Whether firmware permits SVM (APM vol. 2, "VM_CR MSR").
    pub const VM_CR: Self = Self(0xc001_0114);
    /// Physical address of the page where VMRUN saves the host's state (APM vol. 2, "VM_HSAVE_PA MSR").
    pub const VM_HSAVE_PA: Self = Self(0xc001_0117);
    /// What VMX has of VPIDs and EPT ([`EptVpidCap`](crate::vmx::EptVpidCap)).
    pub const VMX_EPT_VPID_CAP: Self = Self(0x48c);

    /// The x2APIC register with this place in that range (SDM vol. 3A, "x2APIC Register Address Space").
    pub(crate) const fn of_x2apic(register: u8) -> Self {
        const FIRST: u32 = 0x800;
        Self(FIRST + register as u32)
    }

    /// The number, as RDMSR and WRMSR take it in ECX.
    pub const fn as_u32(self) -> u32 {
        self.0
    }
}

/// Reads a model-specific register.
///
/// # Safety
///
/// 1. The CPU runs at CPL 0.
/// 2. The register exists on this processor in its present mode (else #GP).
/// 3. Reading it has no effect that breaks Rust's rules.
#[inline]
pub unsafe fn read(msr: Msr) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: duties 1 to 3 are the caller's.
    unsafe {
        asm!("rdmsr", in("ecx") msr.0, out("eax") low, out("edx") high,
             options(nostack, preserves_flags));
    }
    u64::from(high) << 32 | u64::from(low)
}

/// Writes a model-specific register. A compiler barrier; whether the processor serialises depends
/// on the register (SDM vol. 3A, "Serializing Instructions": not for the x2APIC registers and
/// not for IA32_TSC_DEADLINE).
///
/// # Safety
///
/// 1. The CPU runs at CPL 0.
/// 2. The register exists on this processor in its present mode, and `value` sets no reserved bit
///    (else #GP).
/// 3. The effect of the value breaks none of Rust's rules.
#[inline]
pub unsafe fn write(msr: Msr, value: u64) {
    let low = value as u32;
    let high = (value >> 32) as u32;
    // SAFETY: duties 1 to 3 are the caller's.
    unsafe {
        asm!("wrmsr", in("ecx") msr.0, in("eax") low, in("edx") high,
             options(nostack, preserves_flags));
    }
}
