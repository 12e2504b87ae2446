//! What each cache line of an engine holds, for the simulator.

use crate::cpu::CpuId;
use crate::engine::Shootdown;
use crate::memory::CpuMemory;
use crate::platform::Platform;

/// Bytes of a line.
const LINE_BYTES: usize = 64;

/// The first of these names whose part has bytes in the line at an address; see [`touches`].
pub fn first_name<const PARTS: usize>(
    parts: [(bool, &'static str); PARTS],
) -> Option<&'static str> {
    let mut parts = parts.into_iter();
    parts.find_map(|(is_there, name)| is_there.then_some(name))
}

/// Whether the line at `address` has bytes of `value`.
pub fn touches<T: ?Sized>(value: &T, address: usize) -> bool {
    let start = core::ptr::from_ref(value).addr();
    let line = address & !(LINE_BYTES - 1);
    line < start + size_of_val(value) && start < line + LINE_BYTES
}

impl<P: Platform> Shootdown<P> {
    /// What the line at `address` holds; `None` if it is none of this engine.
    pub fn line_name(&self, address: usize) -> Option<&'static str> {
        let mut rings = self.rings().iter();
        rings
            .find_map(|ring| ring.line_name(address))
            .or_else(|| (self.states()).find_map(|(_, state)| state.line_name(address)))
            .or_else(|| touches(self, address).then_some("engine"))
    }

    /// The CPU whose memory has bytes in the line at `address`.
    pub fn line_owner(&self, address: usize) -> Option<CpuId> {
        let owner = (self.states()).find(|(_, state)| touches(*state, address))?;
        Some(owner.0)
    }
}

impl<P: Platform> CpuMemory<P> {
    fn line_name(&self, address: usize) -> Option<&'static str> {
        let first = &self.slots[0];
        // Header and contents; the pending set is behind them, if it has lines of its own.
        let is_head = address / LINE_BYTES == core::ptr::from_ref(first).addr() / LINE_BYTES;
        first_name([
            (touches(&self.inbox, address), "inbox"),
            (touches(&self.posted, address), "posted"),
            (is_head, "slot"),
            (touches(first, address), "slot: pending"),
            (touches(&self.slots, address), "other slots"),
            (touches(&self.beside, address), "indirect"),
            (touches(&self.lazy, address), "lazy"),
            (touches(self, address), "own"),
        ])
    }
}
