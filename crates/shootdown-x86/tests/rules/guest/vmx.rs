//! VMX on the emulated processor: EPT and VPIDs as SDM vol. 3C has them. Each VMCS has the number of its virtual CPU.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use shootdown_x86::vmx::{
    CurrentVmcs, EptVpidCap, InveptKind, InvvpidKind, Port, VmFail, VmcsField, VmxTags,
};

use super::super::tables::Tables;
use super::hypervisor::Kind;
use super::processor::{Caches, Running, Tag, What};

/// Bits 51:12 of an EPT pointer.
const EP4TA: u64 = ((1 << 52) - 1) & !0xfff;
/// Write-back, four levels.
const LOW_BITS: u64 = 0x1e;

#[derive(Debug)]
pub struct Processor {
    cap: EptVpidCap,
    caches: Caches,
    current: Cell<Option<usize>>,
    fields: RefCell<HashMap<(usize, VmcsField), u64>>,
}

impl Processor {
    pub fn new(cap: EptVpidCap) -> Self {
        Self {
            cap,
            caches: Caches::new(),
            current: Cell::new(None),
            fields: RefCell::default(),
        }
    }

    pub fn caches(&self) -> &Caches {
        &self.caches
    }

    /// VMPTRLD of a virtual CPU's VMCS.
    pub fn make_current(&self, vcpu: usize) {
        self.current.set(Some(vcpu));
    }

    pub fn field(&self, vcpu: usize, field: VmcsField) -> u64 {
        self.fields.borrow()[&(vcpu, field)]
    }

    fn is_pointer(pointer: u64) -> bool {
        pointer & !EP4TA == LOW_BITS
    }

    /// VM entry of the current virtual CPU.
    pub fn launch(&self) -> Result<(), VmFail> {
        let vcpu = self.current.get().ok_or(VmFail)?;
        let vpid = self.field(vcpu, VmcsField::Vpid) as u32;
        let pointer = self.field(vcpu, VmcsField::EptPointer);
        if vpid == 0 || !Self::is_pointer(pointer) {
            return Err(VmFail);
        }
        let nested = Some(pointer & EP4TA);
        self.caches.enter(Running {
            vcpu,
            root: Tables::root_at(pointer & EP4TA),
            combined: Tag {
                own: Some(vpid),
                nested,
            },
            nested: Tag { own: None, nested },
        });
        Ok(())
    }

    fn require(&self, cap: EptVpidCap) -> Result<(), VmFail> {
        match self.cap.contains(cap) {
            true => Ok(()),
            false => Err(VmFail),
        }
    }
}

impl Port for &Processor {
    unsafe fn invept(&self, kind: InveptKind) -> Result<(), VmFail> {
        assert!(self.cap.contains(EptVpidCap::INVEPT), "#UD: no INVEPT");
        let is_linear = |what| what == What::Host;
        match kind {
            InveptKind::Context(pointer) => {
                self.require(EptVpidCap::INVEPT_CONTEXT)?;
                if !Processor::is_pointer(pointer) {
                    return Err(VmFail);
                }
                let nested = Some(pointer & EP4TA);
                self.caches.drop_if(|cached| cached.tag.nested == nested);
            }
            InveptKind::All => {
                self.require(EptVpidCap::INVEPT_ALL)?;
                self.caches.drop_if(|cached| !is_linear(cached.what));
            }
        }
        Ok(())
    }

    unsafe fn invvpid(&self, kind: InvvpidKind) -> Result<(), VmFail> {
        assert!(self.cap.contains(EptVpidCap::INVVPID), "#UD: no INVVPID");
        match kind {
            InvvpidKind::Context(vpid) => {
                self.require(EptVpidCap::INVVPID_CONTEXT)?;
                if vpid == 0 {
                    return Err(VmFail);
                }
                let own = Some(u32::from(vpid));
                self.caches.drop_if(|cached| cached.tag.own == own);
            }
            InvvpidKind::All => {
                self.require(EptVpidCap::INVVPID_ALL)?;
                self.caches
                    .drop_if(|cached| cached.tag.own.is_some_and(|vpid| vpid != 0));
            }
        }
        Ok(())
    }

    unsafe fn vmwrite(&self, field: VmcsField, value: u64) -> Result<(), VmFail> {
        let vcpu = self.current.get().ok_or(VmFail)?;
        self.fields.borrow_mut().insert((vcpu, field), value);
        Ok(())
    }
}

/// VMX, as the hypervisor drives it.
#[derive(Debug)]
pub struct VmxKind;

impl Kind for VmxKind {
    type Features = EptVpidCap;
    type Processor = Processor;
    type Control = CurrentVmcs;
    type Tags<'a> = VmxTags<&'a Processor>;

    fn processor(features: EptVpidCap) -> Processor {
        Processor::new(features)
    }

    fn caches(processor: &Processor) -> &Caches {
        &processor.caches
    }

    fn tags(processor: &Processor) -> VmxTags<&Processor> {
        // SAFETY: emulated.
        unsafe { VmxTags::with_port(processor, processor.cap) }.unwrap()
    }

    fn control() -> CurrentVmcs {
        // SAFETY: emulated; `prepare` makes it so.
        unsafe { CurrentVmcs::new() }
    }

    fn root(guest: usize) -> u64 {
        Tables::root_address(guest) | LOW_BITS
    }

    fn prepare(processor: &Processor, vcpu: usize, _: &mut CurrentVmcs, has_moved: bool) {
        processor.make_current(vcpu);
        if has_moved {
            // What another CPU's tags wrote is of no use here.
            let fields = [(VmcsField::Vpid, 0), (VmcsField::EptPointer, 0)];
            let fields = fields.map(|(field, value)| ((vcpu, field), value));
            processor.fields.borrow_mut().extend(fields);
        }
    }

    fn launch(processor: &Processor, _: usize, _: &mut CurrentVmcs) {
        assert_eq!(processor.launch(), Ok(()), "the entry fails");
    }

    /// Those of other guests, where there are invalidations of all only.
    fn may_drop_other_tags(features: EptVpidCap, _: usize) -> bool {
        let linear = EptVpidCap::INVVPID | EptVpidCap::INVVPID_CONTEXT;
        let exact = EptVpidCap::INVEPT_CONTEXT | linear;
        !features.contains(exact)
    }
}
