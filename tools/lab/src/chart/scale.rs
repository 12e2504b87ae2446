//! [`Scale`]: where values lie along an axis, and which of them are written beside it.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

use super::unit::Unit;

/// What can be drawn: nobody measures more or less.
const DRAWN: (f64, f64) = (1e-9, 1e15);
/// From this factor between ends on, an axis is logarithmic.
const WIDE: f64 = 8.0;
/// The most letters below an axis.
const MOST_LETTERS: usize = 56;
/// The most numbers beside an axis.
const MOST_TICKS: usize = 9;

/// An axis.
#[derive(Debug, Clone)]
pub struct Scale {
    is_logarithmic: bool,
    /// In which everything is written.
    pub unit: &'static str,
    /// Both ends, as positions.
    pub ends: (f64, f64),
    /// Values and what is written there.
    pub ticks: Vec<(f64, String)>,
}

impl Scale {
    /// From bottom to top, so that all of these can be seen; none if there is nothing to see.
    pub fn upwards(values: impl Iterator<Item = f64>, unit: Unit) -> Option<Self> {
        let (low, high) = ends(values.filter(|value| can_be_drawn(*value)))?;
        let is_logarithmic = low > 0.0 && high / low >= WIDE && unit != Unit::Percent;
        let (ends, ticks) = match is_logarithmic {
            true => (
                ((low / 1.3).log10(), (high * 1.3).log10()),
                decades((low / 1.3, high * 1.3)),
            ),
            false => {
                let ends = with_room(low, high, unit);
                (ends, steps(ends))
            }
        };
        let middle = if is_logarithmic {
            (low * high).sqrt()
        } else {
            high
        };
        let (name, size) = measure(unit, middle);
        let write = |value: f64| (value, plain(value / size));
        Some(Self {
            is_logarithmic,
            unit: name,
            ends,
            ticks: ticks.into_iter().map(write).collect(),
        })
    }

    /// From left to right, with these numbers written.
    pub fn across(values: &[f64], write: impl Fn(f64) -> String) -> Option<Self> {
        let (low, high) = ends(values.iter().copied().filter(|value| can_be_drawn(*value)))?;
        let is_logarithmic = low > 0.0 && high / low >= WIDE / 2.0;
        let mut scale = Self {
            is_logarithmic,
            unit: "number",
            ends: (0.0, 0.0),
            ticks: Vec::new(),
        };
        let (first, last) = (scale.place(low), scale.place(high));
        let room = if first < last {
            (last - first) * 0.06
        } else {
            0.5
        };
        scale.ends = (first - room, last + room);
        let gap = (last - first) / MOST_TICKS as f64;
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        for value in sorted.into_iter().filter(|value| can_be_drawn(*value)) {
            let before = scale.ticks.last();
            let has_room =
                |(before, _): &(f64, String)| scale.place(value) - scale.place(*before) > gap;
            if before.is_none_or(has_room) {
                scale.ticks.push((value, write(value)));
            }
        }
        Some(scale)
    }

    /// From left to right, one place for each of these, which are written if they are short enough.
    pub fn of_names(names: &[String]) -> Self {
        let letters: usize = names.iter().map(|name| name.chars().count() + 2).sum();
        let place = |(place, name): (usize, &String)| (place as f64, name.clone());
        let ticks: Vec<(f64, String)> = names.iter().enumerate().map(place).collect();
        Self {
            is_logarithmic: false,
            unit: "",
            ends: (-0.5, names.len() as f64 - 0.5),
            ticks: if letters <= MOST_LETTERS {
                ticks
            } else {
                Vec::new()
            },
        }
    }

    /// Where a value lies.
    pub fn place(&self, value: f64) -> f64 {
        match self.is_logarithmic {
            true => value.max(DRAWN.0).log10(),
            false => value,
        }
    }

    /// What lies at a place.
    pub fn value(&self, place: f64) -> f64 {
        match self.is_logarithmic {
            true => 10f64.powf(place),
            false => place,
        }
    }
}

impl Ranged for Scale {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (first, last): (i32, i32)) -> i32 {
        let (low, high) = self.ends;
        let part = (self.place(*value) - low) / (high - low);
        first + (part * f64::from(last - first)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.iter().map(|(value, _)| *value).collect()
    }

    fn range(&self) -> Range<f64> {
        self.value(self.ends.0)..self.value(self.ends.1)
    }
}

impl ValueFormatter<f64> for Scale {
    fn format(value: &f64) -> String {
        value.to_string()
    }

    fn format_ext(&self, value: &f64) -> String {
        let tick = self.ticks.iter().find(|(tick, _)| tick == value);
        tick.map(|(_, text)| text.clone()).unwrap_or_default()
    }
}

