//! Accesses of guests to memory that there is not: the VMM carries them out.

use super::abi;
use super::decode::{Extend, MOST_BYTES, Operand, Register, decode};
use super::exits::Next;
use super::machine::Machine;
use super::run_page::RunPage;
use super::vcpu::{State, Unfinished};
use super::vmcb::Field;

impl State {
    /// Tells the VMM of an access at that guest-physical address, if it is one of those that are understood. A store is over for the guest then; a load when the
    /// VMM has done its part.
    pub fn access_memory(&mut self, machine: &Machine, page: &RunPage, address: u64) -> Next {
        let mut code = [0; MOST_BYTES];
        let rip = self.vmcb.get(Field::RIP);
        let fetched = self.fetch_instruction(machine, &mut code);
        let Some(found) = decode(fetched, self.mode()) else {
            page.set_internal_error(abi::ERROR_EMULATION, &[]);
            return Next::Vmm;
        };
        let next = rip.wrapping_add(found.length as u64);
        let stored = match found.operand {
            Operand::Constant(value) => Some(value),
            Operand::Store(from) => Some(self.part(from)),
            Operand::Load(to, extend) => {
                let bytes = found.bytes;
                self.unfinished = Unfinished::Load {
                    rip,
                    next,
                    bytes,
                    to,
                    extend,
                };
                None
            }
        };
        if stored.is_some() {
            self.go_to(next);
        }
        let mask = low_bytes(found.bytes);
        page.set_mmio(address, found.bytes, stored.map(|value| value & mask));
        Next::Vmm
    }

    /// What was read goes to its register.
    pub fn finish_load(&mut self, value: u64, bytes: u8, to: Register, extend: Extend) {
        let value = value & low_bytes(bytes);
        let (value, filled) = match extend {
            Extend::No => (value, bytes),
            Extend::Zero(filled) => (value, filled),
            Extend::Sign(filled) => {
                let unused = 64 - 8 * u32::from(bytes);
                (((value << unused) as i64 >> unused) as u64, filled)
            }
        };
        let before = self.general(to.number);
        let new = match filled {
            1 if to.is_high => before & !0xff00 | (value & 0xff) << 8,
            1 | 2 => before & !low_bytes(filled) | value & low_bytes(filled),
            // Four bytes clear the others.
            _ => value & low_bytes(filled),
        };
        self.set_general(to.number, new);
    }

    fn part(&self, from: Register) -> u64 {
        let value = self.general(from.number);
        if from.is_high { value >> 8 } else { value }
    }
}

/// A mask of so many bytes, at most eight.
fn low_bytes(bytes: u8) -> u64 {
    u64::MAX >> (64 - 8 * u32::from(bytes.clamp(1, 8)))
}
