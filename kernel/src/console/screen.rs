//! The screen of a PC: 80 columns and 25 rows of characters, in the memory of a display adapter that shows text, or drawn into one that shows
//! pixels.

use x86_64::instructions::port::PortWriteOnly;

use super::grid::{COLUMNS, Grid, ROWS};
use super::pixels::Pixels;
use crate::addr::PhysAddr;

/// Where the characters are (IBM VGA, text modes). The direct map shows it, as the boot page tables do: firmware has made this range
/// uncached by the processor's fixed-range MTRRs, whatever page tables say (SDM vol. 3A, "Memory Type Range Registers").
pub const MEMORY: u64 = 0xb8000;

/// The index register of the display controller; its data register is the next one.
const CONTROLLER: u16 = 0x3d4;
/// The controller's register for the cursor's first line, and the bit that turns the cursor off.
const CURSOR_START: u8 = 0x0a;
const CURSOR_OFF: u8 = 1 << 5;

/// What a display adapter shows.
#[derive(Clone, Copy)]
pub enum Adapter {
    /// Text, at [`MEMORY`].
    Text,
    /// Pixels. The direct map shows them.
    Pixels(Pixels),
}

/// The screen, once its adapter is known.
pub(super) struct Screen {
    grid: Grid,
    adapter: Option<Adapter>,
    /// What is drawn, where there are pixels: they are slow.
    drawn: [[u8; COLUMNS]; ROWS],
}

impl Screen {
    /// Nothing is written to it until it is [switched on](Self::switch_on).
    pub(super) const fn new() -> Self {
        Self {
            grid: Grid::blank(),
            adapter: None,
            drawn: [[b' '; COLUMNS]; ROWS],
        }
    }

    /// Clears it and takes its cursor away. From now on it shows what it is [given](Self::put).
    pub(super) fn switch_on(&mut self, adapter: Adapter) {
        match adapter {
            Adapter::Text => hide_cursor(),
            Adapter::Pixels(pixels) => pixels.clear(),
        }
        self.adapter = Some(adapter);
        while self.draw_row() {}
    }

    /// Adds text, which is not seen before it is [drawn](Self::draw_row).
    pub(super) fn put(&mut self, text: &[u8]) {
        if self.adapter.is_some() {
            text.iter().for_each(|&byte| self.grid.put(byte));
        }
    }

    /// Draws a row that has changed; whether there was one.
    pub(super) fn draw_row(&mut self) -> bool {
        let (Some(adapter), Some((row, cells))) = (self.adapter, self.grid.take_changed_row())
        else {
            return false;
        };
        match adapter {
            Adapter::Text => {
                let memory = PhysAddr::new(MEMORY).to_direct().cast::<[u16; COLUMNS]>();
                // SAFETY: 25 rows of 160 bytes, 16-bit aligned, in the memory of the adapter, which nobody else writes.
                unsafe { memory.wrapping_add(row).write_volatile(*cells) };
            }
            Adapter::Pixels(pixels) => {
                let drawn = self.drawn[row].iter_mut().zip(cells).enumerate();
                for (column, (drawn, &cell)) in drawn {
                    let character = cell as u8;
                    if *drawn != character {
                        *drawn = character;
                        pixels.draw(row, column, character);
                    }
                }
            }
        }
        true
    }
}

fn hide_cursor() {
    // SAFETY: the index register of the controller that shows this screen.
    unsafe { PortWriteOnly::new(CONTROLLER).write(CURSOR_START) };
    // SAFETY: the register just chosen: only the cursor changes.
    unsafe { PortWriteOnly::new(CONTROLLER + 1).write(CURSOR_OFF) };
}
