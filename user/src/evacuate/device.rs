//! `/dev/kvm`: what it can do, and new machines.

use std::io;

use kvm_bindings::{
    CpuId, KVM_API_VERSION, KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2, KVM_DIRTY_LOG_MANUAL_PROTECT_ENABLE,
    KVM_MAX_CPUID_ENTRIES, kvm_enable_cap,
};
use kvm_ioctls::{Kvm, VmFd};

use crate::args::UsageError;
use crate::kvm::{self, PATH};

/// The device, and what all machines have from it.
#[derive(Debug)]
pub struct Device {
    kvm: Kvm,
    cpuid: Option<CpuId>,
    clears_by_hand: bool,
}

impl Device {
    /// Opens the device.
    ///
    /// # Errors
    /// There is none, or it speaks another language.
    pub fn open() -> Result<Self, UsageError> {
        kvm::prepare()
            .map_err(|error| UsageError::new(format!("cannot load Linux's KVM: {error}")))?;
        let kvm = Kvm::new().map_err(|error| {
            UsageError::new(format!(
                "cannot open {PATH} ({error}): run on a kernel with KVM and a processor with SVM or VMX, as a user who may open it"
            ))
        })?;
        let version = kvm.get_api_version();
        if version != KVM_API_VERSION as i32 {
            return Err(UsageError::new(format!(
                "{PATH} speaks version {version} of its interface: run on a kernel with version {KVM_API_VERSION}"
            )));
        }
        let can = kvm.check_extension_raw(KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2.into());
        Ok(Self {
            clears_by_hand: can & KVM_DIRTY_LOG_MANUAL_PROTECT_ENABLE as i32 != 0,
            cpuid: kvm.get_supported_cpuid(KVM_MAX_CPUID_ENTRIES).ok(),
            kvm,
        })
    }

    /// What CPUID says in a guest, if the kernel has a choice of that.
    pub fn cpuid(&self) -> Option<&CpuId> {
        self.cpuid.as_ref()
    }

    /// Whether a log is cleared piece by piece, after it was read.
    pub fn clears_by_hand(&self) -> bool {
        self.clears_by_hand
    }

    /// A machine without memory, and whether its log is cleared by hand.
    pub fn create_vm(&self) -> io::Result<(VmFd, bool)> {
        let vm = self.kvm.create_vm()?;
        if self.clears_by_hand {
            let mut capability = kvm_enable_cap {
                cap: KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2,
                ..kvm_enable_cap::default()
            };
            capability.args[0] = KVM_DIRTY_LOG_MANUAL_PROTECT_ENABLE.into();
            vm.enable_cap(&capability)?;
        }
        Ok((vm, self.clears_by_hand))
    }
}
