//! Segments and descriptor tables, from KVM's form to that of a VMCB and back (APM vol. 2, "VMCB Layout, State Save Area").

use super::abi::{Segment, Table};
use super::vcpu::State;
use super::vmcb::Field;

/// In the type of a task-state segment: it is in use.
const BUSY: u64 = 1 << 1;
/// In the attributes: the segment is there.
const PRESENT: u64 = 1 << 7;

impl State {
    pub fn segment(&self, field: Field) -> Segment {
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

    pub fn set_segment(&mut self, field: Field, wanted: &Segment) {
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
            attributes &= !PRESENT;
        }
        if field == Field::TR {
            attributes |= BUSY;
        }
        let word = u64::from(wanted.selector) | attributes << 16 | u64::from(wanted.limit) << 32;
        self.vmcb.set(field, word);
        self.vmcb.set(field.next(), wanted.base);
    }

    pub fn table(&self, field: Field) -> Table {
        Table {
            base: self.vmcb.get(field.next()),
            limit: (self.vmcb.get(field) >> 32) as u16,
            padding: [0; 3],
        }
    }

    pub fn set_table(&mut self, field: Field, wanted: &Table) {
        self.vmcb.set(field, u64::from(wanted.limit) << 32);
        self.vmcb.set(field.next(), wanted.base);
    }
}
