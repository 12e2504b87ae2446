//! What the cache lines of the engine and its spaces are called, for those who walk through a run.

use shootdown::{Capacity, CpuId};

use crate::kernel::World;
use crate::machine::Engine;

impl<C: Capacity> Engine<C> {
    /// What the line at an address holds, and whose it is by the CPU's place on the machine; `None` if it is none of this engine.
    pub fn full_line_name(
        &self,
        address: usize,
        index_of: impl FnOnce(CpuId) -> usize,
    ) -> Option<String> {
        let name = self.line_name(address)?;
        Some(match self.line_owner(address).map(index_of) {
            Some(cpu) => format!("cpu{cpu}: {name}"),
            None => name.to_owned(),
        })
    }
}

impl<C: Capacity> World<C> {
    /// The same for a line of the engine or of a space.
    pub(crate) fn line_name(&self, address: usize) -> Option<String> {
        let index_of = |number: CpuId| {
            let mut numbers = self.numbers.iter();
            let index = numbers.position(|it| *it == number);
            index.expect("a CPU of the machine")
        };
        let of_engine = self.engine.full_line_name(address, index_of);
        of_engine.or_else(|| {
            let spaces = self.all_spaces.try_borrow().ok()?;
            spaces.iter().find_map(|space| {
                let name = space.line_name(address)?;
                Some(format!("{name} of space {}", space.number))
            })
        })
    }
}
