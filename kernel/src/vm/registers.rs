//! Registers of a virtual CPU, as KVM has them.

use shootdown_x86::svm::EFER_SVME;

use super::abi::{Regs, Segment, Sregs, Table};
use super::cpuid::Cpuid;
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
const CR4_PAE: u64 = 1 << 5;
/// VME to OSXMMEXCPT, UMIP, FSGSBASE, SMEP, SMAP. Neither PCIDs, five levels, XSAVE nor protection keys.
const CR4_KNOWN: u64 = 0x7ff | 1 << 11 | 1 << 16 | 1 << 20 | 1 << 21;

/// The bits of an attribute in a VMCB (APM vol. 2, "VMCB Layout, State Save Area"), and the type of a task-state segment that is in use.
const BUSY: u64 = 1 << 1;
const LONG: u64 = 1 << 9;
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
        self.vmcb.set(Field::EVENT_INJ, 0);
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
            interrupt_bitmap: [0; 4],
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
    pub fn finish(&mut self, io_value: u32) {
        let unfinished = core::mem::replace(&mut self.unfinished, Unfinished::No);
        let Unfinished::Port { rip, next, reads } = unfinished else {
            return;
        };
        if self.vmcb.get(Field::RIP) != rip {
            return;
        }
        if reads > 0 {
            self.set_low(reads, io_value);
        }
        self.go_to(next);
    }

    /// Puts so many bytes, at most four, into RAX as an instruction would.
    fn set_low(&mut self, bytes: u8, value: u32) {
        let rax = self.vmcb.get(Field::RAX);
        let value = u64::from(value);
        let new = match bytes {
            1 => rax & !0xff | value & 0xff,
            2 => rax & !0xffff | value & 0xffff,
            _ => value,
        };
        self.vmcb.set(Field::RAX, new);
    }

    fn segment(&self, field: Field) -> Segment {
        let word = self.vmcb.get(field);
        let attributes = word >> 16 & 0xfff;
        let flag = |at: u32| (attributes >> at & 1) as u8;
        Segment {
            base: self.vmcb.get(field.next()),
            limit: (word >> 32) as u32,
            selector: word as u16,
            kind: (attributes & 0xf) as u8,
            s: flag(4),
            dpl: (attributes >> 5 & 3) as u8,
            present: flag(7),
            avl: flag(8),
            l: flag(9),
            db: flag(10),
            g: flag(11),
            unusable: 1 - flag(7),
            padding: 0,
        }
    }

    fn set_segment(&mut self, field: Field, wanted: &Segment) {
        let flag = |value: u8, at: u32| u64::from(value & 1) << at;
        let mut attributes = u64::from(wanted.kind & 0xf)
            | flag(wanted.s, 4)
            | u64::from(wanted.dpl & 3) << 5
            | flag(wanted.present, 7)
            | flag(wanted.avl, 8)
            | flag(wanted.l, 9)
            | flag(wanted.db, 10)
            | flag(wanted.g, 11);
        if wanted.unusable != 0 {
            attributes &= !(1 << 7);
        }
        if field == Field::TR {
            attributes |= BUSY;
        }
        let word = u64::from(wanted.selector) | attributes << 16 | u64::from(wanted.limit) << 32;
        self.vmcb.set(field, word);
        self.vmcb.set(field.next(), wanted.base);
    }

    fn table(&self, field: Field) -> Table {
        Table {
            base: self.vmcb.get(field.next()),
            limit: (self.vmcb.get(field) >> 32) as u16,
            padding: [0; 3],
        }
    }

    fn set_table(&mut self, field: Field, wanted: &Table) {
        self.vmcb.set(field, u64::from(wanted.limit) << 32);
        self.vmcb.set(field.next(), wanted.base);
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
        || !is_long && (has(wanted.efer, EFER_LMA) || wanted.cs.l != 0);
    match is_bad {
        true => Err(Errno::EINVAL),
        false => Ok(()),
    }
}
