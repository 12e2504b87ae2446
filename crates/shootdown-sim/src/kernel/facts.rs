//! What the hardware holds and the oracle knows, as those see it who walk through a run.

use crate::kernel::layout::{ENTRIES, FRAMES};
use crate::kernel::{Pte, SharedHardware};
use crate::walkthrough::{Fact, Key, Value};

impl SharedHardware {
    /// All of it.
    pub(super) fn facts(&self) -> Vec<Fact> {
        let mut facts = Vec::with_capacity(128);
        for (cpu, tlb) in self.tlbs.borrow().iter().enumerate() {
            tlb.add_facts(cpu, &mut facts);
        }
        for (cpu, tlb) in self.guests.borrow().iter().enumerate() {
            tlb.add_facts(cpu, &mut facts);
        }
        let tables = (0..FRAMES as u16).flat_map(|table| (0..ENTRIES).map(move |at| (table, at)));
        facts.extend(tables.filter_map(|(table, index)| {
            let value = self.physical.newest(table, index).fact()?;
            Some((Key::Entry(table, index), value))
        }));
        self.book.borrow().add_facts(&mut facts);
        facts
    }
}

impl Pte {
    fn fact(self) -> Option<Value> {
        let writable = self.is_writable();
        self.frame().map(|frame| Value::Frame {
            frame: frame.into(),
            writable,
        })
    }
}
