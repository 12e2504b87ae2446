//! A recorder in place of a local APIC, which also decodes the commands that it gets.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};

use shootdown_x86::apic::{ApicId, ApicMode, Delivery, LocalApic, Port, Register};
use shootdown_x86::msr::Msr;
use shootdown_x86::{IrqState, Vector};

pub const VECTOR: Vector = Vector::new(0xf0).unwrap();
pub const OTHER_VECTOR: Vector = Vector::new(0xd1).unwrap();

pub fn xapic(machine: &Machine) -> LocalApic<&Machine> {
    // SAFETY: a recorder has all registers.
    unsafe { LocalApic::with_port(ApicMode::XApic, machine) }
}

pub fn x2apic(machine: &Machine) -> LocalApic<&Machine> {
    // SAFETY: as above.
    unsafe { LocalApic::with_port(ApicMode::X2Apic, machine) }
}

/// One operation of the port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    ReadPage(u16),
    WritePage(u16, u32),
    ReadMsr(u32),
    WriteMsr(u32, u64),
    Fence,
    IrqSave,
    IrqRestore,
    Relax,
}

/// An interrupt command as the controller takes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sent {
    pub destination: u32,
    pub low: u32,
}

/// Registers that remember what was written, and a log.
#[derive(Default, Debug)]
pub struct Machine {
    pub log: RefCell<Vec<Op>>,
    pub sent: RefCell<Vec<Sent>>,
    page: RefCell<HashMap<u16, u32>>,
    /// Registers that read as this whatever is written.
    fixed: RefCell<HashMap<u16, u32>>,
    msrs: RefCell<HashMap<u32, u64>>,
    /// The controller stays busy for so many reads of the ICR.
    pub busy_reads: Cell<u32>,
    irqs_off: Cell<bool>,
    /// Operations until an interrupt handler runs, if interrupts are on then.
    pub interrupt_in: Cell<Option<u32>>,
    pub handler: RefCell<Option<fn(&Machine)>>,
}

impl Machine {
    pub fn set_page(&self, register: Register, value: u32) {
        self.page.borrow_mut().insert(register.offset(), value);
    }

    pub fn fix_page(&self, register: Register, value: u32) {
        self.fixed.borrow_mut().insert(register.offset(), value);
    }

    pub fn set_msr(&self, msr: Msr, value: u64) {
        self.msrs.borrow_mut().insert(msr.as_u32(), value);
    }

    pub fn page(&self, register: Register) -> Option<u32> {
        self.page.borrow().get(&register.offset()).copied()
    }

    pub fn irqs_off(&self) -> bool {
        self.irqs_off.get()
    }

    pub fn disable_irqs(&self) {
        self.irqs_off.set(true);
    }

    /// What was written, without reads, fences and interrupt states.
    pub fn writes(&self) -> Vec<Op> {
        let is_write = |op: &Op| matches!(op, Op::WritePage(..) | Op::WriteMsr(..));
        self.log.borrow().iter().copied().filter(is_write).collect()
    }

    /// Runs a handler where hardware would: between two operations, interrupts on.
    fn step(&self, op: Op) {
        let due = match self.interrupt_in.get() {
            Some(0) => !self.irqs_off.get(),
            Some(left) => {
                self.interrupt_in.set(Some(left - 1));
                false
            }
            None => false,
        };
        if due {
            self.interrupt_in.set(None);
            let handler = self.handler.borrow_mut().take();
            if let Some(handler) = handler {
                self.irqs_off.set(true);
                handler(self);
                self.irqs_off.set(false);
            }
        }
        self.log.borrow_mut().push(op);
    }
}

const PENDING: u32 = 1 << 12;

impl Port for &Machine {
    unsafe fn read_page(&self, offset: u16) -> u32 {
        self.step(Op::ReadPage(offset));
        let fixed = self.fixed.borrow().get(&offset).copied();
        let value = fixed.or_else(|| self.page.borrow().get(&offset).copied());
        let value = value.unwrap_or(0);
        if offset == Register::CommandLow.offset() && self.busy_reads.get() > 0 {
            self.busy_reads.set(self.busy_reads.get() - 1);
            return value | PENDING;
        }
        value
    }

    unsafe fn write_page(&self, offset: u16, value: u32) {
        self.step(Op::WritePage(offset, value));
        self.page.borrow_mut().insert(offset, value);
        if offset == Register::CommandLow.offset() {
            let destination = self.page(Register::CommandHigh).unwrap_or(0) >> 24;
            let low = value;
            self.sent.borrow_mut().push(Sent { destination, low });
        }
    }

    unsafe fn read_msr(&self, msr: Msr) -> u64 {
        self.step(Op::ReadMsr(msr.as_u32()));
        self.msrs.borrow().get(&msr.as_u32()).copied().unwrap_or(0)
    }

    unsafe fn write_msr(&self, msr: Msr, value: u64) {
        self.step(Op::WriteMsr(msr.as_u32(), value));
        self.msrs.borrow_mut().insert(msr.as_u32(), value);
        if msr == Register::CommandLow.msr() {
            let (destination, low) = ((value >> 32) as u32, value as u32);
            self.sent.borrow_mut().push(Sent { destination, low });
        }
    }

    fn fence(&self) {
        self.step(Op::Fence);
    }

    fn irq_save(&self) -> IrqState {
        self.step(Op::IrqSave);
        match self.irqs_off.replace(true) {
            true => IrqState::Disabled,
            false => IrqState::Enabled,
        }
    }

    unsafe fn irq_restore(&self, before: IrqState) {
        self.irqs_off.set(!before.is_enabled());
        self.step(Op::IrqRestore);
    }

    fn relax(&self) {
        self.step(Op::Relax);
    }
}

const LOGICAL: u32 = 1 << 11;
const SHORTHAND: u32 = 0b11 << 18;
const SHORTHAND_ALL_BUT_SELF: u32 = 0b11 << 18;

/// The CPUs whose controllers accept a command, by the manual's rules and not the library's code.
/// `ids[i]` is the APIC id of CPU `i`; all of them exist, `initiator` sends.
pub fn accepted(
    sent: Sent,
    delivery: Delivery,
    ids: &[Option<ApicId>],
    initiator: usize,
) -> BTreeSet<usize> {
    let accepts = |cpu: usize, id: ApicId| match sent.low & SHORTHAND {
        SHORTHAND_ALL_BUT_SELF => cpu != initiator,
        0 if sent.low & LOGICAL == 0 => id.0 == sent.destination,
        0 => match delivery {
            Delivery::XapicFlat => cpu < 8 && sent.destination & 1 << cpu != 0,
            Delivery::X2Cluster => {
                let (cluster, members) = (sent.destination / 65536, sent.destination % 65536);
                id.0 / 16 == cluster && members & 1 << (id.0 % 16) != 0
            }
            other => panic!("logical destination in {other:?}"),
        },
        other => panic!("shorthand {other:#x}"),
    };
    let cpus = ids.iter().enumerate();
    cpus.filter_map(|(cpu, id)| id.filter(|&id| accepts(cpu, id)).map(|_| cpu))
        .collect()
}
