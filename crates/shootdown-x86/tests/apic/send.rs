//! The order of register accesses when sending.

use shootdown_x86::apic::{ApicId, Destination, SendError, StartupPage};
use shootdown_x86::{ApicMap, Delivery};

use crate::machine::{Machine, OTHER_VECTOR, Op, Sent, VECTOR, x2apic, xapic};

const ICR_LOW: u16 = 0x300;
const ICR_HIGH: u16 = 0x310;
const X2_ICR: u32 = 0x830;

#[test]
fn xapic_sends_high_half_first_with_interrupts_off() {
    let machine = Machine::default();
    xapic(&machine)
        .send(Destination::Physical(ApicId(3)), VECTOR)
        .unwrap();
    let expected = [
        Op::IrqSave,
        Op::ReadPage(ICR_LOW),
        Op::WritePage(ICR_HIGH, 3 << 24),
        Op::WritePage(ICR_LOW, 0x40f0),
        Op::IrqRestore,
    ];
    assert_eq!(*machine.log.borrow(), expected);
    assert!(!machine.irqs_off());
}

#[test]
fn xapic_send_leaves_interrupts_off_if_they_were() {
    let machine = Machine::default();
    machine.disable_irqs();
    xapic(&machine)
        .send(Destination::AllButSelf, VECTOR)
        .unwrap();
    assert!(machine.irqs_off());
}

#[test]
fn an_interrupt_cannot_split_the_two_halves() {
    const OPS: u32 = 40;
    let [ours, theirs] =
        [(3, 0x40f0), (9, 0x40d1)].map(|(destination, low)| Sent { destination, low });
    let mut ran_first = 0;
    for position in 0..OPS {
        let machine = Machine::default();
        machine.busy_reads.set(3);
        machine.interrupt_in.set(Some(position));
        *machine.handler.borrow_mut() = Some(|machine| {
            let to = Destination::Physical(ApicId(9));
            xapic(machine).send(to, OTHER_VECTOR).unwrap();
        });
        xapic(&machine)
            .send(Destination::Physical(ApicId(3)), VECTOR)
            .unwrap();
        let mut sent = machine.sent.borrow().clone();
        ran_first += u32::from(sent.first() == Some(&theirs));
        sent.retain(|&sent| sent != theirs);
        assert_eq!(sent, [ours], "interrupt at operation {position}");
    }
    assert!(
        ran_first > 0,
        "no interrupt arrived before the send: the test shows nothing"
    );
}

#[test]
fn xapic_waits_for_the_previous_command_and_lets_interrupts_through() {
    let machine = Machine::default();
    machine.busy_reads.set(2);
    xapic(&machine)
        .send(Destination::Physical(ApicId(1)), VECTOR)
        .unwrap();
    let poll = [
        Op::IrqSave,
        Op::ReadPage(ICR_LOW),
        Op::IrqRestore,
        Op::Relax,
    ];
    let log = machine.log.borrow();
    assert_eq!(log[0..4], poll);
    assert_eq!(log[4..8], poll);
    assert_eq!(log[10], Op::WritePage(ICR_HIGH, 1 << 24));
}

#[test]
fn xapic_waits_for_thousands_of_polls_before_it_gives_up() {
    let machine = Machine::default();
    machine.busy_reads.set(50_000);
    xapic(&machine).send_self(VECTOR).unwrap();
    assert_eq!(machine.sent.borrow().len(), 1, "not while it is busy");
    assert_eq!(machine.busy_reads.get(), 0);
}

#[test]
fn a_multicast_stops_at_a_stuck_controller() {
    let machine = Machine::default();
    let map = ApicMap::<4>::new();
    for cpu in 0..4 {
        map.insert(cpu, ApicId(cpu as u32)).unwrap();
    }
    machine.busy_reads.set(u32::MAX);
    let result = xapic(&machine).send_many(&map, 0, &[0b1110], VECTOR);
    assert_eq!(result, Err(SendError::Busy));
    assert!(machine.sent.borrow().is_empty());
}

/// The highest field is the broadcast address, which a host may want.
#[test]
fn xapic_takes_ids_of_eight_bits() {
    let machine = Machine::default();
    let to = Destination::Physical(ApicId(255));
    xapic(&machine).send(to, VECTOR).unwrap();
    assert!(
        machine
            .log
            .borrow()
            .contains(&Op::WritePage(ICR_HIGH, 0xff << 24))
    );
}

#[test]
#[should_panic(expected = "xAPIC cannot address Physical(ApicId(256))")]
fn xapic_refuses_ids_that_would_name_another_cpu() {
    let to = Destination::Physical(ApicId(256));
    let _ = xapic(&Machine::default()).send(to, VECTOR);
}

