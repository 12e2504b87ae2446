//! What a guest was stopped for.

use core::arch::asm;

use super::abi::{self, exit};
use super::event;
use super::interrupt::V_INTR_MASKING;
use super::machine::Machine;
use super::run_page::RunPage;
use super::vcpu::State;
use super::vmcb::Field;
use crate::errno::Errno;
use crate::mm::nested::NestedFault;

/// Whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Guest,
    Vmm,
}

/// Exit codes (APM vol. 2, appendix C, "SVM Intercept Exit Codes").
pub(super) mod code {
    pub const READ_DR0: u32 = 0x20;
    pub const WRITE_DR15: u32 = 0x3f;
    pub const EXCEPTION_DB: u32 = 0x41;
    pub const EXCEPTION_AC: u32 = 0x51;
    pub const EXCEPTION_MC: u32 = 0x52;
    pub const INTR: u32 = 0x60;
    pub const NMI: u32 = 0x61;
    pub const SMI: u32 = 0x62;
    pub const INIT: u32 = 0x63;
    pub const VINTR: u32 = 0x64;
    pub const RDPMC: u32 = 0x6f;
    pub const CPUID: u32 = 0x72;
    pub const IRET: u32 = 0x74;
    pub const INVD: u32 = 0x76;
    pub const HLT: u32 = 0x78;
    pub const INVLPGA: u32 = 0x7a;
    pub const IOIO: u32 = 0x7b;
    pub const MSR: u32 = 0x7c;
    pub const FERR_FREEZE: u32 = 0x7e;
    pub const SHUTDOWN: u32 = 0x7f;
    pub const VMRUN: u32 = 0x80;
    pub const VMMCALL: u32 = 0x81;
    pub const VMLOAD: u32 = 0x82;
    pub const SKINIT: u32 = 0x86;
    pub const WBINVD: u32 = 0x89;
    pub const MONITOR: u32 = 0x8a;
    pub const RDPRU: u32 = 0x8e;
    pub const NPF: u32 = 0x400;
    pub const INVALID: u32 = u32::MAX;
}

/// Exceptions that are injected.
const DEBUG: u64 = 1;
const ALIGNMENT: u64 = 17;

/// Of a nested page fault: the guest wants to write, and the processor was walking the guest's tables.
const FAULT_WRITES: u64 = 1 << 1;
const FAULT_AT_TABLES: u64 = 1 << 33;

/// What no hypercall answers (`KVM_ENOSYS`).
const NO_SUCH_CALL: u64 = -1000i64 as u64;

impl State {
    /// Does what the guest was stopped for, or tells the VMM.
    ///
    /// # Errors
    /// EFAULT or ENOMEM for memory that the VMM could not access itself.
    pub fn handle_exit(&mut self, machine: &Machine, page: &RunPage) -> Result<Next, Errno> {
        if self.has_lost_its_guest() {
            let code = u64::from(self.exit_code());
            self.reset();
            page.set_internal_error(abi::ERROR_UNEXPECTED_EXIT, &[code]);
            return Ok(Next::Vmm);
        }
        self.keep_event();
        match self.exit_code() {
            // The guest takes interrupts: `run` looks who waited for that.
            code::VINTR => {}
            code::IRET => self.leave_nmi_handler(),
            // The host's: taken when interrupts went on again.
            code::INTR | code::NMI | code::SMI | code::INIT | code::FERR_FREEZE => {}
            code @ code::READ_DR0..=code::WRITE_DR15 => {
                return Ok(self.access_debug_register(machine, page, code - code::READ_DR0));
            }
            code::EXCEPTION_MC => machine_check(),
            code::EXCEPTION_DB => self.inject(DEBUG, None),
            code::EXCEPTION_AC => self.inject(ALIGNMENT, Some(0)),
            code::RDPMC => self.refuse(),
            code::CPUID => self.answer_cpuid(),
            code::INVD | code::WBINVD => self.skip(2),
            code::MSR => self.access_register(),
            code::VMMCALL => {
                self.vmcb.set(Field::RAX, NO_SUCH_CALL);
                self.skip(3);
            }
            // What CPUID does not have.
            code::INVLPGA
            | code::VMRUN
            | code::VMLOAD..=code::SKINIT
            | code::MONITOR..=code::RDPRU => self.undefined(),
            code::HLT => {
                self.skip(1);
                if self.is_woken() {
                    return Ok(Next::Guest);
                }
                page.set_reason(exit::HLT);
                return Ok(Next::Vmm);
            }
            code::SHUTDOWN => {
                // The VMCB is undefined now.
                self.reset();
                page.set_reason(exit::SHUTDOWN);
                return Ok(Next::Vmm);
            }
            code::IOIO => return Ok(self.access_port(page)),
            code::NPF => return self.nested_fault(machine, page),
            code => {
                page.set_internal_error(abi::ERROR_UNEXPECTED_EXIT, &[u64::from(code)]);
                return Ok(Next::Vmm);
            }
        }
        Ok(Next::Guest)
    }

    /// Under QEMU 7.2 the host's state is at times found where the guest's was, with V_INTR 0, which no guest has (docs/guests.md). The VMM must not
    /// see it, and without V_INTR_MASKING the guest could keep interrupts from the host.
    fn has_lost_its_guest(&self) -> bool {
        self.vmcb.get(Field::V_INTR) & V_INTR_MASKING == 0
    }

    /// Why the guest was left.
    fn exit_code(&self) -> u32 {
        self.vmcb.get(Field::EXIT_CODE) as u32
    }

    fn answer_cpuid(&mut self) {
        let function = self.vmcb.get(Field::RAX) as u32;
        let [eax, ebx, ecx, edx] = self.cpuid.answer(function, self.registers.rcx as u32);
        self.vmcb.set(Field::RAX, u64::from(eax));
        self.registers.rbx = u64::from(ebx);
        self.registers.rcx = u64::from(ecx);
        self.registers.rdx = u64::from(edx);
        self.skip(2);
    }

    fn nested_fault(&mut self, machine: &Machine, page: &RunPage) -> Result<Next, Errno> {
        let address = self.vmcb.get(Field::EXIT_INFO_2);
        let info = self.vmcb.get(Field::EXIT_INFO_1);
        let writes = info & FAULT_WRITES != 0;
        let place = usize::try_from(address).unwrap_or(usize::MAX);
        match machine.memory.fault(place, writes)? {
            NestedFault::Retry => Ok(Next::Guest),
            NestedFault::NoMemory => {
                // By its own page tables, or by the delivery of an event: what is where no memory is was no instruction's doing.
                let is_delivery = self.vmcb.get(Field::EXIT_INT_INFO) & event::VALID != 0;
                let error = match info & FAULT_AT_TABLES != 0 {
                    true => Some(abi::ERROR_EMULATION),
                    false => is_delivery.then_some(abi::ERROR_DELIVERY),
                };
                if let Some(error) = error {
                    page.set_internal_error(error, &[]);
                    return Ok(Next::Vmm);
                }
                Ok(self.access_memory(machine, page, address))
            }
        }
    }
}

/// The machine check is the host's: its own handler sees to it, and ends the machine.
fn machine_check() {
    // SAFETY: CPL 0; the handler has a stack of its own.
    unsafe { asm!("int 18") };
}
