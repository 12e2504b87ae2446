//! A screen of pixels, as UEFI leaves it: characters are drawn into the memory of the display adapter.

use core::ops::Range;

use font8x8::legacy::BASIC_LEGACY;

use super::grid::{COLUMNS, ROWS};
use crate::addr::PhysAddr;

/// A character's width and height, in pixels of the font.
const GLYPH: usize = 8;
/// How many times as high as wide a pixel of the font is.
const HEIGHT: usize = 2;
/// The most pixels of the screen for one of the font, in each direction: memory that is not cached is slow.
const MOST_SCALE: usize = 2;
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
    scale: usize,
}

impl Pixels {
    /// `height` rows of `pitch` bytes, `width` pixels of [`PIXEL_BITS`] each; None if there is no room for the text.
    ///
    /// # Safety
    /// That memory is a display adapter's, and nobody else writes it.
    pub unsafe fn new(address: u64, pitch: u32, width: u32, height: u32) -> Option<Self> {
        let [pitch, width, height] = [pitch, width, height].map(|size| size as usize);
        let scale = (width / (COLUMNS * GLYPH)).min(height / (ROWS * GLYPH * HEIGHT));
        let is_plain = address.is_multiple_of(4) && pitch.is_multiple_of(4) && pitch / 4 >= width;
        (is_plain && scale > 0).then_some(Self {
            address,
            stride: pitch / 4,
            width,
            height,
            scale: scale.min(MOST_SCALE),
        })
    }

    /// From the first pixel to behind the last one.
    pub fn range(&self) -> Range<u64> {
        let bytes = (self.stride * self.height * 4) as u64;
        self.address..self.address.saturating_add(bytes)
    }

    /// Makes all of it dark. The direct map shows it.
    pub fn clear(&self) {
        for y in 0..self.height {
            (0..self.width).for_each(|x| self.put(x, y, PAPER));
        }
    }

    /// Draws a character. The direct map shows the pixels.
    pub fn draw(&self, row: usize, column: usize, character: u8) {
        let (wide, high) = (self.scale, self.scale * HEIGHT);
        let glyph = BASIC_LEGACY[usize::from(character & 0x7f)];
        for y in 0..GLYPH * high {
            for x in 0..GLYPH * wide {
                // The lowest bit is the leftmost pixel.
                let is_ink = glyph[y / high] >> (x / wide) & 1 == 1;
                let (x, y) = (column * GLYPH * wide + x, row * GLYPH * high + y);
                self.put(x, y, if is_ink { INK } else { PAPER });
            }
        }
    }

    fn put(&self, x: usize, y: usize, colour: u32) {
        assert!(x < self.width && y < self.height);
        let memory = PhysAddr::new(self.address).to_direct().cast::<u32>();
        // SAFETY: a pixel within the screen, 32-bit aligned, in memory that is the adapter's.
        unsafe {
            memory
                .wrapping_add(y * self.stride + x)
                .write_volatile(colour)
        };
    }
}
