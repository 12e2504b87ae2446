//! Lines and points along axes, in SVG: for pages of results, and for documents.
//!
//! * [`lines`]: series of points as lines, in a frame; [`scale`]: where values lie along an axis;
//! * [`palette`]: how series are told apart; [`mod@unit`]: what figures count;
//! * [`sheet`]: several charts below one legend.

mod lines;
mod palette;
mod scale;
mod sheet;
mod unit;

pub use lines::{Canvas, Chart, Frame, Painted, Point, draw, mark};
pub use palette::Look;
pub use scale::{Scale, can_be_drawn, labelled};
pub use sheet::Sheet;
pub use unit::{Unit, heading};
