//! [`Vcpu`]: a virtual CPU, as its file descriptor has it, and [`State`], what it is when it does not run.

use alloc::sync::Arc;

use super::cpuid::Cpuid;
use super::debug::{DR6_SET, DR7_SET};
use super::decode::{Extend, Register};
use super::host;
use super::machine::Machine;
use super::nmi::Nmi;
use super::run_page::RunPage;
use super::steal::StealTime;
use super::vmcb::{Field, Vmcb};
use crate::arch::fpu::FpuState;
use crate::arch::svm::GuestRegisters;
use crate::errno::Errno;
use crate::mm::SharedArea;
use crate::platform::SHOOTDOWN;
use crate::sync::{SleepMutex, SleepMutexGuard};

/// A virtual CPU.
#[derive(Debug)]
pub struct Vcpu {
    number: usize,
    state: SleepMutex<State>,
    pub(super) page: RunPage,
    // Dropped last.
    machine: Arc<Machine>,
}

/// What RUN has to do first, when the VMM has done its part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unfinished {
    /// Nothing.
    No,
    /// An access to a port: the guest goes on behind the instruction. It reads so many bytes, or none.
    Port { rip: u64, next: u64, reads: u8 },
    /// A load from where no memory is, of so many bytes.
    Load {
        rip: u64,
        next: u64,
        bytes: u8,
        to: Register,
        extend: Extend,
    },
}

/// Registers and what else it keeps between two runs.
#[derive(Debug)]
pub(super) struct State {
    pub vmcb: Vmcb,
    pub registers: GuestRegisters,
    /// DR0 to DR3, and DR7, as the guest finds them.
    pub breakpoints: [u64; 4],
    pub debug_control: u64,
    pub fpu: FpuState,
    /// Of the thread that runs it, meanwhile.
    pub callers_fpu: FpuState,
    /// The engine's part.
    pub engine: shootdown::guest::Vcpu,
    pub cpuid: Cpuid,
    pub unfinished: Unfinished,
    /// An interrupt that waits until the guest can take it.
    pub interrupt: Option<u8>,
    pub nmi: Nmi,
    pub apic_base: u64,
    pub steal: StealTime,
}

/// Where there is a local APIC, the boot CPU's; nobody has one here.
const APIC_BASE: u64 = 0xfee0_0900;

impl Vcpu {
    /// As after a reset, with that number.
    ///
    /// # Errors
    /// ENOMEM.
    pub(super) fn new(machine: &Arc<Machine>, number: usize) -> Result<Arc<Self>, Errno> {
        let mut state = State {
            vmcb: Vmcb::new().ok_or(Errno::ENOMEM)?,
            registers: GuestRegisters::default(),
            breakpoints: [0; 4],
            debug_control: DR7_SET,
            fpu: FpuState::initial(),
            callers_fpu: FpuState::initial(),
            engine: shootdown::guest::Vcpu::new(&SHOOTDOWN, machine.memory.engine()),
            cpuid: Cpuid::default(),
            unfinished: Unfinished::No,
            interrupt: None,
            nmi: Nmi::default(),
            apic_base: APIC_BASE,
            steal: StealTime::default(),
        };
        state.reset();
        Ok(Arc::new(Self {
            number,
            state: SleepMutex::new(state),
            page: RunPage::new()?,
            machine: machine.clone(),
        }))
    }

    /// No program has got it: its number is free again.
    pub(super) fn take_back(&self) {
        self.machine.take_back(self.number);
    }

    /// The machine it belongs to.
    pub(super) fn machine(&self) -> &Machine {
        &self.machine
    }

    /// What it is now; waits while it runs.
    pub(super) fn state(&self) -> SleepMutexGuard<'_, State> {
        self.state.lock()
    }

    /// What it shares with the VMM.
    #[cfg(feature = "selftest")]
    pub(super) fn page(&self) -> &RunPage {
        &self.page
    }

    /// What a mapping of its descriptor shows.
    pub fn run_page(&self) -> SharedArea {
        self.page.area()
    }
}