/// The ends of an axis that is not logarithmic. Times and counts begin at nothing; ratios are about 1.
fn with_room(low: f64, high: f64, unit: Unit) -> (f64, f64) {
    let low = if unit == Unit::Ratio {
        low
    } else {
        low.min(0.0)
    };
    let room = match high - low {
        room if room > 0.0 => room * 0.08,
        _ => high.abs().max(1.0) * 0.08,
    };
    let low = if low == 0.0 { 0.0 } else { low - room };
    (low, high + room)
}

/// The name of the unit that suits a value, and its size in what rows have.
fn measure(unit: Unit, value: f64) -> (&'static str, f64) {
    match unit {
        Unit::Time if value < 1e4 => ("ns", 1.0),
        Unit::Time if value < 1e7 => ("us", 1e3),
        Unit::Time => ("ms", 1e6),
        Unit::Rate if value < 1e4 => ("1/s", 1.0),
        Unit::Rate if value < 1e7 => ("thousand/s", 1e3),
        Unit::Rate => ("million/s", 1e6),
        Unit::Percent => ("%", 1.0),
        Unit::Ratio => ("ratio", 1.0),
        Unit::Number => ("number", 1.0),
    }
}

/// A number without zeros that say nothing.
fn plain(value: f64) -> String {
    let text = format!("{value:.9}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// What stands beside an axis.
pub fn labelled(name: &str, scale: &Scale) -> String {
    format!("{name} ({})", scale.unit)
}

/// Whether a value is one that somebody measured.
pub fn can_be_drawn(value: f64) -> bool {
    value == 0.0 || (DRAWN.0..=DRAWN.1).contains(&value.abs())
}

fn ends(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let wider = |ends: Option<(f64, f64)>, value: f64| match ends {
        None => Some((value, value)),
        Some((low, high)) => Some((low.min(value), high.max(value))),
    };
    values.fold(None, wider)
}

/// 1, 2 and 5 of each power of ten between these, or fewer.
fn decades((low, high): (f64, f64)) -> Vec<f64> {
    let powers = low.log10().floor() as i32..=high.log10().ceil() as i32;
    let of = |digits: &'static [f64]| -> Vec<f64> {
        let all = powers
            .clone()
            .flat_map(|power| digits.iter().map(move |digit| digit * 10f64.powi(power)));
        all.filter(|value| (low..=high).contains(value)).collect()
    };
    let [fine, middle, coarse] = [of(&[1.0, 2.0, 5.0]), of(&[1.0, 3.0]), of(&[1.0])];
    let mut found = [fine, middle, coarse].into_iter();
    let first = found.find(|ticks| ticks.len() <= MOST_TICKS);
    first.unwrap_or_else(|| vec![low, high])
}

/// Round numbers between these.
fn steps((low, high): (f64, f64)) -> Vec<f64> {
    let rough = (high - low) / 5.0;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|digit| digit * power);
    let step = step
        .into_iter()
        .find(|step| *step >= rough)
        .unwrap_or(rough);
    let first = (low / step).ceil() as i64;
    let last = (high / step).floor() as i64;
    (first..=last).map(|count| count as f64 * step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wide_axis_is_logarithmic_and_a_narrow_one_begins_at_nothing() {
        let wide = Scale::upwards([100.0, 5000.0].into_iter(), Unit::Time).unwrap();
        let ticks: Vec<&str> = wide.ticks.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(ticks, ["100", "200", "500", "1000", "2000", "5000"]);
        let narrow = Scale::upwards([100.0, 400.0].into_iter(), Unit::Time).unwrap();
        assert_eq!(narrow.ends.0, 0.0);
        assert_eq!(
            (narrow.format_ext(&100.0).as_str(), narrow.unit),
            ("100", "ns")
        );
        let ratio = Scale::upwards([0.8, 1.0].into_iter(), Unit::Ratio).unwrap();
        assert!(ratio.ends.0 > 0.7);
    }

    #[test]
    fn odd_values_make_no_axis_and_few_ticks() {
        assert!(Scale::upwards([f64::NAN, 1e300].into_iter(), Unit::Time).is_none());
        let flat = Scale::upwards([0.0, 0.0].into_iter(), Unit::Number).unwrap();
        assert!(flat.ends.1 > 0.0 && flat.ticks.len() < 10);
        let all = Scale::upwards([1e-9, 1e15].into_iter(), Unit::Time).unwrap();
        assert!(all.ticks.len() <= MOST_TICKS);
        let many: Vec<f64> = (1..1000).map(f64::from).collect();
        let across = Scale::across(&many, |value| value.to_string()).unwrap();
        assert!(across.ticks.len() <= MOST_TICKS + 1);
    }
}
