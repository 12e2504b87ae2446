//! Which invalidations there are.

use bitflags::bitflags;
use core::error::Error;
use core::fmt;

bitflags! {
    /// IA32_VMX_EPT_VPID_CAP (SDM vol. 3D, "VPID and EPT Capabilities"): the bits that matter to invalidation, and all others. The register,
    /// [`Msr::VMX_EPT_VPID_CAP`](crate::msr::Msr::VMX_EPT_VPID_CAP), is there where "enable EPT" or "enable VPID" may be set.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct EptVpidCap: u64 {
        /// INVEPT.
        const INVEPT = 1 << 20;
        /// INVEPT of one EPT pointer.
        const INVEPT_CONTEXT = 1 << 25;
        /// INVEPT of all.
        const INVEPT_ALL = 1 << 26;
        /// INVVPID.
        const INVVPID = 1 << 32;
        /// INVVPID of one VPID.
        const INVVPID_CONTEXT = 1 << 41;
        /// INVVPID of all.
        const INVVPID_ALL = 1 << 42;
        const _ = !0;
    }
}

/// Why guests cannot be run: no INVEPT, of one EPT pointer or of all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VmxLacks;

impl fmt::Display for VmxLacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the processor has no INVEPT")
    }
}

impl Error for VmxLacks {}