/// Events and instructions that end guest mode (APM vol. 2, appendix B): interrupts of the host, what only a hypervisor may do, what would
/// stop the CPU, and what the VMM is to know of.
const INTERCEPTS: u64 = bit(0) // INTR
    | bit(1) // NMI
    | bit(2) // SMI
    | bit(3) // INIT
    | bit(4) // the virtual interrupt
    | bit(15) // RDPMC
    | bit(18) // CPUID
    | bit(22) // INVD
    | bit(24) // HLT
    | bit(26) // INVLPGA
    | bit(27) // ports
    | bit(28) // model-specific registers
    | bit(30) // FERR_FREEZE
    | bit(31); // shutdown

/// VMRUN, which VMRUN insists on, VMMCALL, VMLOAD, VMSAVE, STGI, CLGI, SKINIT; WBINVD, MONITOR, MWAIT; XSETBV, RDPRU.
const MORE_INTERCEPTS: u64 = 0x7f | bit(9) | bit(10) | bit(11) | bit(12) | bit(13) | bit(14);

/// Reads and writes of debug registers.
const REGISTER_INTERCEPTS: u64 = 0xffff_ffff << 32;

/// #DB and #AC: their delivery may raise them again, without end and without an interrupt in between. #MC is the host's.
const EXCEPTIONS: u64 = bit(1) | bit(17) | bit(18);

const fn bit(number: u32) -> u64 {
    1 << number
}

/// Attributes of segments after a reset: present, code or data, accessed (APM vol. 2, "Processor Initialization State").
const RESET_CODE: u64 = 0x9b;
const RESET_DATA: u64 = 0x93;
const RESET_LDT: u64 = 0x82;
const RESET_TSS: u64 = 0x8b;

impl State {
    /// As the processor comes out of a reset, at the first instruction of the firmware.
    pub fn reset(&mut self) {
        let vmcb = &mut self.vmcb;
        vmcb.set(Field::INTERCEPT_REGISTERS, REGISTER_INTERCEPTS);
        vmcb.set(Field::INTERCEPT_EVENTS, EXCEPTIONS | INTERCEPTS << 32);
        vmcb.set(Field::INTERCEPT_MORE, MORE_INTERCEPTS);
        vmcb.set(Field::IOPM, host::io_map().as_u64());
        vmcb.set(Field::MSRPM, host::msr_map_address().as_u64());
        let mut segment = |field: Field, selector: u64, attributes: u64, base: u64| {
            vmcb.set(field, selector | attributes << 16 | 0xffff << 32);
            vmcb.set(field.next(), base);
        };
        segment(Field::CS, 0xf000, RESET_CODE, 0xffff_0000);
        for data in [Field::DS, Field::ES, Field::FS, Field::GS, Field::SS] {
            segment(data, 0, RESET_DATA, 0);
        }
        segment(Field::LDTR, 0, RESET_LDT, 0);
        segment(Field::TR, 0, RESET_TSS, 0);
        segment(Field::GDTR, 0, 0, 0);
        segment(Field::IDTR, 0, 0, 0);
        for (field, value) in [
            (Field::CPL, 0),
            (Field::EFER, shootdown_x86::svm::EFER_SVME),
            (Field::CR0, 0x6000_0010),
            (Field::CR2, 0),
            (Field::CR3, 0),
            (Field::CR4, 0),
            (Field::DR6, DR6_SET),
            (Field::DR7, DR7_SET),
            (Field::RFLAGS, 2),
            (Field::RIP, 0xfff0),
            (Field::RSP, 0),
            (Field::RAX, 0),
            (Field::G_PAT, 0x0007_0406_0007_0406),
        ] {
            vmcb.set(field, value);
        }
        self.registers = GuestRegisters {
            // Family 6, as Linux.
            rdx: 0x600,
            ..GuestRegisters::default()
        };
        self.breakpoints = [0; 4];
        self.debug_control = DR7_SET;
        self.fpu = FpuState::initial();
        self.unfinished = Unfinished::No;
        self.forget_events();
        self.steal = StealTime::default();
        self.engine.drop_translations();
    }
}
