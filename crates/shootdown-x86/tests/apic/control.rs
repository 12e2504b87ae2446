//! The order of register accesses when switching on, ending interrupts, and with the timer.

use std::collections::BTreeSet;

use shootdown_x86::Vector;
use shootdown_x86::apic::{
    ApicId, ApicMode, FlatId, LocalApic, Register, TimerDivide, TimerMode, TimerRate,
};
use shootdown_x86::msr::Msr;

use crate::machine::{Machine, OTHER_VECTOR, Op, x2apic, xapic};

const SPURIOUS: Vector = Vector::new(0xff).unwrap();
const APIC_BASE: u32 = 0x1b;
/// A usual value of the version register: six local sources.
const VERSION: u32 = 0x0005_0014;

#[test]
fn xapic_enable_masks_and_addresses_before_it_switches_on() {
    let machine = Machine::default();
    machine.set_msr(Msr::APIC_BASE, 0xfee0_0100);
    machine.set_page(Register::Version, VERSION);
    // SAFETY: a recorder takes no interrupts.
    unsafe { xapic(&machine).enable(SPURIOUS, FlatId::new(2)) };
    let expected = [
        Op::WriteMsr(APIC_BASE, 0xfee0_0900),
        Op::WritePage(0x320, 0x1_0000),
        Op::WritePage(0x350, 0x1_0000),
        Op::WritePage(0x360, 0x1_0000),
        Op::WritePage(0x370, 0x1_0000),
        Op::WritePage(0x340, 0x1_0000),
        Op::WritePage(0x330, 0x1_0000),
        Op::WritePage(0x380, 0),
        Op::WritePage(0x080, 0),
        Op::WritePage(0x0e0, 0xffff_ffff),
        Op::WritePage(0x0d0, 0x0400_0000),
        Op::WritePage(0x0f0, 0x1ff),
        Op::WritePage(0x280, 0),
    ];
    assert_eq!(machine.writes(), expected);
}

#[test]
fn x2apic_enable_passes_through_xapic_and_writes_no_logical_id() {
    let machine = Machine::default();
    machine.set_msr(Msr::APIC_BASE, 0xfee0_0000);
    machine.set_msr(Register::Version.msr(), VERSION.into());
    // SAFETY: a recorder takes no interrupts.
    unsafe { x2apic(&machine).enable(SPURIOUS, FlatId::new(2)) };
    let writes = machine.writes();
    let expected = [
        Op::WriteMsr(APIC_BASE, 0xfee0_0800),
        Op::WriteMsr(APIC_BASE, 0xfee0_0c00),
    ];
    assert_eq!(writes[..2], expected);
    let absent = [
        Register::LogicalDestination,
        Register::DestinationFormat,
        Register::LvtCmci,
    ];
    for register in absent {
        let touched =
            |op: &Op| matches!(op, Op::WriteMsr(msr, _) if *msr == register.msr().as_u32());
        assert!(!writes.iter().any(touched), "{register:?}");
    }
}

#[test]
fn local_sources_that_the_version_lists_are_masked_and_no_others() {
    // In the order in which processors got them; the version register has the number of the last.
    let sources = [0x320, 0x350, 0x360, 0x370, 0x340, 0x330, 0x2f0];
    for last in 2..7 {
        let machine = Machine::default();
        machine.set_page(Register::Version, (last as u32) << 16 | 0x14);
        // SAFETY: a recorder takes no interrupts.
        unsafe { xapic(&machine).enable(SPURIOUS, None) };
        let masked: BTreeSet<u16> = machine
            .writes()
            .into_iter()
            .filter_map(|op| match op {
                Op::WritePage(offset, 0x1_0000) => Some(offset),
                _ => None,
            })
            .collect();
        assert_eq!(masked, sources[..=last].iter().copied().collect());
    }
}

#[test]
fn a_controller_in_its_mode_is_not_put_there_again() {
    let machine = Machine::default();
    machine.set_msr(Msr::APIC_BASE, 0xfee0_0c00);
    // SAFETY: a recorder takes no interrupts.
    unsafe { x2apic(&machine).enable(SPURIOUS, None) };
    let mut writes = machine.writes().into_iter();
    assert!(!writes.any(|op| matches!(op, Op::WriteMsr(APIC_BASE, _))));
}

#[test]
fn modes_change_by_legal_transitions_only() {
    const OFF: u64 = 0;
    const XAPIC: u64 = 1 << 11;
    const X2APIC: u64 = 1 << 11 | 1 << 10;
    let legal = [
        (OFF, OFF),
        (OFF, XAPIC),
        (XAPIC, OFF),
        (XAPIC, XAPIC),
        (XAPIC, X2APIC),
    ];
    let legal_from_x2 = [(X2APIC, OFF), (X2APIC, X2APIC)];
    for start in [OFF, XAPIC, X2APIC] {
        for (mode, wanted) in [(ApicMode::XApic, XAPIC), (ApicMode::X2Apic, X2APIC)] {
            let machine = Machine::default();
            machine.set_msr(Msr::APIC_BASE, 0xfee0_0000 | start);
            // SAFETY: a recorder has all registers.
            let apic = unsafe { LocalApic::with_port(mode, &machine) };
            // SAFETY: a recorder takes no interrupts.
            unsafe { apic.enable(SPURIOUS, None) };
            let mut now = start;
            for op in machine.writes() {
                let Op::WriteMsr(APIC_BASE, value) = op else {
                    continue;
                };
                let next = value & 0xfff;
                let step = (now, next);
                assert!(
                    legal.contains(&step) || legal_from_x2.contains(&step),
                    "{step:x?}"
                );
                now = next;
            }
            assert_eq!(now, wanted, "from {start:#x} to {mode:?}");
        }
    }
}

