//! [`Preset`]: a machine by name, with the origin of every figure.
//!
//! A preset is a row of [`Preset::ALL`] and a file of its own, which no other code needs to know. Each figure says where it comes from;
//! `./lab bench WORKLOAD --machine sim --preset NAME` prints them.

use std::fmt;

use crate::timed::parameters::optional;
use crate::timed::{Costs, PARAMETERS, Parameter};

/// Where a figure comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// Somebody measured or specified it: who, and where.
    Published(&'static str),
    /// Nobody we know of published it: why this value.
    Assumed(&'static str),
    /// Chosen so that a published result comes out: which one.
    Fitted(&'static str),
}

impl Origin {
    fn new(word: &str, text: &'static str) -> Option<Self> {
        match word {
            "published" => Some(Self::Published(text)),
            "assumed" => Some(Self::Assumed(text)),
            "fitted" => Some(Self::Fitted(text)),
            _ => None,
        }
    }

    /// One word for tables.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Published(_) => "published",
            Self::Assumed(_) => "assumed",
            Self::Fitted(_) => "fitted",
        }
    }

    /// The source, or the reason.
    pub fn text(&self) -> &'static str {
        match self {
            Self::Published(text) | Self::Assumed(text) | Self::Fitted(text) => text,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.word(), self.text())
    }
}

/// A machine by name.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// Its name.
    pub name: &'static str,
    /// What it stands for.
    pub about: &'static str,
    /// Name of the preset that has the figures which this one does not give; `None` if it gives all.
    base: Option<&'static str>,
    /// The figures of its own: a line for each, with name, value, origin, and source or reason.
    figures: &'static str,
}

/// All presets, the one of table T1 first.
static PRESETS: &[Preset] = &[
    Preset {
        name: "haswell-ep",
        about: "two sockets of 18 cores, Haswell-EP: the machine class of table T1",
        base: None,
        figures: include_str!("presets/haswell-ep.txt"),
    },
    Preset {
        name: "skylake-laptop",
        about: "one socket of four cores, Skylake at 2.3 GHz: the parameters of table T4",
        base: Some("40-core"),
        figures: include_str!("presets/skylake-laptop.txt"),
    },
    Preset {
        name: "40-core",
        about: "two sockets of 20 cores: the size of the machine of table T2",
        base: Some("haswell-ep"),
        figures: include_str!("presets/40-core.txt"),
    },
    Preset {
        name: "40-core-2018",
        about: "two sockets of 20 cores, with the system around the TLB that table T2 was measured on",
        base: Some("40-core"),
        figures: include_str!("presets/40-core-2018.txt"),
    },
    Preset {
        name: "16-core",
        about: "one socket of 16 cores: the size of the machine of table T3",
        base: Some("40-core"),
        figures: include_str!("presets/16-core.txt"),
    },
    Preset {
        name: "xeon-far",
        about: "two cores of a Xeon at 2.6 GHz as --machine cores uses them, flags for interrupts",
        base: Some("haswell-ep"),
        figures: include_str!("presets/xeon-far.txt"),
    },
    Preset {
        name: "xeon-near",
        about: "the same on two threads of one core, of a Xeon at 2.5 GHz",
        base: Some("xeon-far"),
        figures: include_str!("presets/xeon-near.txt"),
    },
    Preset {
        name: "large-server",
        about: "64 sockets of 64 cores: 4096 CPUs, for scaling only",
        base: Some("40-core"),
        figures: include_str!("presets/large-server.txt"),
    },
    Preset {
        name: "ten-guests",
        about: "one socket of 64 cores that runs ten guests: for T5's evacuation, whose machine is not published",
        base: Some("40-core"),
        figures: include_str!("presets/ten-guests.txt"),
    },
    Preset {
        name: "kvm-2-to-1",
        about: "haswell-ep under KVM, two virtual CPUs on each processor",
        base: Some("haswell-ep"),
        figures: include_str!("presets/kvm-2-to-1.txt"),
    },
];

