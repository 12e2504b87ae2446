//! What figures count, and what they are called, by their keys.

use crate::bench::{number, short, time};

/// Parts of keys that are written otherwise.
const WORDS: [(&str, &str); 11] = [
    ("off", "preemption-off"),
    ("whole", "time of all calls"),
    ("ipis", "IPIs"),
    ("ipi", "IPI"),
    ("cpus", "CPUs"),
    ("cpu", "CPU"),
    ("op", "operation"),
    ("vcpus", "virtual CPUs"),
    ("irq", "interrupt"),
    ("p50", "median"),
    ("lines", "cache lines"),
];

/// What a figure counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Nanoseconds.
    Time,
    /// Of another row's figure.
    Ratio,
    /// Of a hundred.
    Percent,
    /// So many a second.
    Rate,
    /// Just a number.
    Number,
}

impl Unit {
    /// Of a key.
    pub fn of(key: &str) -> Self {
        let has = |part: &str| key.split('_').any(|word| word == part);
        match key {
            _ if has("ratio") => Self::Ratio,
            _ if has("ns") => Self::Time,
            _ if has("percent") => Self::Percent,
            _ if key == "per_s" || key.ends_with("_per_s") => Self::Rate,
            _ => Self::Number,
        }
    }

    /// A figure with it.
    pub fn write(self, value: f64) -> String {
        match self {
            Self::Time => time(value),
            Self::Ratio if value.abs() >= 9.9995 => short(value),
            Self::Ratio if value > 0.0 && value < 0.0995 => {
                let digits = (1.0 - value.log10().floor()) as usize;
                format!("{value:.digits$}")
            }
            Self::Ratio => format!("{value:.3}"),
            Self::Percent => format!("{value:.1} %"),
            Self::Rate if value >= 1e6 => format!("{:.2} M/s", value / 1e6),
            Self::Rate if value >= 1e4 => format!("{:.1} k/s", value / 1e3),
            Self::Rate => format!("{}/s", short(value)),
            Self::Number if value.fract() == 0.0 => number(value),
            Self::Number => short(value),
        }
    }
}

/// What a figure is called.
pub fn heading(key: &str) -> String {
    if key == "per_s" {
        return "operations a second".into();
    }
    let word = |part| {
        let known = WORDS.iter().find(|(word, _)| *word == part);
        known.map_or(part, |(_, written)| *written)
    };
    let key = key.strip_suffix("_ns").unwrap_or(key).replace("_ns_", "_");
    let key = key.strip_suffix("_percent").unwrap_or(&key);
    let words: Vec<&str> = key.split('_').map(word).collect();
    match words.join(" ") {
        words if words.is_empty() => "ns".into(),
        words => words.replace("per s", "a second"),
    }
}