/// Sends through a controller in the mode with a map for that delivery.
fn send_by(delivery: Delivery, is_x2apic: bool) {
    let machine = Machine::default();
    let map = ApicMap::<4>::new();
    map.configure(delivery).unwrap();
    map.insert(1, ApicId(1)).unwrap();
    let apic = if is_x2apic {
        x2apic(&machine)
    } else {
        xapic(&machine)
    };
    apic.send_many(&map, 0, &[0b10], VECTOR).unwrap();
}

#[test]
fn maps_fit_the_mode_or_are_refused() {
    for (delivery, in_xapic, in_x2apic) in [
        (Delivery::XapicPhysical, true, true),
        (Delivery::XapicFlat, true, false),
        (Delivery::X2Physical, false, true),
        (Delivery::X2Cluster, false, true),
    ] {
        let sends = |is_x2apic| std::panic::catch_unwind(|| send_by(delivery, is_x2apic)).is_ok();
        assert_eq!((sends(false), sends(true)), (in_xapic, in_x2apic));
    }
}

#[test]
fn xapic_gives_up_on_a_stuck_controller() {
    let machine = Machine::default();
    machine.busy_reads.set(u32::MAX);
    let result = xapic(&machine).send(Destination::Physical(ApicId(1)), VECTOR);
    assert_eq!(result, Err(SendError::Busy));
    assert!(machine.writes().is_empty());
    assert!(!machine.irqs_off());
}

#[test]
fn x2apic_fences_before_its_single_write() {
    let machine = Machine::default();
    x2apic(&machine)
        .send(Destination::Physical(ApicId(0x1234)), VECTOR)
        .unwrap();
    let expected = [Op::Fence, Op::WriteMsr(X2_ICR, 0x1234_0000_40f0)];
    assert_eq!(*machine.log.borrow(), expected);
}

#[test]
fn x2apic_multicast_fences_once_before_the_first_cluster() {
    let machine = Machine::default();
    let map = ApicMap::<64>::new();
    map.configure(Delivery::X2Cluster).unwrap();
    for cpu in 0..40 {
        map.insert(cpu, ApicId(cpu as u32)).unwrap();
    }
    x2apic(&machine)
        .send_many(&map, 0, &[0x0f_0003_0000 | 0x6], VECTOR)
        .unwrap();
    let expected = [
        Op::Fence,
        Op::WriteMsr(X2_ICR, 0x0000_0006_0000_48f0),
        Op::WriteMsr(X2_ICR, 0x0001_0003_0000_48f0),
        Op::WriteMsr(X2_ICR, 0x0002_000f_0000_48f0),
    ];
    assert_eq!(*machine.log.borrow(), expected);
}

#[test]
fn start_up_is_fenced_too_because_the_target_reads_memory() {
    let machine = Machine::default();
    let page = StartupPage::new(0x8000).unwrap();
    // SAFETY: a recorder has no CPUs to start.
    unsafe { x2apic(&machine).send_init(ApicId(2)) }.unwrap();
    // SAFETY: as above.
    unsafe { x2apic(&machine).send_startup(ApicId(2), page) }.unwrap();
    // SAFETY: as above.
    unsafe { x2apic(&machine).send_nmi(Destination::Physical(ApicId(2))) }.unwrap();
    let expected = [
        Op::Fence,
        Op::WriteMsr(X2_ICR, 0x2_0000_4500),
        Op::Fence,
        Op::WriteMsr(X2_ICR, 0x2_0000_4608),
        Op::Fence,
        Op::WriteMsr(X2_ICR, 0x2_0000_4400),
    ];
    assert_eq!(*machine.log.borrow(), expected);
}

#[test]
fn sending_to_oneself_needs_no_destination() {
    let machine = Machine::default();
    xapic(&machine).send_self(VECTOR).unwrap();
    assert_eq!(
        machine.writes().last(),
        Some(&Op::WritePage(ICR_LOW, 0x4_40f0))
    );
    let machine = Machine::default();
    x2apic(&machine).send_self(VECTOR).unwrap();
    assert_eq!(machine.writes(), [Op::WriteMsr(0x83f, 0xf0)]);
}

#[test]
fn an_unmapped_target_sends_nothing_at_all() {
    let machine = Machine::default();
    let map = ApicMap::<4>::new();
    map.insert(1, ApicId(1)).unwrap();
    let result = xapic(&machine).send_many(&map, 0, &[0b110], VECTOR);
    assert_eq!(result, Err(SendError::Unmapped(2)));
    assert!(machine.log.borrow().is_empty());
}
