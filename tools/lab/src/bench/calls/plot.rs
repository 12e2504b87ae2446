//! [`Picture`]: tables as line charts, in SVG.

use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use shootdown_sim::workload::{Callers, Peer};

use super::text::time;
use super::{selected, shoot};
use crate::bench::sim::{Setup, number};
use crate::bench::workload::counted;
use crate::failure::{Failure, Outcome};

/// One panel's width and height.
const PANEL: (u32, u32) = (360, 300);
/// Panels beside each other.
const COLUMNS: usize = 3;

/// One file.
#[derive(Debug)]
pub struct Picture {
    /// Of the file.
    pub name: String,
    panels: Vec<Panel>,
}

/// One chart: a line for each peer, over a logarithmic axis of numbers of CPUs.
#[derive(Debug)]
struct Panel {
    title: String,
    across: &'static str,
    up: Up,
    lines: Vec<(Peer, Vec<(f64, f64)>)>,
}

/// What goes up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Up {
    /// From -100 to a little above nothing.
    Percent,
    /// Nanoseconds, logarithmic.
    Time,
}

/// For each machine, function and way to draw masks: a panel for each number of initiators.
pub fn of_selected(peers: &[Peer], measured: &[selected::Measured]) -> Vec<Picture> {
    let key = |one: &selected::Measured| (one.line.cpus, one.line.function_ps, one.line.draw);
    let pictures = measured.chunk_by(|one, other| key(one) == key(other));
    let picture = |group: &[selected::Measured]| {
        let (cpus, function_ps, draw) = key(&group[0]);
        let panels = group.chunk_by(|one, other| one.line.initiators == other.line.initiators);
        let panel = |lines: &[selected::Measured]| {
            let of = |peer: &Peer| {
                let point = |one: &selected::Measured| {
                    Some((one.line.targets as f64, one.change_of(*peer)?))
                };
                (*peer, lines.iter().filter_map(point).collect())
            };
            Panel {
                title: format!(
                    "{}, {} masks",
                    counted(lines[0].line.initiators as u32, "initiators"),
                    draw.name()
                ),
                across: "targets of a call",
                up: Up::Percent,
                lines: peers.iter().map(of).collect(),
            }
        };
        let function = number(function_ps as f64 / 1e6);
        Picture {
            name: format!("selected-{cpus}-{function}us-{}.svg", draw.name()),
            panels: panels.map(panel).collect(),
        }
    };
    pictures.map(picture).collect()
}

/// For each machine: one caller over its targets, and all callers over the size of the machine.
pub fn of_shoot(peers: &[Peer], measured: &[shoot::Measured], setups: &[Setup]) -> Vec<Picture> {
    let key = |one: &shoot::Measured| (one.line.machine, one.line.function_ps);
    let pictures = measured.chunk_by(|one, other| key(one) == key(other));
    let picture = |group: &[shoot::Measured]| {
        let (machine, function_ps) = key(&group[0]);
        let mut panels = Vec::new();
        type Wanted = fn(&shoot::Line) -> bool;
        let wanted: [(&str, Wanted); 4] = [
            ("one CPU calls", |line| line.callers == Callers::One),
            ("all call one other each", |line| {
                line.callers == Callers::All && line.targets == 1
            }),
            ("all call some others each", |line| {
                line.callers == Callers::All && line.targets > 1 && line.targets + 1 < line.cpus
            }),
            ("all call all others", |line| {
                line.callers == Callers::All && line.targets + 1 == line.cpus
            }),
        ];
        for (title, is_wanted) in wanted {
            let lines: Vec<_> = group.iter().filter(|one| is_wanted(&one.line)).collect();
            panels.extend((!lines.is_empty()).then(|| shoot_panel(title, peers, &lines)));
        }
        let (name, function) = (
            setups[machine].preset().name,
            number(function_ps as f64 / 1e6),
        );
        Picture {
            name: format!("shoot-{name}-{function}us.svg"),
            panels,
        }
    };
    pictures.map(picture).collect()
}

fn shoot_panel(title: &str, peers: &[Peer], lines: &[&shoot::Measured]) -> Panel {
    let is_lone = lines[0].line.callers == Callers::One;
    let of = |peer: &Peer| {
        let point = |one: &&shoot::Measured| {
            let line = &one.line;
            let across = if is_lone { line.targets } else { line.cpus };
            let ns = one.of(*peer)?.quantile_ns(500, |called| called.whole_ps);
            Some((across as f64, ns))
        };
        (*peer, lines.iter().filter_map(point).collect())
    };
    Panel {
        title: format!("{title}: median"),
        across: if is_lone { "targets" } else { "CPUs" },
        up: Up::Time,
        lines: peers.iter().map(of).collect(),
    }
}

