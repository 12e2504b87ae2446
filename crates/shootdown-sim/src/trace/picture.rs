//! A drawing of several traces, one above the other on the same scale: a lane for each CPU, arrows for interrupts
//! and acknowledgements, a time axis in nanoseconds. It brings its own background, so that it reads the same
//! in light and dark surroundings.

use svg::Document;
use svg::node::element::{
    Circle, Definitions, Group, Line, Marker, Path, Rectangle, Style, Text, Title,
};

use crate::trace::{Flow, Span, SpanKind, Trace};

/// One trace of the picture.
#[derive(Clone, Copy, Debug)]
pub struct Panel<'a> {
    /// What stands above it, in bold.
    pub title: &'a str,
    /// What follows the title.
    pub remark: &'a str,
    /// How many nanoseconds its outcome took, at the right end of the title's line.
    pub outcome: &'a str,
    /// What to draw. Every panel starts at the first moment of its own trace.
    pub trace: &'a Trace,
}

const WIDTH: f64 = 900.0;
const LEFT: f64 = 96.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 46.0;
const TITLE: f64 = 34.0;
const LANE: f64 = 30.0;
const GAP: f64 = 14.0;
const PANEL_GAP: f64 = 16.0;
const AXIS: f64 = 40.0;
/// Width of a letter, generously: a label that might not fit is left out.
const LETTER: f64 = 6.6;

