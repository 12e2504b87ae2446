//! Registers of a virtual CPU, as KVM has them.

use shootdown_x86::svm::EFER_SVME;

use super::abi::{Regs, Sregs};
use super::cpuid::Cpuid;
use super::decode::{Extend, Register};
use super::run_page::RunPage;
use super::vcpu::{State, Unfinished};
use super::vmcb::Field;
use crate::errno::Errno;

/// Always set.
const RFLAGS_FIXED: u64 = 1 << 1;

pub(super) const EFER_LME: u64 = 1 << 8;
pub(super) const EFER_LMA: u64 = 1 << 10;
/// SCE, LME, LMA, NXE.
pub(super) const EFER_KNOWN: u64 = 1 << 0 | EFER_LME | EFER_LMA | 1 << 11;

const CR0_PE: u64 = 1 << 0;
const CR0_NW: u64 = 1 << 29;
const CR0_CD: u64 = 1 << 30;
pub(super) const CR0_PG: u64 = 1 << 31;
pub(super) const CR4_PAE: u64 = 1 << 5;
/// VME to OSXMMEXCPT, UMIP, FSGSBASE, SMEP, SMAP. Neither PCIDs, five levels, XSAVE nor protection keys.
const CR4_KNOWN: u64 = 0x7ff | 1 << 11 | 1 << 16 | 1 << 20 | 1 << 21;

/// Of a code segment's attributes: its code is 64-bit, and it is 32-bit.
const LONG: u64 = 1 << 9;
pub(super) const CODE_32: u64 = 1 << 10;
/// What no page table's address has.
const NO_ADDRESS: u64 = !0 << 52;
/// The byte with the CPL in its word.
const CPL_SHIFT: u32 = 24;

impl State {
    /// `KVM_GET_REGS`.
    pub fn regs(&self) -> Regs {
        let r = &self.registers;
        Regs {
            rax: self.vmcb.get(Field::RAX),
            rbx: r.rbx,
            rcx: r.rcx,
            rdx: r.rdx,
            rsi: r.rsi,
            rdi: r.rdi,
            rsp: self.vmcb.get(Field::RSP),
            rbp: r.rbp,
            r8: r.r8,
            r9: r.r9,
            r10: r.r10,
            r11: r.r11,
            r12: r.r12,
            r13: r.r13,
            r14: r.r14,
            r15: r.r15,
            rip: self.vmcb.get(Field::RIP),
            rflags: self.vmcb.get(Field::RFLAGS),
        }
    }

    /// `KVM_SET_REGS`. An exception that was to be delivered is forgotten, as on Linux.
    pub fn set_regs(&mut self, wanted: &Regs) {
        let r = &mut self.registers;
        (r.rbx, r.rcx, r.rdx) = (wanted.rbx, wanted.rcx, wanted.rdx);
        (r.rsi, r.rdi, r.rbp) = (wanted.rsi, wanted.rdi, wanted.rbp);
        (r.r8, r.r9, r.r10, r.r11) = (wanted.r8, wanted.r9, wanted.r10, wanted.r11);
        (r.r12, r.r13, r.r14, r.r15) = (wanted.r12, wanted.r13, wanted.r14, wanted.r15);
        self.vmcb.set(Field::RAX, wanted.rax);
        self.vmcb.set(Field::RSP, wanted.rsp);
        self.vmcb.set(Field::RIP, wanted.rip);
        self.vmcb.set(Field::RFLAGS, wanted.rflags | RFLAGS_FIXED);
        self.forget_exception();
    }

    /// `KVM_GET_SREGS`.
    pub fn sregs(&self) -> Sregs {
        let get = |field| self.vmcb.get(field);
        Sregs {
            cs: self.segment(Field::CS),
            ds: self.segment(Field::DS),
            es: self.segment(Field::ES),
            fs: self.segment(Field::FS),
            gs: self.segment(Field::GS),
            ss: self.segment(Field::SS),
            tr: self.segment(Field::TR),
            ldt: self.segment(Field::LDTR),
            gdt: self.table(Field::GDTR),
            idt: self.table(Field::IDTR),
            cr0: get(Field::CR0),
            cr2: get(Field::CR2),
            cr3: get(Field::CR3),
            cr4: get(Field::CR4),
            cr8: self.cr8(),
            efer: get(Field::EFER) & !EFER_SVME,
            apic_base: self.apic_base,
            interrupt_bitmap: self.interrupt_bitmap(),
        }
    }

    /// `KVM_SET_SREGS`.
    ///
    /// # Errors
    /// EINVAL for control registers that no processor could have.
    pub fn set_sregs(&mut self, wanted: &Sregs) -> Result<(), Errno> {
        check(wanted)?;
        self.set_segment(Field::CS, &wanted.cs);
        self.set_segment(Field::DS, &wanted.ds);
        self.set_segment(Field::ES, &wanted.es);
        self.set_segment(Field::FS, &wanted.fs);
        self.set_segment(Field::GS, &wanted.gs);
        self.set_segment(Field::SS, &wanted.ss);
        self.set_segment(Field::TR, &wanted.tr);
        self.set_segment(Field::LDTR, &wanted.ldt);
        self.set_table(Field::GDTR, &wanted.gdt);
        self.set_table(Field::IDTR, &wanted.idt);
        let cpl = u64::from(wanted.ss.dpl & 3) << CPL_SHIFT;
        for (field, value) in [
            (Field::CPL, cpl),
            (Field::CR0, wanted.cr0),
            (Field::CR2, wanted.cr2),
            (Field::CR3, wanted.cr3),
            (Field::CR4, wanted.cr4),
            (Field::EFER, wanted.efer | EFER_SVME),
        ] {
            self.vmcb.set(field, value);
        }
        let others = self.vmcb.get(Field::V_INTR) & !0xff;
        self.vmcb.set(Field::V_INTR, others | wanted.cr8);
        self.apic_base = wanted.apic_base;
        self.set_interrupt_bitmap(&wanted.interrupt_bitmap);
        // VMRUN drops nothing for registers that the host changes.
        self.engine.drop_translations();
        Ok(())
    }