impl Picture {
    /// The file's text.
    ///
    /// # Errors
    /// The library cannot draw it.
    pub fn svg(&self) -> Outcome<String> {
        let mut text = String::new();
        self.draw(&mut text)
            .map_err(|error| Failure::work(format!("cannot draw {}: {error}", self.name)))?;
        Ok(text)
    }

    fn draw(&self, text: &mut String) -> Result<(), Box<dyn std::error::Error>> {
        let columns = self.panels.len().clamp(1, COLUMNS);
        let rows = self.panels.len().div_ceil(COLUMNS).max(1);
        let size = (PANEL.0 * columns as u32, PANEL.1 * rows as u32);
        let root = SVGBackend::with_string(text, size).into_drawing_area();
        root.fill(&WHITE)?;
        for (panel, area) in self.panels.iter().zip(root.split_evenly((rows, columns))) {
            panel.draw(&area, std::ptr::eq(panel, &self.panels[0]))?;
        }
        root.present()?;
        Ok(())
    }
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

impl Panel {
    fn draw(&self, area: &Area<'_>, has_legend: bool) -> Result<(), Box<dyn std::error::Error>> {
        let across = span(self.points().map(|(across, _)| across));
        let up = span(self.points().map(|(_, up)| up));
        let across = (across.0..across.1 * 1.01).log_scale().base(2.0);
        match self.up {
            Up::Percent => self.draw_on((area, has_legend), across, up.0.min(-80.0)..up.1.max(5.0)),
            Up::Time => self.draw_on(
                (area, has_legend),
                across,
                (up.0 / 1.5..up.1 * 1.5).log_scale(),
            ),
        }
    }

    fn points(&self) -> impl Iterator<Item = (f64, f64)> {
        self.lines
            .iter()
            .flat_map(|(_, points)| points.iter().copied())
    }

    fn draw_on<X, Y>(
        &self,
        (area, has_legend): (&Area<'_>, bool),
        across: X,
        up: Y,
    ) -> Result<(), Box<dyn std::error::Error>>
    where
        X: AsRangedCoord<Value = f64>,
        X::CoordDescType: ValueFormatter<f64>,
        Y: AsRangedCoord<Value = f64>,
        Y::CoordDescType: ValueFormatter<f64>,
    {
        let mut chart = ChartBuilder::on(area)
            .caption(&self.title, ("sans-serif", 15))
            .margin(8)
            .x_label_area_size(34)
            .y_label_area_size(54)
            .build_cartesian_2d(across, up)?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .x_labels(14)
            .y_labels(8)
            .x_desc(self.across)
            .x_label_formatter(&|across| format!("{across:.0}"))
            .y_label_formatter(&|up| match self.up {
                Up::Percent => format!("{up:+.0} %"),
                Up::Time => time(*up),
            })
            .draw()?;
        for (peer, points) in &self.lines {
            let style = colour(*peer).stroke_width(if *peer == Peer::Shootdown { 3 } else { 1 });
            chart
                .draw_series(LineSeries::new(points.iter().copied(), style))?
                .label(peer.name())
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 14, y)], style));
            let dot = |point: &(f64, f64)| Circle::new(*point, 2, colour(*peer).filled());
            chart.draw_series(points.iter().map(dot))?;
        }
        if !has_legend {
            return Ok(());
        }
        let corner = match self.up {
            Up::Percent => SeriesLabelPosition::LowerRight,
            Up::Time => SeriesLabelPosition::UpperLeft,
        };
        chart
            .configure_series_labels()
            .position(corner)
            .label_font(("sans-serif", 10))
            .background_style(WHITE.mix(0.7))
            .draw()?;
        Ok(())
    }
}

fn colour(peer: Peer) -> RGBColor {
    match peer {
        Peer::Mailbox => RGBColor(150, 150, 150),
        Peer::OneLock => RGBColor(200, 120, 30),
        Peer::TaskSet => RGBColor(30, 150, 70),
        Peer::CallQueues => RGBColor(40, 90, 200),
        Peer::Scoreboard => RGBColor(200, 40, 60),
        Peer::Shootdown => BLACK,
    }
}

/// The least and the greatest; never the same.
fn span(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (least, most) = values.fold(
        (f64::INFINITY, f64::NEG_INFINITY),
        |(least, most), value| (least.min(value), most.max(value)),
    );
    match least < most {
        true => (least, most),
        false => (least, least + least.abs().max(1.0)),
    }
}
