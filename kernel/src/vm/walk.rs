//! What a guest's own page tables say, read as the processor would: for instructions that the processor did not finish.
//!
//! Rights are not looked at: the processor has fetched the instruction.

use super::decode::{MOST_BYTES, Mode};
use super::machine::Machine;
use super::registers::{CODE_32, CR0_PG, CR4_PAE, EFER_LMA};
use super::vcpu::State;
use super::vmcb::Field;
use crate::addr::PAGE_BYTES;
use crate::user_memory::UserPtr;

const CR4_LA57: u64 = 1 << 12;

const PRESENT: u64 = 1 << 0;
const LARGE: u64 = 1 << 7;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

/// A shape of page tables.
#[derive(Clone, Copy)]
struct Shape {
    levels: u32,
    /// Bits of an address that each level takes.
    bits: u32,
    entry_bytes: u64,
    /// The bits of CR3 that say where the root is.
    root_mask: u64,
}

impl State {
    /// The guest-physical address behind a linear one; `None` if there is none, or the tables are not in memory.
    pub fn translate(&self, machine: &Machine, linear: u64) -> Option<u64> {
        let Some(shape) = self.shape() else {
            return Some(linear);
        };
        let mut table = self.vmcb.get(Field::CR3) & shape.root_mask;
        for level in (0..shape.levels).rev() {
            let shift = 12 + shape.bits * level;
            let index = linear >> shift & ((1 << shape.bits) - 1);
            let entry = read_entry(machine, table + index * shape.entry_bytes, shape)?;
            if entry & PRESENT == 0 {
                return None;
            }
            let below = (1 << shift) - 1;
            if level == 0 || level <= 2 && entry & LARGE != 0 {
                return Some(entry & ADDRESS & !below | linear & below);
            }
            table = entry & ADDRESS;
        }
        None
    }

    /// How many levels its tables have; `None` without paging.
    fn shape(&self) -> Option<Shape> {
        let has = |field, bit| self.vmcb.get(field) & bit != 0;
        let wide = |levels| Shape {
            levels,
            bits: 9,
            entry_bytes: 8,
            root_mask: if levels == 3 { 0xffff_ffe0 } else { ADDRESS },
        };
        match () {
            () if !has(Field::CR0, CR0_PG) => None,
            () if has(Field::EFER, EFER_LMA) && has(Field::CR4, CR4_LA57) => Some(wide(5)),
            () if has(Field::EFER, EFER_LMA) => Some(wide(4)),
            () if has(Field::CR4, CR4_PAE) => Some(wide(3)),
            () => Some(Shape {
                levels: 2,
                bits: 10,
                entry_bytes: 4,
                root_mask: 0xffff_f000,
            }),
        }
    }

    /// How the processor reads its code.
    pub fn mode(&self) -> Mode {
        match self.vmcb.get(Field::CS) >> 16 & CODE_32 {
            _ if self.is_long() => Mode::Bits64,
            0 => Mode::Bits16,
            _ => Mode::Bits32,
        }
    }

    /// The bytes from the next instruction on, up to where there are none.
    pub fn fetch_instruction<'a>(
        &self,
        machine: &Machine,
        to: &'a mut [u8; MOST_BYTES],
    ) -> &'a [u8] {
        let rip = self.vmcb.get(Field::RIP);
        let start = match self.is_long() {
            true => rip,
            false => self.vmcb.get(Field::CS.next()).wrapping_add(rip) & 0xffff_ffff,
        };
        let mut place = None;
        for at in 0..MOST_BYTES {
            let linear = start.wrapping_add(at as u64);
            if at == 0 || linear.is_multiple_of(PAGE_BYTES as u64) {
                let guest = self.translate(machine, linear);
                place = guest.and_then(|guest| machine.memory.user_address(guest as usize));
            }
            let found = place.and_then(|user| UserPtr::<u8>::new(user).read().ok());
            let Some(found) = found else { return &to[..at] };
            to[at] = found;
            place = place.map(|user| user + 1);
        }
        to
    }
}

fn read_entry(machine: &Machine, at: u64, shape: Shape) -> Option<u64> {
    let user = machine.memory.user_address(usize::try_from(at).ok()?)?;
    match shape.entry_bytes {
        4 => UserPtr::<u32>::new(user).read().ok().map(u64::from),
        _ => UserPtr::<u64>::new(user).read().ok(),
    }
}
