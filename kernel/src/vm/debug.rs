//! Debug registers of guests. They keep what is written to them, and no breakpoint of a guest is ever on: the emulator that this kernel mostly runs
//! in leaves a guest's breakpoints on for the host (QEMU 7.2), and elsewhere each entry would have to exchange four registers more.

use super::abi;
use super::decode::{MOST_BYTES, decode_debug_move};
use super::exits::Next;
use super::machine::Machine;
use super::run_page::RunPage;
use super::vcpu::State;
use super::vmcb::Field;

/// Debugging extensions: DR4 and DR5 are not DR6 and DR7.
const CR4_DE: u64 = 1 << 3;

/// Bits of DR6 and DR7 that a program may change, and those that are always set (APM vol. 2, "Debug Registers").
const DR6_OPEN: u64 = 0xe00f;
/// DR6 where nothing was noticed.
pub const DR6_SET: u64 = 0xffff_0ff0;
const DR7_OPEN: u64 = 0xffff_2bff;
/// DR7 without breakpoints.
pub const DR7_SET: u64 = 0x400;

impl State {
    /// MOV from or to a debug register, by the intercept's offset from that of reading DR0: done, or an exception. CPL is 0, or the processor
    /// would have raised one itself.
    pub fn access_debug_register(
        &mut self,
        machine: &Machine,
        page: &RunPage,
        offset: u32,
    ) -> Next {
        let mut code = [0; MOST_BYTES];
        let fetched = self.fetch_instruction(machine, &mut code);
        let Some(found) = decode_debug_move(fetched, self.mode()) else {
            page.set_internal_error(abi::ERROR_EMULATION, &[]);
            return Next::Vmm;
        };
        let (number, writes) = (offset % 16, offset >= 16);
        let is_alias = matches!(number, 4 | 5);
        if number > 7 || is_alias && self.vmcb.get(Field::CR4) & CR4_DE != 0 {
            self.undefined();
            return Next::Guest;
        }
        let number = if is_alias { number + 2 } else { number };
        if !writes {
            let value = self.debug_register(number);
            self.set_general(found.general, value);
        } else if !self.set_debug_register(number, self.general(found.general)) {
            self.refuse();
            return Next::Guest;
        }
        self.skip(found.length as u64);
        Next::Guest
    }

    fn debug_register(&self, number: u32) -> u64 {
        match number {
            6 => self.vmcb.get(Field::DR6),
            7 => self.debug_control,
            _ => self.breakpoints[number as usize],
        }
    }

    /// Whether the value may be there.
    fn set_debug_register(&mut self, number: u32, value: u64) -> bool {
        let value = match self.is_long() {
            true => value,
            false => value & 0xffff_ffff,
        };
        match number {
            6 | 7 if value >> 32 != 0 => return false,
            6 => self.vmcb.set(Field::DR6, value & DR6_OPEN | DR6_SET),
            7 => self.debug_control = value & DR7_OPEN | DR7_SET,
            _ => self.breakpoints[number as usize] = value,
        }
        true
    }
}
