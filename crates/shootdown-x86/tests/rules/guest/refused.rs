//! What is refused, by the tags and by the emulated processor, and mistakes that it must punish.

use shootdown_x86::guest::{EnterError, GuestEntries, GuestEntry, GuestTags};
use shootdown_x86::svm::{SvmTags, VmcbControl};
use shootdown_x86::vmx::{CurrentVmcs, EptVpidCap, InvvpidKind, Port, VmFail, VmcsField, VmxTags};

use super::hypervisor::{Hypervisor, Kind, processors};
use super::known::{ALL_ONLY, BY_ASID, PAGE, enter, entry};
use super::processor::{Memory, What};
use super::story::svm;
use super::svm::{Invalid, Processor as SvmProcessor, SLOTS, SvmKind};
use super::vmx::{Processor as VmxProcessor, VmxKind};

#[test]
fn wrong_entries_are_refused() {
    let mut tags = SvmTags::<SLOTS>::new(&svm(4, BY_ASID)).unwrap();
    let mut control = VmcbControl::new();
    let mut enter = |entry| tags.enter(entry, &mut control);
    assert_eq!(enter(entry(2, GuestEntries::Drop)), Ok(()));
    assert_eq!(
        enter(entry(3, GuestEntries::Drop)),
        Err(EnterError::NoSuchTag(3))
    );
    let root = 0x1008;
    let bad = GuestEntry {
        root,
        ..entry(1, GuestEntries::Drop)
    };
    assert_eq!(enter(bad), Err(EnterError::BadRoot(root)));

    let processor = VmxProcessor::new(EptVpidCap::all());
    let (mut tags, mut vmcs) = (VmxKind::tags(&processor), VmxKind::control());
    processor.make_current(0);
    let mut enter = |entry| tags.enter(entry, &mut vmcs);
    assert_eq!(enter(bad), Err(EnterError::Refused(VmFail)));
    let [last, none] = [u16::MAX - 1, u16::MAX].map(|tag| GuestEntry {
        root: VmxKind::root(0),
        ..entry(tag, GuestEntries::Drop)
    });
    assert_eq!(enter(last), Ok(()));
    assert_eq!(enter(none), Err(EnterError::NoSuchTag(u16::MAX)));
}

#[test]
fn vmx_without_invept_runs_no_guests() {
    for cap in [
        EptVpidCap::all() - EptVpidCap::INVEPT,
        EptVpidCap::all() - EptVpidCap::INVEPT_CONTEXT - EptVpidCap::INVEPT_ALL,
    ] {
        let processor = VmxProcessor::new(cap);
        // SAFETY: emulated.
        let tags = unsafe { VmxTags::with_port(&processor, cap) };
        assert!(tags.is_err());
    }
}

/// What a hypervisor must not do, as `vmx` says: INVVPID leaves guest-physical mappings.
#[test]
fn invvpid_after_a_change_of_nested_tables_is_not_enough() {
    let processor = VmxProcessor::new(EptVpidCap::all());
    let mut memory = Memory::new(1, 1);
    processor.make_current(0);
    let port = &processor;
    // SAFETY: emulated.
    let set = |field, value| unsafe { port.vmwrite(field, value) };
    assert_eq!(set(VmcsField::Vpid, 7), Ok(()));
    assert_eq!(set(VmcsField::EptPointer, VmxKind::root(0)), Ok(()));
    assert_eq!(processor.launch(), Ok(()));
    processor.caches().exit(&memory);
    memory.nested.set(0, PAGE, Some(42));
    // SAFETY: emulated, and the point.
    assert_eq!(unsafe { port.invvpid(InvvpidKind::Context(7)) }, Ok(()));
    assert_eq!(processor.launch(), Ok(()));
    let usable = processor.caches().usable(&memory);
    let old = usable
        .iter()
        .filter(|(cached, _)| matches!(cached.what, What::Combined(1, frame) if frame != 42));
    assert_eq!(old.count(), 1);
}

#[test]
fn the_processor_refuses_what_the_manual_says() {
    let processor = SvmProcessor::new(svm(4, ALL_ONLY));
    let vmrun = |change: &dyn Fn(&mut [u64; 128])| {
        let mut control = VmcbControl::new();
        let mut tags = SvmKind::tags(&processor);
        tags.enter(entry(1, GuestEntries::Drop), &mut control)
            .unwrap();
        change(control.words_mut());
        let result = processor.vmrun(0, &control);
        processor.caches().exit(&Memory::new(1, 1));
        result
    };
    assert_eq!(vmrun(&|_| ()), Ok(()));
    for asid_and_control in [0, 4, 3 << 32 | 1, 7 << 32 | 1, 2 << 32 | 1] {
        assert_eq!(
            vmrun(&|words| words[0x58 / 8] = asid_and_control),
            Err(Invalid)
        );
    }
    assert_eq!(vmrun(&|words| words[0x90 / 8] = 0), Err(Invalid));

    let processor = VmxProcessor::new(EptVpidCap::all());
    processor.make_current(0);
    let mut tags = VmxKind::tags(&processor);
    // SAFETY: emulated.
    let mut vmcs = unsafe { CurrentVmcs::new() };
    let keep = GuestEntry {
        root: VmxKind::root(0),
        ..entry(1, GuestEntries::Keep)
    };
    for (entry, field) in [
        (keep, None),
        (keep, Some(VmcsField::Vpid)),
        (keep, Some(VmcsField::EptPointer)),
    ] {
        tags.enter(entry, &mut vmcs).unwrap();
        if let Some(field) = field {
            // SAFETY: emulated, and the point.
            unsafe { (&processor).vmwrite(field, 0) }.unwrap();
        }
        assert_eq!(processor.launch().is_err(), field.is_some());
        if field.is_none() {
            processor.caches().exit(&Memory::new(1, 1));
        }
    }
}

#[test]
#[should_panic(expected = "stale Cached")]
fn a_flush_that_is_forgotten_is_noticed_on_svm() {
    forget_flush::<SvmKind>(svm(9, BY_ASID));
}

#[test]
#[should_panic(expected = "stale Cached")]
fn a_flush_that_is_forgotten_is_noticed_on_vmx() {
    forget_flush::<VmxKind>(EptVpidCap::all());
}

fn forget_flush<K: Kind>(features: K::Features) {
    let processors = processors::<K>(features);
    let mut hypervisor = Hypervisor::<K>::new(features, &processors, true);
    hypervisor.take(enter(0));
    hypervisor.exit(0);
    hypervisor.memory.nested.set(0, PAGE, Some(42));
    hypervisor.take(enter(0));
}
