//! The few instructions of VMX that invalidation is made of.

use core::arch::asm;
use core::error::Error;
use core::fmt;

/// What one INVEPT drops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InveptKind {
    /// Type 1: guest-physical and combined mappings of the tables of this EPT pointer.
    Context(u64),
    /// Type 2: those of all EPT pointers.
    All,
}

/// What one INVVPID drops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InvvpidKind {
    /// Type 1: linear and combined mappings of this VPID.
    Context(u16),
    /// Type 2: those of all VPIDs but 0.
    All,
}

/// A field of the VMCS that this crate writes (SDM vol. 3D, "Field Encoding in VMCS").
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u32)]
pub enum VmcsField {
    /// The VPID.
    Vpid = 0x0000,
    /// The EPT pointer.
    EptPointer = 0x201a,
}

/// The operand in memory: what is named, and zeros, or an address, which is not used here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C, align(16))]
pub(super) struct Descriptor(u64, u64);

impl InveptKind {
    const fn encode(self) -> (u64, Descriptor) {
        match self {
            Self::Context(pointer) => (1, Descriptor(pointer, 0)),
            Self::All => (2, Descriptor(0, 0)),
        }
    }
}

impl InvvpidKind {
    const fn encode(self) -> (u64, Descriptor) {
        match self {
            Self::Context(vpid) => (1, Descriptor(vpid as u64, 0)),
            Self::All => (2, Descriptor(0, 0)),
        }
    }
}

/// An instruction of VMX failed (SDM vol. 3C, "Conventions"): VMfail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VmFail;

impl fmt::Display for VmFail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the processor refused an operand of INVEPT, INVVPID or VMWRITE")
    }
}

impl Error for VmFail {}

/// How [`VmxTags`](super::VmxTags) reaches the machine. [`Hardware`] is the real thing; tests emulate. All methods act on the CPU that calls them.
pub trait Port {
    /// INVEPT.
    ///
    /// # Errors
    /// If the processor does not have the kind, or VM entries would refuse the EPT pointer.
    ///
    /// # Safety
    ///
    /// 1. The CPU is in VMX root operation, and has the instruction (else #UD).
    unsafe fn invept(&self, kind: InveptKind) -> Result<(), VmFail>;
    /// INVVPID.
    ///
    /// # Errors
    /// If the processor does not have the kind, or the VPID is 0.
    ///
    /// # Safety
    ///
    /// 1. As for [`invept`](Self::invept).
    unsafe fn invvpid(&self, kind: InvvpidKind) -> Result<(), VmFail>;
    /// VMWRITE to the current VMCS.
    ///
    /// # Errors
    /// If there is none, or it has no such field.
    ///
    /// # Safety
    ///
    /// 1. The CPU is in VMX root operation (else #UD).
    /// 2. No guest is entered with the value before what it names has been [dropped](super::VmxTags), if it has to be.
    unsafe fn vmwrite(&self, field: VmcsField, value: u64) -> Result<(), VmFail>;
}

/// The processor itself.
#[derive(Clone, Copy, Debug)]
pub struct Hardware(());

impl Hardware {
    /// Access to the processor.
    ///
    /// # Safety
    ///
    /// 1. CPL 0, on every CPU that uses the value.
    pub const unsafe fn new() -> Self {
        Self(())
    }
}

/// CF or ZF says that it failed.
const fn succeeded(failed: u8) -> Result<(), VmFail> {
    match failed {
        0 => Ok(()),
        _ => Err(VmFail),
    }
}

impl Port for Hardware {
    #[inline]
    unsafe fn invept(&self, kind: InveptKind) -> Result<(), VmFail> {
        let (number, descriptor) = kind.encode();
        let failed: u8;
        // SAFETY: CPL 0 by `new`; duty 1 is the caller's; dropping a mapping never changes what memory holds. The descriptor lives until the end
        // of this function. Memory is clobbered, so stores to page tables come before; the instruction serialises.
        unsafe {
            asm!("invept {}, [{}]", "setbe {}", in(reg) number, in(reg) &raw const descriptor,
                 out(reg_byte) failed, options(nostack));
        }
        succeeded(failed)
    }

    #[inline]
    unsafe fn invvpid(&self, kind: InvvpidKind) -> Result<(), VmFail> {
        let (number, descriptor) = kind.encode();
        let failed: u8;
        // SAFETY: as for INVEPT.
        unsafe {
            asm!("invvpid {}, [{}]", "setbe {}", in(reg) number, in(reg) &raw const descriptor,
                 out(reg_byte) failed, options(nostack));
        }
        succeeded(failed)
    }

    #[inline]
    unsafe fn vmwrite(&self, field: VmcsField, value: u64) -> Result<(), VmFail> {
        let failed: u8;
        // SAFETY: CPL 0 by `new`; duties 1 and 2 are the caller's.
        unsafe {
            asm!("vmwrite {}, {}", "setbe {}", in(reg) u64::from(field as u32), in(reg) value,
                 out(reg_byte) failed, options(nostack));
        }
        succeeded(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodings_are_the_manuals() {
        let pointer = 0x1_2345_601e;
        let of_one = (1, Descriptor(pointer, 0));
        assert_eq!(InveptKind::Context(pointer).encode(), of_one);
        assert_eq!(InveptKind::All.encode(), (2, Descriptor(0, 0)));
        assert_eq!(InvvpidKind::Context(7).encode(), (1, Descriptor(7, 0)));
        assert_eq!(InvvpidKind::All.encode(), (2, Descriptor(0, 0)));
        assert_eq!(size_of::<Descriptor>(), 16);
    }
}
