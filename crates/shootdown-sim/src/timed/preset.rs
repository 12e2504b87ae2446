//! [`Preset`]: a machine by name, with the origin of every figure.

use std::fmt;

use crate::timed::presets::{
    FORTY_CORES, FORTY_CORES_2018, HASWELL_EP, LARGE_SERVER, SIXTEEN_CORES, SKYLAKE_LAPTOP,
};
use crate::timed::{Costs, Parameter};

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

/// One parameter of a preset.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// Which.
    pub name: &'static str,
    /// How much, in the parameter's unit.
    pub value: f64,
    /// From where.
    pub origin: Origin,
}

/// A machine by name.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// Its name.
    pub name: &'static str,
    /// What it stands for.
    pub about: &'static str,
    /// The preset that has the figures which this one does not give; `None` if it gives all.
    pub base: Option<&'static Preset>,
    /// The figures of its own.
    pub figures: &'static [Figure],
}

/// Short form for the tables of figures.
pub(crate) const fn figure(name: &'static str, value: f64, origin: Origin) -> Figure {
    Figure {
        name,
        value,
        origin,
    }
}

impl Preset {
    /// All presets, the one of table T1 first.
    pub const ALL: [&'static Self; 6] = [
        &HASWELL_EP,
        &SKYLAKE_LAPTOP,
        &FORTY_CORES,
        &FORTY_CORES_2018,
        &SIXTEEN_CORES,
        &LARGE_SERVER,
    ];

    /// The preset with this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        Self::ALL.into_iter().find(|preset| preset.name == name)
    }

    /// Every parameter, once: the figures of its own, and those of its base that it does not replace.
    pub fn all_figures(&self) -> impl Iterator<Item = &'static Figure> + use<> {
        let own = self.figures;
        let inherited = self.base.map_or(&[][..], |base| base.figures);
        let replaced = |name| own.iter().any(|figure| figure.name == name);
        own.iter().chain(
            inherited
                .iter()
                .filter(move |figure| !replaced(figure.name)),
        )
    }

    /// What the machine costs.
    ///
    /// # Panics
    /// When a figure names no parameter or makes no sense, which a test rules out.
    pub fn costs(&self) -> Costs {
        let mut costs = Costs::default();
        for figure in self.all_figures() {
            Parameter::named(figure.name)
                .and_then(|parameter| parameter.set(&mut costs, figure.value))
                .expect("a figure of a preset fits");
        }
        costs
    }

    /// Where the preset has a parameter's value from.
    pub fn origin(&self, parameter: &Parameter) -> Option<Origin> {
        self.all_figures()
            .find(|figure| figure.name == parameter.name)
            .map(|figure| figure.origin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timed::PARAMETERS;

    #[test]
    fn every_preset_gives_every_parameter_one_value_and_one_origin() {
        for preset in Preset::ALL {
            let mut named: Vec<&str> = preset.all_figures().map(|figure| figure.name).collect();
            let mut known: Vec<&str> = PARAMETERS.iter().map(|parameter| parameter.name).collect();
            named.sort_unstable();
            known.sort_unstable();
            assert_eq!(named, known, "{}", preset.name);
            let costs = preset.costs();
            assert!(preset.base.is_none_or(|base| base.base.is_none()));
            for figure in preset.all_figures() {
                let parameter = Parameter::named(figure.name).unwrap();
                assert_eq!(parameter.get(&costs), figure.value, "{}", figure.name);
                assert!(figure.origin.text().len() > 3, "{}", figure.name);
            }
            assert!(std::ptr::eq(Preset::named(preset.name).unwrap(), preset));
        }
        assert!(Preset::named("nonsense").is_none());
    }
}
