//! How series are told apart: by colours that colour-blind readers can tell from each other, and by markers.

use maud::{Markup, html};
use plotters::style::RGBColor;

/// Of the series of this project: pages replace it by the colour of their text.
const INK: RGBColor = RGBColor(0, 0, 0);
/// Of others, after Okabe and Ito, darkened where white paper needs it; pages in the dark replace them by brighter ones.
const COLOURS: [RGBColor; 6] = [
    RGBColor(0x00, 0x72, 0xB2),
    RGBColor(0xD5, 0x5E, 0x00),
    RGBColor(0x00, 0x8F, 0x68),
    RGBColor(0xB5, 0x57, 0x8C),
    RGBColor(0x9A, 0x6B, 0x00),
    RGBColor(0x2E, 0x8F, 0xC7),
];
/// Corners around a point, in pixels.
const MARKERS: [&[(i32, i32)]; 6] = [
    &[(-4, -4), (4, -4), (4, 4), (-4, 4)],
    &[(0, -5), (5, 4), (-5, 4)],
    &[(0, -6), (6, 0), (0, 6), (-6, 0)],
    &[(0, 5), (5, -4), (-5, -4)],
    &[
        (-2, -5),
        (2, -5),
        (2, -2),
        (5, -2),
        (5, 2),
        (2, 2),
        (2, 5),
        (-2, 5),
        (-2, 2),
        (-5, 2),
        (-5, -2),
        (-2, -2),
    ],
    &[
        (-5, -3),
        (-3, -5),
        (0, -2),
        (3, -5),
        (5, -3),
        (2, 0),
        (5, 3),
        (3, 5),
        (0, 2),
        (-3, 5),
        (-5, 3),
        (-2, 0),
    ],
];
/// As round as pixels allow.
const DISC: &[(i32, i32)] = &[
    (-2, -5),
    (2, -5),
    (5, -2),
    (5, 2),
    (2, 5),
    (-2, 5),
    (-5, 2),
    (-5, -2),
];

/// How a series looks.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    /// Of line and markers.
    pub colour: RGBColor,
    /// Corners of a marker.
    pub marker: &'static [(i32, i32)],
    /// Of its line.
    pub width: u32,
}

impl Look {
    /// Of a series by its number.
    pub fn of(index: usize, is_ours: bool) -> Self {
        match is_ours {
            true => Self {
                colour: INK,
                marker: DISC,
                width: 3,
            },
            false => Self {
                colour: COLOURS[index % COLOURS.len()],
                // Colours and markers come back together only after many series.
                marker: MARKERS[(index + index / COLOURS.len()) % MARKERS.len()],
                width: 2,
            },
        }
    }

    /// Its marker on a piece of its line, for legends.
    pub fn glyph(&self) -> Markup {
        let RGBColor(red, green, blue) = self.colour;
        let colour = format!("#{red:02X}{green:02X}{blue:02X}");
        let points = self.marker.iter();
        let points: Vec<String> = points
            .map(|(x, y)| format!("{},{}", x + 14, y + 8))
            .collect();
        html! {
            svg.glyph viewBox="0 0 28 16" width="28" height="16" aria-hidden="true" {
                line x1="0" y1="8" x2="28" y2="8" stroke=(colour) stroke-width=(self.width) {}
                polygon points=(points.join(" ")) fill=(colour) {}
            }
        }
    }
}
