//! [`Strips`]: all samples of rows beside each other. Each sample is in a line across at its height; more samples make it wider.

use plotters::prelude::*;

use crate::bench::median;
use crate::chart::{Canvas, Frame, Look, Painted, can_be_drawn, draw, mark};
use crate::failure::Outcome;

/// Heights that are told apart.
const HEIGHTS: usize = 110;
/// How much of the room between two places strips take.
const FILLED: f64 = 0.86;
/// The narrowest line, of that.
const NARROWEST: f64 = 0.12;

/// Samples by place and series.
#[derive(Debug)]
pub struct Strips {
    /// Around them; places are 0, 1, 2 and so on.
    pub frame: Frame,
    /// How many series share a place.
    pub beside: usize,
    /// The strips.
    pub strips: Vec<Strip>,
}

/// The samples of one row.
#[derive(Debug)]
pub struct Strip {
    /// Its place.
    pub place: usize,
    /// Which of those at that place.
    pub number: usize,
    /// How it looks.
    pub look: Look,
    /// The samples.
    pub samples: Vec<f64>,
}

impl Strips {
    /// The picture.
    ///
    /// # Errors
    /// The library cannot draw it.
    pub fn svg(&self) -> Outcome<String> {
        draw(&self.frame, |canvas| {
            for strip in &self.strips {
                self.strip(canvas, strip)?;
            }
            Ok(())
        })
    }

    fn strip(&self, canvas: &mut Canvas<'_, '_>, strip: &Strip) -> Painted {
        let room = FILLED / self.beside as f64;
        let middle = strip.number as f64 - (self.beside as f64 - 1.0) / 2.0;
        let at = strip.place as f64 + middle * room;
        let up = &self.frame.up.1;
        let (low, high) = up.ends;
        let mut counts = [0u32; HEIGHTS];
        for sample in strip.samples.iter().filter(|sample| can_be_drawn(**sample)) {
            let height = (up.place(*sample) - low) / (high - low) * HEIGHTS as f64;
            counts[(height.max(0.0) as usize).min(HEIGHTS - 1)] += 1;
        }
        let most = f64::from(counts.iter().copied().max().unwrap_or(0));
        for (height, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let half = (f64::from(*count) / most).max(NARROWEST) * room * 0.46;
            let up = up.value(low + (height as f64 + 0.5) / HEIGHTS as f64 * (high - low));
            let line = PathElement::new(
                [(at - half, up), (at + half, up)],
                strip.look.colour.stroke_width(2),
            );
            canvas.draw_series([line])?;
        }
        match median(strip.samples.iter().copied()) {
            Some(middle) => mark(canvas, (at, middle), &strip.look),
            None => Ok(()),
        }
    }
}
