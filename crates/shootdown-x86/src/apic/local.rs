//! The local APIC of the CPU that asks: mode, switching on, identity, end of interrupt, errors.

use core::ops::Deref;
use core::ptr::NonNull;

use super::error::ErrorStatus;
use super::icr::{ApicId, FlatId, Vector};
use super::mode::ApicMode;
use super::port::{Hardware, Port};
use super::register::Register;
use super::sender::IpiSender;
use crate::msr::{self, Msr};

/// IA32_APIC_BASE (SDM vol. 3A, "Local APIC Status and Location" and "x2APIC State Transitions").
const BASE_X2APIC: u64 = 1 << 10;
const BASE_ENABLED: u64 = 1 << 11;
const BASE_ADDRESS: u64 = 0x000f_ffff_ffff_f000;

/// Spurious-interrupt vector register, software enable.
const SOFTWARE_ENABLE: u32 = 1 << 8;
/// Local vector table, mask.
pub(super) const LVT_MASKED: u32 = 1 << 16;
/// Destination format register: flat model.
const FLAT_MODEL: u32 = 0xffff_ffff;

/// Physical address of the xAPIC page of this CPU, from IA32_APIC_BASE.
///
/// # Safety
///
/// 1. CPL 0.
pub unsafe fn physical_base() -> u64 {
    // SAFETY: 1. the caller's. 2. every x86-64 processor has this register. 3. a pure read.
    let base = unsafe { msr::read(Msr::APIC_BASE) };
    base & BASE_ADDRESS
}

/// The local APIC of whichever CPU calls: an [`IpiSender`], and all the rest of the controller.
///
/// One value serves all CPUs: it holds how to reach the controller, not its state. None of its methods blocks beyond
/// a named bound.
#[derive(Clone, Copy, Debug)]
pub struct LocalApic<P: Port = Hardware>(IpiSender<P>);

impl<P: Port> Deref for LocalApic<P> {
    type Target = IpiSender<P>;

    fn deref(&self) -> &IpiSender<P> {
        &self.0
    }
}

impl LocalApic<Hardware> {
    /// The controller in xAPIC mode with its registers mapped at `page`.
    ///
    /// # Safety
    ///
    /// 1. CPL 0, on every CPU that uses the value.
    /// 2. `page` is mapped for as long as the value is used, on all those CPUs, readable and
    ///    writable and strong uncacheable, to [`physical_base`]; 4 KiB aligned.
    /// 3. Every CPU runs [`LocalApic::enable`] on it before any other method.
    pub const unsafe fn new_xapic(page: NonNull<u8>) -> Self {
        // SAFETY: 1. duty 1 of the caller. 2. duty 3. 3. duty 2. 4. the caller owns the controller, and sends through this.
        Self(unsafe { IpiSender::new_xapic(page) })
    }

    /// The controller in x2APIC mode.
    ///
    /// # Safety
    ///
    /// 1. CPL 0, on every CPU that uses the value.
    /// 2. All those CPUs have x2APIC ([`Features::has_x2apic`](crate::Features::has_x2apic)).
    /// 3. Every CPU runs [`LocalApic::enable`] on it before any other method.
    pub const unsafe fn new_x2apic() -> Self {
        // SAFETY: 1. duty 1 of the caller. 2. duties 2 and 3.
        Self(unsafe { IpiSender::new_x2apic() })
    }
}

impl<P: Port> LocalApic<P> {
    /// A controller reached through another port, for tests and simulators.
    ///
    /// # Safety
    ///
    /// 1. On every CPU that uses the value, `port` reaches the registers of `mode`.
    /// 2. Every CPU runs [`LocalApic::enable`] on it before any other method.
    pub const unsafe fn with_port(mode: ApicMode, port: P) -> Self {
        // SAFETY: 1. the caller's.
        Self(unsafe { IpiSender::with_port(mode, port) })
    }

    /// Switches this CPU's controller on: global enable and mode, all local sources masked, task
    /// priority 0, logical id (xAPIC), then software enable with the spurious vector.
    ///
    /// Repeating it is harmless. The order matters: local sources are masked and the logical id is
    /// in place before the controller accepts interrupts (SDM vol. 3A, "Logical Destination Mode").
    ///
    /// # Safety
    ///
    /// 1. Interrupts are off on this CPU.
    /// 2. The IDT of this CPU has a handler for `spurious`; that handler sends no end of interrupt.
    /// 3. `flat` is the same kind (given or not) on all CPUs, and unique to this one.
    pub unsafe fn enable(&self, spurious: Vector, flat: Option<FlatId>) {
        self.select_mode();
        self.mask_local_sources();
        self.write(Register::TaskPriority, 0);
        if let (ApicMode::XApic, Some(flat)) = (self.mode, flat) {
            self.write(Register::DestinationFormat, FLAT_MODEL);
            self.write(Register::LogicalDestination, u32::from(flat.bit()) << 24);
        }
        self.write(
            Register::SpuriousVector,
            SOFTWARE_ENABLE | u32::from(spurious.as_u8()),
        );
        self.take_errors();
    }

