//! SVM on the emulated processor: VMRUN as APM vol. 2 has it. Where it may keep something it does; VMCBs that have run here it knows by their address, and
//! reads again only what their clean bits ask for.

use std::cell::RefCell;
use std::collections::BTreeMap;

use shootdown_x86::svm::{CleanBits, Svm, SvmFlags, SvmTags, VmcbControl};

use super::super::tables::Tables;
use super::hypervisor::Kind;
use super::processor::{Caches, Running, Tag};

pub const SLOTS: usize = 4;

#[derive(Debug)]
pub struct Processor {
    svm: Svm,
    caches: Caches,
    /// ASID and N_CR3 of VMCBs.
    kept: RefCell<BTreeMap<usize, (u32, u64)>>,
}

/// #VMEXIT(VMEXIT_INVALID).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Invalid;

impl Processor {
    pub fn new(svm: Svm) -> Self {
        Self {
            svm,
            caches: Caches::new(),
            kept: RefCell::default(),
        }
    }

    pub fn caches(&self) -> &Caches {
        &self.caches
    }

    /// VMRUN of a virtual CPU; enters guest mode, or refuses and does nothing.
    pub fn vmrun(&self, vcpu: usize, control: &VmcbControl) -> Result<(), Invalid> {
        let kept = self.kept.borrow().get(&vcpu).copied();
        let kept = kept.filter(|_| self.svm.flags.contains(SvmFlags::VMCB_CLEAN));
        let is_clean = |bit| control.clean_bits().contains(bit);
        let (mut asid, mut n_cr3) = (control.guest_asid(), control.n_cr3());
        if let Some((kept_asid, kept_n_cr3)) = kept {
            asid = if is_clean(CleanBits::ASID) {
                kept_asid
            } else {
                asid
            };
            n_cr3 = if is_clean(CleanBits::NESTED_PAGING) {
                kept_n_cr3
            } else {
                n_cr3
            };
        }
        let has_command = match control.tlb_control() {
            0 | 1 => true,
            3 | 7 => self.svm.has_flush_by_asid(),
            _ => false,
        };
        let is_asid = asid != 0 && asid < self.svm.asids;
        if !is_asid || !has_command || n_cr3 & 0xfff != 0 || !control.has_nested_paging() {
            return Err(Invalid);
        }
        self.kept.borrow_mut().insert(vcpu, (asid, n_cr3));
        let is_own = |tag: Tag| tag.own == Some(asid);
        match control.tlb_control() {
            1 => self.caches.drop_if(|_| true),
            3 => self.caches.drop_if(|cached| is_own(cached.tag)),
            7 => self
                .caches
                .drop_if(|cached| is_own(cached.tag) && !cached.is_global()),
            _ => {}
        }
        let tag = Tag {
            own: Some(asid),
            nested: None,
        };
        self.caches.enter(Running {
            vcpu,
            root: Tables::root_at(n_cr3),
            combined: tag,
            nested: tag,
        });
        Ok(())
    }
}

/// SVM, as the hypervisor drives it.
#[derive(Debug)]
pub struct SvmKind;

impl Kind for SvmKind {
    type Features = Svm;
    type Processor = Processor;
    type Control = VmcbControl;
    type Tags<'a> = SvmTags<SLOTS>;

    fn processor(features: Svm) -> Processor {
        Processor::new(features)
    }

    fn caches(processor: &Processor) -> &Caches {
        &processor.caches
    }

    fn tags(processor: &Processor) -> SvmTags<SLOTS> {
        SvmTags::new(&processor.svm).unwrap()
    }

    fn control() -> VmcbControl {
        VmcbControl::new()
    }

    fn root(guest: usize) -> u64 {
        Tables::root_address(guest)
    }

    fn prepare(_: &Processor, _: usize, control: &mut VmcbControl, has_moved: bool) {
        if has_moved {
            control.set_clean_bits(CleanBits::empty());
        }
    }

    fn launch(processor: &Processor, vcpu: usize, control: &mut VmcbControl) {
        let result = processor.vmrun(vcpu, control);
        assert_eq!(result, Ok(()), "VMRUN refuses {:?}", control.words());
        control.set_clean_bits(CleanBits::all());
    }

    /// Everything goes only where there is no other way, and then no sooner than the ASIDs are used up: by drops, and once by each slot.
    fn may_drop_other_tags(features: Svm, drops_since: usize) -> bool {
        let last = features.asids as usize - 1;
        !features.has_flush_by_asid() && drops_since >= last - SLOTS.min(last / 2)
    }
}