    /// `KVM_SET_CPUID2`.
    pub fn set_cpuid(&mut self, cpuid: Cpuid) {
        self.cpuid = cpuid;
    }

    /// The task priority, which the processor keeps for the guest.
    pub fn cr8(&self) -> u64 {
        self.vmcb.get(Field::V_INTR) & 0xf
    }

    /// Whether it runs 64-bit code.
    pub fn is_long(&self) -> bool {
        let is_on = self.vmcb.get(Field::EFER) & EFER_LMA != 0;
        is_on && self.vmcb.get(Field::CS) >> 16 & LONG != 0
    }

    /// Whether the processor is bound to refuse it for what `set_sregs` and Linux let pass: code that is 64-bit and 32-bit (APM vol. 2, "Consistency
    /// Checks").
    pub fn is_impossible(&self) -> bool {
        let is_on = self.vmcb.get(Field::EFER) & EFER_LMA != 0;
        let is_both = self.vmcb.get(Field::CS) >> 16 & (LONG | CODE_32) == LONG | CODE_32;
        is_on && is_both
    }

    /// The guest goes on at `rip`; whatever an instruction before that kept off is over.
    pub fn go_to(&mut self, rip: u64) {
        let mask = if self.is_long() {
            u64::MAX
        } else {
            0xffff_ffff
        };
        self.vmcb.set(Field::RIP, rip & mask);
        self.vmcb.set(Field::INTERRUPT_SHADOW, 0);
    }

    /// The guest goes on behind an instruction of so many bytes.
    pub fn skip(&mut self, bytes: u64) {
        self.go_to(self.vmcb.get(Field::RIP).wrapping_add(bytes));
    }

    /// The VMM has done its part of what the guest was stopped for. It may have sent the guest elsewhere, and then that is over.
    pub fn finish(&mut self, page: &RunPage) {
        let unfinished = core::mem::replace(&mut self.unfinished, Unfinished::No);
        let is_there = |rip: u64| self.vmcb.get(Field::RIP) == rip;
        match unfinished {
            Unfinished::Port { rip, next, reads } if is_there(rip) => {
                if reads > 0 {
                    self.finish_load(page.io_value(), reads, Register::ACCUMULATOR, Extend::No);
                }
                self.go_to(next);
            }
            Unfinished::Load {
                rip,
                next,
                bytes,
                to,
                extend,
            } if is_there(rip) => {
                self.finish_load(page.mmio_value(), bytes, to, extend);
                self.go_to(next);
            }
            _ => {}
        }
    }

    /// The general register with that number in instructions.
    pub fn general(&self, number: u8) -> u64 {
        let r = &self.registers;
        match number {
            0 => self.vmcb.get(Field::RAX),
            1 => r.rcx,
            2 => r.rdx,
            3 => r.rbx,
            4 => self.vmcb.get(Field::RSP),
            5 => r.rbp,
            6 => r.rsi,
            7 => r.rdi,
            8 => r.r8,
            9 => r.r9,
            10 => r.r10,
            11 => r.r11,
            12 => r.r12,
            13 => r.r13,
            14 => r.r14,
            _ => r.r15,
        }
    }

    /// Changes it.
    pub fn set_general(&mut self, number: u8, value: u64) {
        let r = &mut self.registers;
        let register = match number {
            0 => return self.vmcb.set(Field::RAX, value),
            1 => &mut r.rcx,
            2 => &mut r.rdx,
            3 => &mut r.rbx,
            4 => return self.vmcb.set(Field::RSP, value),
            5 => &mut r.rbp,
            6 => &mut r.rsi,
            7 => &mut r.rdi,
            8 => &mut r.r8,
            9 => &mut r.r9,
            10 => &mut r.r10,
            11 => &mut r.r11,
            12 => &mut r.r12,
            13 => &mut r.r13,
            14 => &mut r.r14,
            _ => &mut r.r15,
        };
        *register = value;
    }
}

/// What Linux checks (`kvm_is_valid_sregs`): the processor refuses the rest itself.
fn check(wanted: &Sregs) -> Result<(), Errno> {
    let has = |register: u64, bits: u64| register & bits != 0;
    let paging = has(wanted.cr0, CR0_PG);
    let is_long = paging && has(wanted.efer, EFER_LME);
    let is_bad = has(wanted.efer, !EFER_KNOWN)
        || has(wanted.cr4, !CR4_KNOWN)
        || wanted.cr0 >> 32 != 0
        || wanted.cr8 > 0xf
        || has(wanted.cr0, CR0_NW) && !has(wanted.cr0, CR0_CD)
        || paging && !has(wanted.cr0, CR0_PE)
        || is_long && !(has(wanted.cr4, CR4_PAE) && has(wanted.efer, EFER_LMA))
        || is_long && has(wanted.cr3, NO_ADDRESS)
        || !is_long && (has(wanted.efer, EFER_LMA) || wanted.cs.l != 0);
    match is_bad {
        true => Err(Errno::EINVAL),
        false => Ok(()),
    }
}
