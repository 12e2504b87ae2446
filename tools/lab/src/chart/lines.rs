//! [`Chart`]: series of points as lines with markers. [`draw`] makes the frame of any chart.

use plotters::coord::Shift;
use plotters::coord::ranged1d::{Ranged, ValueFormatter};
use plotters::prelude::*;

use super::palette::Look;
use super::scale::{Scale, labelled};
use super::unit::Unit;
use crate::failure::{Failure, Outcome};

/// Width and height; pages scale it.
pub const SIZE: (u32, u32) = (420, 290);
/// By how much lines are moved aside from each other, of all the room: equal ones would hide each other.
const ASIDE: f64 = 0.012;
/// Letters of 12 pixels: the back end divides by 1.24.
pub const LETTERS: (&str, u32) = ("sans-serif", 15);

/// Where a chart is painted.
pub type Canvas<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Scale, Scale>>;
/// A part of a picture.
pub type Area<'b> = DrawingArea<SVGBackend<'b>, Shift>;
/// What painting may fail with.
pub type Painted = Result<(), Box<dyn std::error::Error>>;

/// What all charts have.
#[derive(Debug)]
pub struct Frame {
    /// From left to right.
    pub across: (String, Scale),
    /// From bottom to top.
    pub up: (String, Scale),
    /// A line through all of it.
    pub level: Option<f64>,
}

/// Lines.
#[derive(Debug)]
pub struct Chart {
    /// Around them.
    pub frame: Frame,
    /// How they look, and their points.
    pub lines: Vec<(Look, Vec<Point>)>,
}

/// A point, with the ends of what it may be.
#[derive(Debug, Clone, Copy)]
pub struct Point {
    /// From left to right.
    pub across: f64,
    /// From bottom to top.
    pub up: f64,
    /// How far it spreads.
    pub spread: Option<(f64, f64)>,
}

impl Frame {
    /// Around points with their spreads, and `level`; none if there is nothing to see.
    pub fn around<'a>(
        points: impl Iterator<Item = &'a Point>,
        across: (String, Scale),
        (name, unit, level): (&str, Unit, Option<f64>),
    ) -> Option<Self> {
        let ends = points.flat_map(|point| {
            let (low, high) = point.spread.unwrap_or((point.up, point.up));
            [low, point.up, high]
        });
        let up = Scale::upwards(ends.chain(level), unit)?;
        Some(Self {
            across,
            up: (labelled(name, &up), up),
            level,
        })
    }
}

impl Chart {
    /// The picture.
    ///
    /// # Errors
    /// The library cannot draw it.
    pub fn svg(&self) -> Outcome<String> {
        draw(&self.frame, |canvas| self.paint(canvas))
    }

    /// Paints it where there is room.
    ///
    /// # Errors
    /// The library cannot draw it.
    pub fn paint_on(&self, area: &Area<'_>) -> Painted {
        paint_all(area, &self.frame, |canvas| self.paint(canvas))
    }

    fn paint(&self, canvas: &mut Canvas<'_, '_>) -> Painted {
        for (number, (look, points)) in self.lines.iter().enumerate() {
            self.line(canvas, (number, look), points)?;
        }
        Ok(())
    }

    fn line(
        &self,
        canvas: &mut Canvas<'_, '_>,
        (number, look): (usize, &Look),
        points: &[Point],
    ) -> Painted {
        let scale = &self.frame.across.1;
        let middle = (self.lines.len() as f64 - 1.0) / 2.0;
        let aside = (number as f64 - middle) * ASIDE * (scale.ends.1 - scale.ends.0);
        let across = |point: &Point| scale.value(scale.place(point.across) + aside);
        let places = points.iter().map(|point| (across(point), point.up));
        let style = look.colour.stroke_width(look.width);
        canvas.draw_series(LineSeries::new(places.clone(), style))?;
        for (point, (low, high)) in points
            .iter()
            .filter_map(|point| Some((point, point.spread?)))
        {
            let ends = [(across(point), low), (across(point), high)];
            canvas.draw_series([PathElement::new(ends, look.colour.stroke_width(1))])?;
            for end in ends {
                cap(canvas, end, look)?;
            }
        }
        for place in places {
            mark(canvas, place, look)?;
        }
        Ok(())
    }
}

/// The end of a spread.
fn cap(canvas: &mut Canvas<'_, '_>, place: (f64, f64), look: &Look) -> Painted {
    let line = PathElement::new([(-4, 0), (4, 0)], look.colour.stroke_width(1));
    canvas.draw_series([EmptyElement::at(place) + line])?;
    Ok(())
}

/// Puts a marker.
pub fn mark(canvas: &mut Canvas<'_, '_>, place: (f64, f64), look: &Look) -> Painted {
    let marker = Polygon::new(look.marker.to_vec(), look.colour.filled());
    canvas.draw_series([EmptyElement::at(place) + marker])?;
    Ok(())
}

/// A frame with what is painted into it.
///
/// # Errors
/// The library cannot draw it.
pub fn draw(frame: &Frame, paint: impl FnOnce(&mut Canvas<'_, '_>) -> Painted) -> Outcome<String> {
    picture(SIZE, |area| paint_all(area, frame, paint))
}

/// The text of a picture with what is painted onto it.
///
/// # Errors
/// The library cannot draw it.
pub fn picture(size: (u32, u32), paint: impl FnOnce(&Area<'_>) -> Painted) -> Outcome<String> {
    let mut text = String::new();
    let root = SVGBackend::with_string(&mut text, size).into_drawing_area();
    paint(&root)
        .and_then(|()| Ok(root.present()?))
        .map_err(|error| Failure::work(format!("cannot draw a plot: {error}")))?;
    drop(root);
    Ok(text)
}

fn paint_all(
    area: &Area<'_>,
    frame: &Frame,
    paint: impl FnOnce(&mut Canvas<'_, '_>) -> Painted,
) -> Painted {
    let (across, up) = (&frame.across.1, &frame.up.1);
    let mut canvas = ChartBuilder::on(area)
        .margin(6)
        .margin_right(14)
        .x_label_area_size(38)
        .y_label_area_size(78)
        .build_cartesian_2d(across.clone(), up.clone())?;
    canvas
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.12))
        .label_style(LETTERS)
        .axis_desc_style(LETTERS)
        .x_desc(&frame.across.0)
        .y_desc(&frame.up.0)
        .x_label_formatter(&|value| across.format_ext(value))
        .y_label_formatter(&|value| up.format_ext(value))
        .draw()?;
    if let Some(level) = frame.level {
        let ends = [(across.range().start, level), (across.range().end, level)];
        canvas.draw_series([PathElement::new(ends, BLACK.mix(0.5))])?;
    }
    paint(&mut canvas)
}
