//! Model-specific registers that are not the guest's own: a few are emulated, the others do not exist.

use core::arch::x86_64::_rdtsc;

use shootdown_x86::svm::EFER_SVME;

use super::cpuid::{KVM_FEATURES, KVM_STEAL_TIME};
use super::registers::{CR0_PG, EFER_KNOWN, EFER_LMA, EFER_LME};
use super::steal::STEAL_TIME;
use super::vcpu::State;
use super::vmcb::Field;

const TSC: u32 = 0x10;
const APIC_BASE: u32 = 0x1b;
const PAT: u32 = 0x277;
const EFER: u32 = 0xc000_0080;

/// Bits of the base of the local APIC that are always 0, where there is no x2APIC mode (SDM vol. 3A, "Local APIC Status and Location").
const APIC_BASE_RESERVED: u64 = 0x6ff | !0 << 52;

/// RDMSR and WRMSR.
const LENGTH: u64 = 2;

impl State {
    /// RDMSR or WRMSR: done, or #GP.
    pub fn access_register(&mut self) {
        let number = self.registers.rcx as u32;
        let writes = self.vmcb.get(Field::EXIT_INFO_1) & 1 != 0;
        let done = if writes {
            let value = self.registers.rdx << 32 | self.vmcb.get(Field::RAX) & 0xffff_ffff;
            self.write_register(number, value)
        } else {
            self.read_register(number).map(|value| {
                self.vmcb.set(Field::RAX, value & 0xffff_ffff);
                self.registers.rdx = value >> 32;
            })
        };
        match done {
            Some(()) => self.skip(LENGTH),
            None => self.refuse(),
        }
    }

    fn read_register(&self, number: u32) -> Option<u64> {
        Some(match number {
            // SAFETY: every 64-bit processor has a time-stamp counter.
            TSC => unsafe { _rdtsc() },
            APIC_BASE => self.apic_base,
            PAT => self.vmcb.get(Field::G_PAT),
            EFER => self.vmcb.get(Field::EFER) & !EFER_SVME,
            STEAL_TIME if self.has_steal_time() => self.steal.register(),
            _ => return None,
        })
    }

    fn write_register(&mut self, number: u32, value: u64) -> Option<()> {
        match number {
            PAT if is_pat(value) => self.vmcb.set(Field::G_PAT, value),
            APIC_BASE if value & APIC_BASE_RESERVED == 0 => self.apic_base = value,
            EFER => return self.write_efer(value),
            STEAL_TIME if self.has_steal_time() => {
                return self.steal.set(value).then_some(());
            }
            _ => return None,
        }
        Some(())
    }

    /// Whether the VMM has told the guest of it.
    fn has_steal_time(&self) -> bool {
        let [eax, ..] = self.cpuid.answer(KVM_FEATURES, 0);
        eax & KVM_STEAL_TIME != 0
    }

    /// LMA is the processor's, and LME stays while paging is on.
    fn write_efer(&mut self, value: u64) -> Option<()> {
        let before = self.vmcb.get(Field::EFER);
        let changes_mode = (before ^ value) & EFER_LME != 0;
        let pages = self.vmcb.get(Field::CR0) & CR0_PG != 0;
        if value & !EFER_KNOWN != 0 || changes_mode && pages {
            return None;
        }
        let new = value & !EFER_LMA | before & EFER_LMA | EFER_SVME;
        self.vmcb.set(Field::EFER, new);
        self.engine.drop_translations();
        Some(())
    }
}

/// Whether each byte is a memory type (APM vol. 2, "PAT").
fn is_pat(value: u64) -> bool {
    let is_type = |kind: &u8| matches!(kind, 0 | 1 | 4..=7);
    value.to_le_bytes().iter().all(is_type)
}