#[test]
fn ids_are_eight_bits_in_xapic_and_all_in_x2apic() {
    let machine = Machine::default();
    machine.set_page(Register::Id, 0xf700_0000);
    machine.set_msr(Register::Id.msr(), 0xf700_0000);
    assert_eq!(xapic(&machine).id(), ApicId(0xf7));
    assert_eq!(x2apic(&machine).id(), ApicId(0xf700_0000));
}

#[test]
fn end_of_interrupt_writes_zero() {
    let machine = Machine::default();
    xapic(&machine).end_of_interrupt();
    x2apic(&machine).end_of_interrupt();
    assert_eq!(
        machine.writes(),
        [Op::WritePage(0x0b0, 0), Op::WriteMsr(0x80b, 0)]
    );
}

#[test]
fn errors_are_latched_by_a_write_before_the_read() {
    let machine = Machine::default();
    xapic(&machine).take_errors();
    assert_eq!(
        *machine.log.borrow(),
        [Op::WritePage(0x280, 0), Op::ReadPage(0x280)]
    );
}

#[test]
fn every_error_is_reported_known_or_not() {
    let machine = Machine::default();
    for bit in 0..32 {
        // The write that latches is forgotten by hardware, which shows what was latched.
        machine.fix_page(Register::ErrorStatus, 1 << bit);
        assert_eq!(xapic(&machine).take_errors().bits(), 1 << bit);
    }
}

#[test]
fn the_timer_starts_with_its_last_write() {
    let machine = Machine::default();
    let apic = xapic(&machine);
    apic.start_timer(TimerMode::Periodic, TimerDivide::By16, OTHER_VECTOR, 1000);
    let expected = [
        Op::WritePage(0x3e0, 0b0011),
        Op::WritePage(0x320, 0x2_00d1),
        Op::WritePage(0x380, 1000),
    ];
    assert_eq!(machine.writes(), expected);
}

#[test]
fn every_divisor_has_its_own_bits() {
    // SDM vol. 3A, "Divide Configuration Register": bits 0, 1 and 3.
    let table = [
        (TimerDivide::By1, 0b1011),
        (TimerDivide::By2, 0b0000),
        (TimerDivide::By4, 0b0001),
        (TimerDivide::By8, 0b0010),
        (TimerDivide::By16, 0b0011),
        (TimerDivide::By32, 0b1000),
        (TimerDivide::By64, 0b1001),
        (TimerDivide::By128, 0b1010),
    ];
    for (divide, bits) in table {
        let machine = Machine::default();
        xapic(&machine).start_timer(TimerMode::OneShot, divide, OTHER_VECTOR, 9);
        let expected = [
            Op::WritePage(0x3e0, bits),
            Op::WritePage(0x320, 0xd1),
            Op::WritePage(0x380, 9),
        ];
        assert_eq!(machine.writes(), expected);
    }
}

#[test]
fn a_stopped_timer_is_masked_and_does_not_count() {
    // A deadline is disarmed by leaving its mode, not by a count.
    for before in [0, 0x2_00d1, 0x4_00d1] {
        let machine = Machine::default();
        machine.set_page(Register::LvtTimer, before);
        xapic(&machine).stop_timer();
        let expected = [Op::WritePage(0x320, 0x1_0000), Op::WritePage(0x380, 0)];
        assert_eq!(machine.writes(), expected, "from {before:#x}");
    }
}

#[test]
fn a_restarted_timer_keeps_its_mode() {
    let machine = Machine::default();
    xapic(&machine).restart_timer(77);
    assert_eq!(machine.writes(), [Op::WritePage(0x380, 77)]);
}

#[test]
fn calibration_counts_silently_from_the_top() {
    let machine = Machine::default();
    let apic = xapic(&machine);
    apic.start_calibration(TimerDivide::By1);
    let expected = [
        Op::WritePage(0x3e0, 0b1011),
        Op::WritePage(0x320, 0x1_0000),
        Op::WritePage(0x380, u32::MAX),
    ];
    assert_eq!(machine.writes(), expected);
    machine.set_page(Register::TimerCurrentCount, u32::MAX - 77);
    assert_eq!(apic.timer_elapsed(), 77);
}

#[test]
fn a_deadline_never_overtakes_its_mode() {
    const DEADLINE: u64 = 0x0123_4567_89ab_cdef;
    let machine = Machine::default();
    // SAFETY: a recorder takes all.
    unsafe { xapic(&machine).enable_deadline(OTHER_VECTOR) };
    // SAFETY: as above.
    unsafe { xapic(&machine).set_deadline(DEADLINE) };
    let expected = [
        Op::WritePage(0x320, 0x4_00d1),
        Op::Fence,
        Op::WriteMsr(0x6e0, DEADLINE),
    ];
    assert_eq!(*machine.log.borrow(), expected);
    let machine = Machine::default();
    // SAFETY: as above.
    unsafe { x2apic(&machine).enable_deadline(OTHER_VECTOR) };
    assert_eq!(*machine.log.borrow(), [Op::WriteMsr(0x832, 0x4_00d1)]);
}

#[test]
fn rates_come_from_samples_and_saturate() {
    let rate = TimerRate::from_sample(62_500, 1_000_000).unwrap();
    assert_eq!(rate.counts_per_s(), 62_500_000);
    assert_eq!(rate.counts_for_ns(1_000_000), 62_500);
    assert_eq!(rate.counts_for_ns(0), 1, "0 would stop the timer");
    assert_eq!(rate.counts_for_ns(u64::MAX), u32::MAX);
    assert_eq!(TimerRate::from_sample(0, 1), None);
    assert_eq!(TimerRate::from_sample(1, 0), None);
    assert_eq!(
        TimerRate::from_sample(1, u64::MAX),
        None,
        "a rate of 0 is none"
    );
}
