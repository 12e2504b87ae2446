//! [`Sheet`]: charts beside each other, their titles, and one legend above them all.

use plotters::prelude::*;

use super::lines::{Area, LETTERS, Painted, SIZE, picture};
use super::{Chart, Look};
use crate::failure::Outcome;

/// Charts beside each other.
const COLUMNS: usize = 2;
/// The height of a line of the legend, and of a title.
const LINE: u32 = 24;
/// How wide a letter is, at most.
const LETTER: i32 = 8;
/// From a marker to its name.
const GLYPH: i32 = 34;

/// A picture that stands by itself.
#[derive(Debug)]
pub struct Sheet {
    /// Series, and their names.
    pub legend: Vec<(Look, String)>,
    /// Charts, and their titles.
    pub charts: Vec<(String, Chart)>,
}

impl Sheet {
    /// The picture, on white paper.
    ///
    /// # Errors
    /// The library cannot draw it.
    pub fn svg(&self) -> Outcome<String> {
        let columns = self.charts.len().clamp(1, COLUMNS);
        let rows = self.charts.len().div_ceil(columns);
        let width = SIZE.0 * columns as u32;
        let places = self.places(width as i32);
        let legend = LINE * places.last().map_or(0, |(_, line)| line + 1) as u32;
        let height = legend + rows as u32 * (SIZE.1 + LINE);
        picture((width, height), |area| {
            area.fill(&WHITE)?;
            let (above, below) = area.split_vertically(legend);
            self.paint_legend(&above, &places)?;
            self.paint_charts(&below.split_evenly((rows, columns)))
        })
    }

    /// Where the series stand in the legend: how far to the right, and in which line.
    fn places(&self, width: i32) -> Vec<(i32, i32)> {
        let (mut across, mut line) = (0, 0);
        let place = |(_, name): &(Look, String)| {
            let needed = GLYPH + LETTER * (name.chars().count() as i32 + 2);
            if across > 0 && across + needed > width {
                (across, line) = (0, line + 1);
            }
            let place = (across, line);
            across += needed;
            place
        };
        self.legend.iter().map(place).collect()
    }

    fn paint_legend(&self, area: &Area<'_>, places: &[(i32, i32)]) -> Painted {
        for ((look, name), (across, line)) in self.legend.iter().zip(places) {
            let (left, middle) = (across + 6, line * LINE as i32 + LINE as i32 / 2);
            let ends = [(left, middle), (left + 22, middle)];
            let style = look.colour.stroke_width(look.width);
            area.draw(&PathElement::new(ends, style))?;
            let corners = look.marker.iter().map(|(x, y)| (left + 11 + x, middle + y));
            let corners: Vec<(i32, i32)> = corners.collect();
            area.draw(&Polygon::new(corners, look.colour.filled()))?;
            let place = (left + 28, middle - 7);
            area.draw(&Text::new(name.clone(), place, LETTERS))?;
        }
        Ok(())
    }

    fn paint_charts(&self, areas: &[Area<'_>]) -> Painted {
        for ((title, chart), area) in self.charts.iter().zip(areas) {
            let (head, rest) = area.split_vertically(LINE);
            head.draw(&Text::new(title.clone(), (84, 6), LETTERS))?;
            chart.paint_on(&rest)?;
        }
        Ok(())
    }
}
