//! From tags to VPIDs, INVEPT and INVVPID.

use super::capabilities::{EptVpidCap, VmxLacks};
use super::port::{Hardware, InveptKind, InvvpidKind, Port, VmFail, VmcsField};
use crate::guest::{EnterError, GuestEntries, GuestEntry, GuestTags};

/// The VPID of guests without a tag; 0 is refused.
const FIRST: u16 = 1;

/// The VMCS that is current on this CPU, of the virtual CPU that is entered next.
#[derive(Debug)]
pub struct CurrentVmcs(());

impl CurrentVmcs {
    /// Whichever is current where the value is used.
    ///
    /// # Safety
    ///
    /// 1. Wherever the value is used, the VMCS of the virtual CPU to be entered is current (VMPTRLD), its controls "enable EPT" and "enable VPID" set.
    pub const unsafe fn new() -> Self {
        Self(())
    }
}

/// The VPIDs and EPT pointers of one CPU.
#[derive(Clone, Copy, Debug)]
pub struct VmxTags<P: Port = Hardware> {
    port: P,
    cap: EptVpidCap,
}

impl VmxTags<Hardware> {
    /// By instructions of the processor.
    ///
    /// # Errors
    /// If it has no INVEPT.
    ///
    /// # Safety
    ///
    /// 1. The value is used on CPUs in VMX root operation only, at CPL 0.
    /// 2. `cap` holds there.
    pub const unsafe fn new(cap: EptVpidCap) -> Result<Self, VmxLacks> {
        // SAFETY: 1. duty 1.
        let port = unsafe { Hardware::new() };
        // SAFETY: 1. duties 1 and 2.
        unsafe { Self::with_port(port, cap) }
    }
}

impl<P: Port + Copy> VmxTags<P> {
    /// The same through another port, for tests and simulators.
    ///
    /// # Errors
    /// As [`new`](VmxTags::new).
    ///
    /// # Safety
    ///
    /// 1. The value is used on CPUs in VMX root operation only, which have `cap`.
    pub const unsafe fn with_port(port: P, cap: EptVpidCap) -> Result<Self, VmxLacks> {
        let kinds = EptVpidCap::INVEPT_CONTEXT.union(EptVpidCap::INVEPT_ALL);
        match cap.contains(EptVpidCap::INVEPT) && cap.intersects(kinds) {
            true => Ok(Self { port, cap }),
            false => Err(VmxLacks),
        }
    }
}

impl<P: Port> VmxTags<P> {
    /// What nested tables said, and what was combined with it, under every VPID.
    fn drop_nested(&self, pointer: u64) -> Result<(), VmFail> {
        let kind = match self.cap.contains(EptVpidCap::INVEPT_CONTEXT) {
            true => InveptKind::Context(pointer),
            false => InveptKind::All,
        };
        // SAFETY: 1. VMX root operation, and INVEPT is there: `with_port`.
        unsafe { self.port.invept(kind) }
    }

    /// What the guest's own tables said.
    fn drop_linear(&self, vpid: u16, pointer: u64) -> Result<(), VmFail> {
        let has = |kind| self.cap.contains(EptVpidCap::INVVPID.union(kind));
        let kind = match has(EptVpidCap::INVVPID_CONTEXT) {
            true => InvvpidKind::Context(vpid),
            false if has(EptVpidCap::INVVPID_ALL) => InvvpidKind::All,
            false => return self.drop_nested(pointer),
        };
        // SAFETY: 1. VMX root operation by `with_port`; INVVPID is there.
        unsafe { self.port.invvpid(kind) }
    }
}

impl<P: Port> GuestTags for VmxTags<P> {
    type Control = CurrentVmcs;

    fn slots(&self) -> usize {
        usize::from(u16::MAX - FIRST)
    }

    fn enter(&mut self, entry: GuestEntry, _: &mut CurrentVmcs) -> Result<(), EnterError> {
        let vpid = FIRST.checked_add(entry.tag);
        let vpid = vpid.ok_or(EnterError::NoSuchTag(entry.tag))?;
        match entry.entries {
            GuestEntries::Keep if entry.tag != 0 => {}
            GuestEntries::DropLinear if entry.tag != 0 => self.drop_linear(vpid, entry.root)?,
            _ => self.drop_nested(entry.root)?,
        }
        for (field, value) in [
            (VmcsField::EptPointer, entry.root),
            (VmcsField::Vpid, u64::from(vpid)),
        ] {
            // SAFETY: 1. VMX root operation by `with_port`. 2. it was dropped above.
            unsafe { self.port.vmwrite(field, value)? };
        }
        Ok(())
    }
}
