//! A screen of pixels, as UEFI leaves it: characters are drawn into the memory of the display adapter.

use font8x8::legacy::BASIC_LEGACY;

use super::grid::{COLUMNS, ROWS};
use crate::addr::PhysAddr;

/// A character's width and height, in pixels of the font.
const GLYPH: usize = 8;
/// A pixel of the font is twice as high as wide.
const TALL: usize = 2;
/// The largest pixel of the font, in pixels of the screen: memory that is not cached is slow.
const LARGEST: usize = 2;
/// Bits of a pixel.
pub const PIXEL_BITS: u8 = 32;
/// Light grey, whatever the order of its colours.
const INK: u32 = 0x00aa_aaaa;
const PAPER: u32 = 0;

/// Where the pixels are.
#[derive(Clone, Copy, Debug)]
pub struct Pixels {
    address: u64,
    /// Pixels from a row to the next one.
    stride: usize,
    width: usize,
    height: usize,
    /// Pixels of the screen for one of the font, in each direction.
    scale: usize,
}

impl Pixels {
    /// `height` rows of `pitch` bytes, `width` pixels of [`PIXEL_BITS`] each; None if there is no room for the text.
    pub fn new(address: u64, pitch: u32, width: u32, height: u32) -> Option<Self> {
        let [pitch, width, height] = [pitch as usize, width as usize, height as usize];
        let room = (width / (COLUMNS * GLYPH)).min(height / (ROWS * GLYPH * TALL));
        let is_plain = address.is_multiple_of(4) && pitch.is_multiple_of(4) && pitch / 4 >= width;
        (is_plain && room > 0).then_some(Self {
            address,
            stride: pitch / 4,
            width,
            height,
            scale: room.min(LARGEST),
        })
    }

    /// The address behind the last pixel.
    pub fn end(&self) -> u64 {
        self.address
            .saturating_add((self.stride * self.height * 4) as u64)
    }

    /// Makes all of it dark. The direct map shows it.
    pub fn clear(&self) {
        for y in 0..self.height {
            for x in 0..self.width {
                self.put(x, y, PAPER);
            }
        }
    }

    /// Draws a row of characters, each in the low byte of a cell.
    pub fn draw(&self, row: usize, cells: &[u16; COLUMNS]) {
        let (wide, tall) = (self.scale, self.scale * TALL);
        for y in 0..GLYPH * tall {
            for x in 0..COLUMNS * GLYPH * wide {
                let character = usize::from(cells[x / (GLYPH * wide)] & 0x7f);
                // The lowest bit is the leftmost pixel.
                let is_ink = BASIC_LEGACY[character][y / tall] >> (x / wide % GLYPH) & 1 == 1;
                self.put(x, row * GLYPH * tall + y, if is_ink { INK } else { PAPER });
            }
        }
    }

    fn put(&self, x: usize, y: usize, colour: u32) {
        let memory = PhysAddr::new(self.address).to_direct().cast::<u32>();
        debug_assert!(x < self.width && y < self.height);
        // SAFETY: a pixel within the screen, 32-bit aligned, in memory of the adapter that the direct map shows and nobody else writes.
        unsafe {
            memory
                .wrapping_add(y * self.stride + x)
                .write_volatile(colour)
        };
    }
}