/// One parameter of a preset, in the parameter's unit.
#[derive(Clone, Copy, Debug)]
struct Figure {
    name: &'static str,
    value: f64,
    origin: Origin,
}

impl Figure {
    fn read(line: &'static str) -> Option<Self> {
        let (name, rest) = line.split_once(' ')?;
        let (value, rest) = rest.trim_start().split_once(' ')?;
        let (origin, text) = rest.trim_start().split_once(' ')?;
        Some(Self {
            name,
            value: value.parse().ok()?,
            origin: Origin::new(origin, text.trim_start())?,
        })
    }
}

impl Preset {
    /// All presets, the one of table T1 first.
    pub const ALL: &'static [Self] = PRESETS;

    /// The preset with this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        Self::ALL.iter().find(|preset| preset.name == name)
    }

    /// The figures of its own.
    ///
    /// # Panics
    /// When a line is no figure, which a test rules out.
    fn own_figures(&self) -> impl Iterator<Item = Figure> + use<> {
        let lines = self.figures.lines().filter(|line| !line.starts_with('#'));
        lines.map(|line| Figure::read(line).unwrap_or_else(|| panic!("`{line}` is no figure")))
    }

    fn base(&self) -> Option<&'static Self> {
        self.base
            .map(|name| Self::named(name).expect("a base is a preset"))
    }

    /// Its own, or that of the nearest base that gives it.
    fn figure(&self, name: &str) -> Option<Figure> {
        let own = self.own_figures().find(|figure| figure.name == name);
        own.or_else(|| self.base()?.figure(name))
    }

    /// What the machine costs.
    ///
    /// # Panics
    /// When a parameter has no figure or one that makes no sense, which a test rules out.
    pub fn costs(&self) -> Costs {
        let mut costs = Costs::default();
        for parameter in PARAMETERS {
            let figure = self.figure(parameter.name).expect("a figure each");
            let set = parameter.set(&mut costs, figure.value);
            set.expect("a figure of a preset fits");
        }
        for parameter in optional() {
            if let Some(figure) = self.figure(parameter.name) {
                let set = parameter.set(&mut costs, figure.value);
                set.expect("a figure of a preset fits");
            }
        }
        costs
    }

    /// Where the preset has a parameter's value from.
    pub fn origin(&self, parameter: &Parameter) -> Option<Origin> {
        self.figure(parameter.name).map(|figure| figure.origin)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_preset_gives_every_parameter_one_value_and_one_origin() {
        for (index, preset) in Preset::ALL.iter().enumerate() {
            let costs = preset.costs();
            for parameter in PARAMETERS {
                let figure = preset.figure(parameter.name).unwrap();
                assert_eq!(parameter.get(&costs), figure.value, "{}", figure.name);
                assert!(figure.origin.text().len() > 3, "{}", figure.name);
            }
            let given = optional().map(|it| it.name);
            let given = given.filter(|name| preset.figure(name).is_some());
            assert!(given.eq(costs.own_parameters().map(|it| it.name)));
            let mut named = BTreeSet::new();
            for Figure { name, .. } in preset.own_figures() {
                assert!(Parameter::named(name).is_ok(), "{name}");
                assert!(named.insert(name), "{}: {name} twice", preset.name);
            }
            let first = Preset::ALL.iter().position(|it| it.name == preset.name);
            assert_eq!(first, Some(index), "{} stands there twice", preset.name);
        }
        assert!(Preset::named("nonsense").is_none());
    }

    #[test]
    fn a_preset_says_only_what_its_base_does_not() {
        let bases = Preset::ALL.iter().filter_map(|it| Some((it, it.base()?)));
        for (preset, base) in bases {
            for own in preset.own_figures() {
                let inherited = base.figure(own.name);
                assert_ne!(
                    Some((own.value, own.origin)),
                    inherited.map(|it| (it.value, it.origin)),
                    "{}: {}",
                    preset.name,
                    own.name
                );
            }
        }
    }
}