const STYLE: &str = "
text{font-family:system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif;font-size:12px;fill:#1f2937}
.title{font-size:14px;font-weight:600}.quiet{fill:#5b6472}.outcome{font-weight:600;text-anchor:end}
.lane{text-anchor:end}.inside{font-size:11px;text-anchor:middle}.tick{font-size:11px;text-anchor:middle;fill:#5b6472}
.user{fill:#e6e9ee}.kernel{fill:#a9c8f0}.interrupt{fill:#fbd9a8}.handler{fill:#f5ab4f}.flush{fill:#dd4f4f}
.wait{fill:url(#waiting)}.function{fill:#b79be0}.flush-text{fill:#fff;stroke:#dd4f4f;stroke-width:3px;paint-order:stroke}
.grid{stroke:#d5dae1;stroke-width:1}.halo{stroke:#fff;stroke-width:3.6;fill:none;stroke-opacity:.85}
.ipi{stroke:#1f2937;stroke-width:1.5;fill:none}.ack{stroke:#0a7d4b;stroke-width:1.5;fill:none;stroke-dasharray:4 2.5}
";

/// The drawing. The same panels give the same bytes.
///
/// # Panics
/// With a panel that has no span.
pub fn svg(panels: &[Panel<'_>]) -> String {
    let longest_ns = panels
        .iter()
        .map(|p| length_ns(p.trace))
        .fold(0.0, f64::max);
    let heights: f64 = panels
        .iter()
        .map(|p| panel_height(p.trace) + PANEL_GAP)
        .sum();
    let height = TOP + heights + AXIS;
    let mut document = Document::new()
        .set("viewBox", (0, 0, WIDTH as u32, height as u32))
        .set("width", WIDTH as u32)
        .set("height", height as u32)
        .set("role", "img")
        .add(Title::new("One TLB shootdown, CPU by CPU"))
        .add(Style::new(STYLE))
        .add(definitions())
        .add(background(height))
        .add(legend());
    let scale = Scale {
        pixels_per_ns: (WIDTH - LEFT - RIGHT) / longest_ns,
    };
    let axis_y = TOP + heights;
    document = document.add(axis(&scale, longest_ns, axis_y));
    let mut top = TOP;
    for panel in panels {
        document = document.add(draw(panel, &scale, top));
        top += panel_height(panel.trace) + PANEL_GAP;
    }
    format!("{document}\n")
}

/// Where a moment lies.
struct Scale {
    pixels_per_ns: f64,
}

impl Scale {
    fn x(&self, since_start_ps: u64) -> f64 {
        LEFT + since_start_ps as f64 / 1000.0 * self.pixels_per_ns
    }
}

fn start_ps(trace: &Trace) -> u64 {
    let starts = trace.spans.iter().map(|span| span.start_ps);
    starts.min().expect("a trace with spans")
}

fn length_ns(trace: &Trace) -> f64 {
    let ends = trace.spans.iter().map(|span| span.end_ps);
    let end_ps = ends.max().expect("a trace with spans");
    (end_ps - start_ps(trace)) as f64 / 1000.0
}

fn panel_height(trace: &Trace) -> f64 {
    TITLE + trace.cpus as f64 * (LANE + GAP) - GAP
}

/// A tenth of a pixel is enough, and short.
fn tenth(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

fn text(x: f64, y: f64, class: &str, content: &str) -> Text {
    Text::new(content)
        .set("x", tenth(x))
        .set("y", tenth(y))
        .set("class", class)
}

fn rectangle(x: f64, y: f64, width: f64, height: f64) -> Rectangle {
    Rectangle::new()
        .set("x", tenth(x))
        .set("y", tenth(y))
        .set("width", tenth(width))
        .set("height", tenth(height))
}

fn background(height: f64) -> Rectangle {
    rectangle(0.5, 0.5, WIDTH - 1.0, height - 1.0)
        .set("rx", 8)
        .set("fill", "#ffffff")
        .set("stroke", "#d5dae1")
}

fn definitions() -> Definitions {
    let tip = |id: &str, colour: &str| {
        Marker::new()
            .set("id", id)
            .set("viewBox", "0 0 8 8")
            .set("refX", 7)
            .set("refY", 4)
            .set("markerWidth", 7)
            .set("markerHeight", 7)
            .set("markerUnits", "userSpaceOnUse")
            .set("orient", "auto")
            .add(
                Path::new()
                    .set("d", "M0,0.5 L8,4 L0,7.5 Z")
                    .set("fill", colour),
            )
    };
    let stripes = svg::node::element::Pattern::new()
        .set("id", "waiting")
        .set("width", 7)
        .set("height", 7)
        .set("patternUnits", "userSpaceOnUse")
        .set("patternTransform", "rotate(45)")
        .add(rectangle(0.0, 0.0, 7.0, 7.0).set("fill", "#fdf3c4"))
        .add(rectangle(0.0, 0.0, 3.0, 7.0).set("fill", "#f2dc7d"));
    Definitions::new()
        .add(stripes)
        .add(tip("ipi-tip", "#1f2937"))
        .add(tip("ack-tip", "#0a7d4b"))
}

/// The colours and the two arrows, in the picture's first line.
fn legend() -> Group {
    let kinds = [
        ("user", "user"),
        ("kernel", "kernel"),
        ("interrupt", "interrupt entry, exit"),
        ("handler", "handler"),
        ("flush", "flush"),
        ("wait", "wait"),
    ];
    let mut group = Group::new();
    let mut x = 20.0;
    for (class, name) in kinds {
        group = group
            .add(
                rectangle(x, 16.0, 16.0, 12.0)
                    .set("rx", 2)
                    .set("class", class),
            )
            .add(text(x + 21.0, 26.5, "quiet", name));
        x += 21.0 + LETTER * name.len() as f64 + 14.0;
    }
    for (class, name) in [
        ("ipi", "interrupt"),
        ("ack", "acknowledgement (sent, seen)"),
    ] {
        group = group
            .add(arrow((x, 22.0), (x + 26.0, 22.0), class))
            .add(text(x + 32.0, 26.5, "quiet", name));
        x += 32.0 + LETTER * name.len() as f64 + 14.0;
    }
    group
}

fn axis(scale: &Scale, longest_ns: f64, y: f64) -> Group {
    let mut group = Group::new();
    let step_ns = [50, 100, 200, 500, 1000, 2000, 5000, 10_000]
        .into_iter()
        .find(|step| longest_ns / f64::from(*step) <= 12.0)
        .unwrap_or(50_000);
    for tick in (0..)
        .map(|n| n * step_ns)
        .take_while(|t| f64::from(*t) <= longest_ns)
    {
        let x = tenth(scale.x(tick as u64 * 1000));
        let label = match tick {
            0 => "0 ns".to_owned(),
            _ => tick.to_string(),
        };
        let line = Line::new()
            .set("class", "grid")
            .set("x1", x)
            .set("x2", x)
            .set("y1", TOP + TITLE - 6.0)
            .set("y2", y);
        group = group.add(line).add(text(x, y + 17.0, "tick", &label));
    }
    group
}

fn draw(panel: &Panel<'_>, scale: &Scale, top: f64) -> Group {
    let trace = panel.trace;
    let start = start_ps(trace);
    let lane_y = |cpu: usize| top + TITLE + cpu as f64 * (LANE + GAP);
    let title_y = top + 17.0;
    let mut group = Group::new()
        .add(rectangle(2.0, top, WIDTH - 4.0, TITLE - 8.0).set("fill", "#f4f6f9"))
        .add(text(20.0, title_y + 1.0, "title", panel.title))
        .add(text(LEFT, title_y, "quiet", panel.remark))
        .add(text(WIDTH - RIGHT, title_y, "outcome", panel.outcome));
    for cpu in 0..trace.cpus {
        let name = format!("CPU {cpu}");
        group = group.add(text(
            LEFT - 12.0,
            lane_y(cpu) + LANE / 2.0 + 4.0,
            "lane",
            &name,
        ));
    }
    for span in &trace.spans {
        let (x, end) = (scale.x(span.start_ps - start), scale.x(span.end_ps - start));
        let width = tenth(end) - tenth(x);
        let bar = rectangle(x, lane_y(span.cpu), width, LANE).set("class", class(span));
        group = group.add(bar);
    }
    for flow in &trace.flows {
        group = group.add(arrows(flow, scale, start, &lane_y));
    }
    for span in &trace.spans {
        if let Some((x, label)) = label(trace, span, scale, start) {
            let class = match span.kind {
                SpanKind::Flush => "inside flush-text",
                _ => "inside",
            };
            group = group.add(text(x, lane_y(span.cpu) + LANE / 2.0 + 4.0, class, label));
        }
    }
    group
}

fn class(span: &Span) -> &'static str {
    match span.name {
        "interrupt" => "interrupt",
        _ => span.kind.word(),
    }
}

/// A label in the widest part of the span that no inner span covers, if it fits.
fn label<'a>(trace: &Trace, span: &Span, scale: &Scale, start: u64) -> Option<(f64, &'a str)> {
    let name = match (span.kind, span.name) {
        (SpanKind::Handler, "handle_ipi") => "handler",
        (_, name) => name,
    };
    let mut free_from = span.start_ps;
    let mut widest = (0, 0);
    let inner = trace.spans.iter().filter(|other| {
        other.cpu == span.cpu
            && other.depth == span.depth + 1
            && other.start_ps >= span.start_ps
            && other.end_ps <= span.end_ps
    });
    for (from, to) in inner
        .map(|other| (other.start_ps, other.end_ps))
        .chain([(span.end_ps, span.end_ps)])
    {
        if from - free_from > widest.1 - widest.0 {
            widest = (free_from, from);
        }
        free_from = to;
    }
    let (from, to) = (scale.x(widest.0 - start), scale.x(widest.1 - start));
    let fits = to - from >= LETTER * name.len() as f64 + 6.0;
    fits.then_some(((from + to) / 2.0, name))
}

/// From the lower edge of the initiator's lane to the upper edge of the target's, and back.
fn arrows(flow: &Flow, scale: &Scale, start: u64, lane_y: &impl Fn(usize) -> f64) -> Group {
    let is_below = flow.target > flow.initiator;
    let edges = |cpu: usize, is_lower: bool| lane_y(cpu) + if is_lower { LANE } else { 0.0 };
    let initiator_y = edges(flow.initiator, is_below);
    let target_y = edges(flow.target, !is_below);
    let at = |time_ps: u64, y: f64| (scale.x(time_ps - start), y);
    let mut group = Group::new();
    if let Some(taken_ps) = flow.taken_ps {
        let (from, to) = (at(flow.sent_ps, initiator_y), at(taken_ps, target_y));
        group = group.add(arrow(from, to, "ipi"));
    }
    let from = at(flow.acknowledged_ps, target_y);
    let to = at(flow.seen_ps, initiator_y);
    let dot = Circle::new()
        .set("cx", tenth(from.0))
        .set("cy", tenth(from.1))
        .set("r", 2.6)
        .set("fill", "#0a7d4b");
    group.add(arrow(from, to, "ack")).add(dot)
}

fn arrow(from: (f64, f64), to: (f64, f64), class: &str) -> Group {
    let line = |class: &str| {
        Line::new()
            .set("class", class)
            .set("x1", tenth(from.0))
            .set("y1", tenth(from.1))
            .set("x2", tenth(to.0))
            .set("y2", tenth(to.1))
    };
    let tip = format!("url(#{class}-tip)");
    Group::new()
        .add(line("halo"))
        .add(line(class).set("marker-end", tip))
}
