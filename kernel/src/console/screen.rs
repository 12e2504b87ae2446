//! The text screen of a PC: 80 columns and 25 rows of characters in the memory of the display adapter.

use x86_64::instructions::port::PortWriteOnly;

use super::grid::{COLUMNS, Grid};
use crate::addr::PhysAddr;

/// Where the characters are (IBM VGA, text modes). The direct map shows it, as the boot page tables do: firmware has made this range
/// uncached by the processor's fixed-range MTRRs, whatever page tables say (SDM vol. 3A, "Memory Type Range Registers").
pub const MEMORY: u64 = 0xb8000;

/// The index register of the display controller; its data register is the next one.
const CONTROLLER: u16 = 0x3d4;
/// The controller's register for the cursor's first line, and the bit that turns the cursor off.
const CURSOR_START: u8 = 0x0a;
const CURSOR_OFF: u8 = 1 << 5;

/// The screen, once it is known to show text.
pub(super) struct Screen {
    grid: Grid,
    is_on: bool,
}

impl Screen {
    /// Nothing is written to it until it is [switched on](Self::switch_on).
    pub(super) const fn new() -> Self {
        Self {
            grid: Grid::blank(),
            is_on: false,
        }
    }

    /// Clears it and takes its cursor away. From now on it shows what [`show`](Self::show) is given.
    pub(super) fn switch_on(&mut self) {
        // SAFETY: the index register of the controller that shows this screen.
        unsafe { PortWriteOnly::new(CONTROLLER).write(CURSOR_START) };
        // SAFETY: the register just chosen: only the cursor changes.
        unsafe { PortWriteOnly::new(CONTROLLER + 1).write(CURSOR_OFF) };
        self.is_on = true;
        self.draw();
    }

    /// Adds text.
    pub(super) fn show(&mut self, text: &[u8]) {
        if self.is_on {
            text.iter().for_each(|&byte| self.grid.put(byte));
            self.draw();
        }
    }

    fn draw(&mut self) {
        let memory = PhysAddr::new(MEMORY).to_direct().cast::<[u16; COLUMNS]>();
        for (row, cells) in self.grid.take_changed() {
            // SAFETY: 25 rows of 160 bytes, 16-bit aligned, in the memory of the adapter, which nobody else writes.
            unsafe { memory.wrapping_add(row).write_volatile(*cells) };
        }
    }
}