    /// The physical id of this CPU's controller.
    pub fn id(&self) -> ApicId {
        let id = self.read(Register::Id);
        ApicId(match self.mode {
            ApicMode::XApic => id >> 24,
            ApicMode::X2Apic => id,
        })
    }

    /// Ends the interrupt in service. For every interrupt but spurious ones, NMI, INIT and start-up.
    #[inline]
    pub fn end_of_interrupt(&self) {
        // Any other value than 0 raises #GP in x2APIC mode.
        self.write(Register::EndOfInterrupt, 0);
    }

    /// Errors since the last call. The register must be written to latch them before the read
    /// (SDM vol. 3A, "Error Handling").
    pub fn take_errors(&self) -> ErrorStatus {
        self.write(Register::ErrorStatus, 0);
        ErrorStatus::from_bits_retain(self.read(Register::ErrorStatus))
    }

    /// Walks the legal state transitions only: off to x2APIC and x2APIC to xAPIC raise #GP
    /// (SDM vol. 3A, "x2APIC State Transitions").
    fn select_mode(&self) {
        // SAFETY: 1. every x86-64 processor has this register. 2. a pure read.
        let now = unsafe { self.port.read_msr(Msr::APIC_BASE) };
        let plain = now & !(BASE_X2APIC | BASE_ENABLED);
        let step = |bits: u64| {
            // SAFETY: 1. as above; the constructors' callers say that the mode exists, and each step
            // below is a legal transition. 2. the page stays where it is; `enable` changes what the
            // CPU takes as interrupts, to which its duties belong.
            unsafe { self.port.write_msr(Msr::APIC_BASE, plain | bits) };
        };
        match (self.mode, now & BASE_X2APIC != 0) {
            (ApicMode::XApic, true) => {
                step(0);
                step(BASE_ENABLED);
            }
            (ApicMode::XApic, false) => step(BASE_ENABLED),
            (ApicMode::X2Apic, true) => {}
            (ApicMode::X2Apic, false) => {
                step(BASE_ENABLED);
                step(BASE_ENABLED | BASE_X2APIC);
            }
        }
    }

    /// Masks every entry of the local vector table that exists; the version register says how many
    /// (SDM vol. 3A, "Local APIC Version Register"). Touching one that does not raises #GP in
    /// x2APIC mode.
    fn mask_local_sources(&self) {
        let highest_entry = self.read(Register::Version) >> 16 & 0xff;
        let entries = [
            (0, Register::LvtTimer),
            (0, Register::LvtLint0),
            (0, Register::LvtLint1),
            (3, Register::LvtError),
            (4, Register::LvtPerformance),
            (5, Register::LvtThermal),
            (6, Register::LvtCmci),
        ];
        for (exists_from, register) in entries {
            if highest_entry >= exists_from {
                self.write(register, LVT_MASKED);
            }
        }
        self.write(Register::TimerInitialCount, 0);
    }

    /// Reads a register that the mode has.
    #[inline]
    pub(super) fn read(&self, register: Register) -> u32 {
        match self.mode {
            // SAFETY: 1. the constructor's caller, and `enable`. 2. this function's callers.
            ApicMode::XApic => unsafe { self.port.read_page(register.offset()) },
            // The upper half is reserved for all registers but the ICR, which is not read here.
            // SAFETY: 1. as above. 2. a pure read.
            ApicMode::X2Apic => unsafe { self.port.read_msr(register.msr()) as u32 },
        }
    }

    /// Writes a register that the mode has, reserved bits clear. Not for the interrupt command: that is
    /// the one register that reaches beyond this CPU's own interrupts.
    #[inline]
    pub(super) fn write(&self, register: Register, value: u32) {
        debug_assert!(!matches!(
            register,
            Register::CommandLow | Register::CommandHigh
        ));
        match self.mode {
            // SAFETY: 1. the constructor's caller, and `enable`. 2. this function's callers. 3. no
            // interrupt command.
            ApicMode::XApic => unsafe { self.port.write_page(register.offset(), value) },
            // SAFETY: 1. and 2. as above.
            ApicMode::X2Apic => unsafe { self.port.write_msr(register.msr(), u64::from(value)) },
        }
    }
}
