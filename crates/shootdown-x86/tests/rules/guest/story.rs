//! Whatever guests, their host and its interrupts do, no guest uses a translation that its tables do not have, and no entry drops more than it must.

use proptest::prelude::*;
use shootdown_x86::svm::{Svm, SvmFlags};
use shootdown_x86::vmx::EptVpidCap;

use super::super::tables::{KERNEL, PAGES, Page};
use super::hypervisor::{CPUS, GUEST_OF, GUESTS, Hypervisor, Kind, Seen, processors};
use super::processor::VIRTUAL;
use super::svm::SvmKind;
use super::vmx::VmxKind;

#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// A CPU, a virtual CPU, and whether it is in vain.
    Enter(usize, usize, bool),
    Exit(usize),
    /// Another frame, or none, for a guest-physical page.
    Change(usize, Page, Option<u32>),
    /// A nested table is freed, or a new one made.
    Table(usize, usize),
    /// The guest that runs here maps a virtual page elsewhere.
    GuestMaps(usize, usize, Page),
    /// The host does so for a virtual CPU.
    ChangeOwn(usize, usize, Page),
    Restart(usize),
}

impl<K: Kind> Hypervisor<'_, K> {
    pub fn take(&mut self, step: Step) {
        match step {
            Step::Enter(cpu, vcpu, in_vain) => self.enter(cpu, vcpu, in_vain),
            Step::Exit(cpu) => self.exit(cpu),
            Step::Change(guest, page, frame) => {
                self.change(guest, |memory| memory.nested.set(guest, page, frame));
            }
            Step::Table(guest, region) => self.change(guest, |memory| {
                match memory.nested.table_of(guest, region) {
                    Some(_) => memory.nested.free(guest, region),
                    None => memory.nested.link(guest, region, 7000),
                }
            }),
            Step::GuestMaps(cpu, virtual_page, page) => self.guest_maps(cpu, virtual_page, page),
            Step::ChangeOwn(vcpu, virtual_page, page) => self.change_own(vcpu, virtual_page, page),
            Step::Restart(cpu) => self.restart(cpu),
        }
        self.check();
    }
}

/// Plays a story from the beginning.
pub fn play<K: Kind>(features: K::Features, is_fine: bool, steps: &[Step]) -> Seen {
    let processors = processors::<K>(features);
    let mut hypervisor = Hypervisor::<K>::new(features, &processors, is_fine);
    steps.iter().for_each(|&step| hypervisor.take(step));
    hypervisor.seen
}

pub fn svm(asids: u32, flags: SvmFlags) -> Svm {
    Svm {
        revision: 1,
        asids,
        flags: flags | SvmFlags::NESTED_PAGING,
    }
}

fn any_page() -> impl Strategy<Value = Page> {
    (0..KERNEL, 0..PAGES).prop_map(|(region, index)| Page { region, index })
}

fn any_step() -> impl Strategy<Value = Step> {
    let vcpus = 0..GUEST_OF.len();
    let frame = proptest::option::of(0..50u32);
    prop_oneof![
        12 => (0..CPUS, vcpus.clone(), proptest::bool::weighted(0.2)).prop_map(|(c, v, b)| Step::Enter(c, v, b)),
        2 => (0..CPUS).prop_map(Step::Exit),
        3 => (0..GUESTS, any_page(), frame).prop_map(|(g, p, f)| Step::Change(g, p, f)),
        1 => (0..GUESTS, 0..KERNEL).prop_map(|(g, r)| Step::Table(g, r)),
        3 => (0..CPUS, 0..VIRTUAL, any_page()).prop_map(|(c, v, p)| Step::GuestMaps(c, v, p)),
        1 => (vcpus, 0..VIRTUAL, any_page()).prop_map(|(c, v, p)| Step::ChangeOwn(c, v, p)),
        1 => (0..CPUS).prop_map(Step::Restart),
    ]
}

fn any_steps() -> impl Strategy<Value = Vec<Step>> {
    proptest::collection::vec(any_step(), 1..80)
}

fn any_svm() -> impl Strategy<Value = Svm> {
    let flags = SvmFlags::FLUSH_BY_ASID | SvmFlags::VMCB_CLEAN;
    (2..12u32, any::<u32>())
        .prop_map(move |(asids, bits)| svm(asids, SvmFlags::from_bits_retain(bits) & flags))
}

fn any_vmx() -> impl Strategy<Value = EptVpidCap> {
    let least = EptVpidCap::INVEPT | EptVpidCap::INVEPT_ALL;
    any::<u64>().prop_map(move |bits| EptVpidCap::from_bits_retain(bits) | least)
}

proptest! {
    #![proptest_config(super::super::config())]
    #[test]
    fn no_guest_on_svm_uses_what_its_tables_do_not_have(
        svm in any_svm(),
        is_fine in any::<bool>(),
        steps in any_steps(),
    ) {
        play::<SvmKind>(svm, is_fine, &steps);
    }

    #[test]
    fn no_guest_on_vmx_uses_what_its_tables_do_not_have(
        cap in any_vmx(),
        is_fine in any::<bool>(),
        steps in any_steps(),
    ) {
        play::<VmxKind>(cap, is_fine, &steps);
    }
}
