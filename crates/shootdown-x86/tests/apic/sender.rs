//! A controller that somebody else owns: what is sent, and that nothing else is touched.

use shootdown_x86::apic::{ApicId, ApicMode, Destination, IpiSender, SendError};
use shootdown_x86::{ApicMap, Delivery, FadtFlags};

use crate::machine::{Machine, Op, VECTOR};

const MODES: [ApicMode; 2] = [ApicMode::XApic, ApicMode::X2Apic];
/// The interrupt command and the register for interrupts to oneself.
const PAGE_OFFSETS: [u16; 2] = [0x300, 0x310];
const MSRS: [u32; 2] = [0x830, 0x83f];

fn sender(mode: ApicMode, machine: &Machine) -> IpiSender<&Machine> {
    // SAFETY: a recorder has all registers, in any mode.
    unsafe { IpiSender::with_port(mode, machine) }
}

fn map(mode: ApicMode) -> ApicMap<64> {
    let map = ApicMap::new();
    map.configure(Delivery::choose(mode, 64, FadtFlags::empty()))
        .unwrap();
    for cpu in 0..20 {
        map.insert(cpu, ApicId(cpu as u32)).unwrap();
    }
    map
}

fn send_everything(mode: ApicMode, machine: &Machine) -> Result<(), SendError> {
    let sender = sender(mode, machine);
    assert_eq!(sender.mode(), mode);
    sender.send(Destination::Physical(ApicId(3)), VECTOR)?;
    sender.send_many(&map(mode), 0, &[0x1_0002], VECTOR)?;
    sender.send_self(VECTOR)?;
    // SAFETY: a recorder has no CPUs to interrupt.
    unsafe { sender.send_nmi(Destination::AllButSelf) }
}

#[test]
fn nothing_but_the_interrupt_command_is_touched() {
    for mode in MODES {
        let machine = Machine::default();
        send_everything(mode, &machine).unwrap();
        for &op in machine.log.borrow().iter() {
            let is_command = match op {
                Op::ReadPage(offset) | Op::WritePage(offset, _) => {
                    mode == ApicMode::XApic && PAGE_OFFSETS.contains(&offset)
                }
                Op::WriteMsr(msr, _) => mode == ApicMode::X2Apic && MSRS.contains(&msr),
                Op::ReadMsr(_) => false,
                Op::Fence | Op::IrqSave | Op::IrqRestore | Op::Relax => true,
            };
            assert!(is_command, "{op:x?} in {mode:?}");
        }
    }
}

#[test]
fn commands_are_those_of_an_owned_controller_with_its_fences() {
    let machine = Machine::default();
    send_everything(ApicMode::X2Apic, &machine).unwrap();
    let expected = [
        Op::Fence,
        Op::WriteMsr(0x830, 0x3_0000_40f0),
        Op::Fence,
        Op::WriteMsr(0x830, 0x0000_0001_0000_40f0),
        Op::WriteMsr(0x830, 0x0000_0010_0000_40f0),
        Op::WriteMsr(0x83f, 0xf0),
        Op::Fence,
        Op::WriteMsr(0x830, 0x000c_4400),
    ];
    assert_eq!(*machine.log.borrow(), expected);

    let machine = Machine::default();
    send_everything(ApicMode::XApic, &machine).unwrap();
    let sent: Vec<_> = machine.sent.borrow().iter().map(|sent| sent.low).collect();
    assert_eq!(sent, [0x40f0, 0x40f0, 0x40f0, 0x4_40f0, 0xc_4400]);
}

#[test]
fn errors_come_back() {
    let machine = Machine::default();
    let unmapped =
        sender(ApicMode::X2Apic, &machine).send_many(&map(ApicMode::X2Apic), 0, &[1 << 20], VECTOR);
    assert_eq!(unmapped, Err(SendError::Unmapped(20)));
    machine.busy_reads.set(u32::MAX);
    let busy = sender(ApicMode::XApic, &machine);
    assert_eq!(busy.send_self(VECTOR), Err(SendError::Busy));
    assert!(machine.sent.borrow().is_empty());
    assert!(!machine.irqs_off());
}
