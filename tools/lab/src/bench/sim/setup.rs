//! The simulated machine that a bench runs on: a preset, with the figures that the caller set.

use serde::Serialize;
use serde_json::{Value, json};
use shootdown_sim::timed::{Costs, Origin, PARAMETERS, Parameter, Preset, Unit};
use shootdown_sim::workload::{LOAD_FIGURES, Load, LoadFigure};

use crate::bench::columns::{grid, number};
use crate::failure::{Failure, Outcome};

/// A machine, and where its figures come from.
pub struct Setup {
    /// The machine's name and description.
    pub preset: &'static Preset,
    /// What the machine costs.
    pub costs: Costs,
    /// What the machine is made to do, where that has figures too.
    load: Option<Load>,
    /// Names of the parameters that the caller set.
    set: Vec<&'static str>,
}

/// A figure, and where it comes from: in a word, and in a sentence.
#[derive(Debug, Serialize)]
struct Figure {
    #[serde(skip)]
    name: &'static str,
    value: f64,
    origin: &'static str,
    source: &'static str,
}

impl Setup {
    /// A machine by name, what it is made to do if that has figures, and figures that the caller sets.
    ///
    /// # Errors
    /// No such preset or figure, or no such value of it.
    pub fn new(name: &str, mut load: Option<Load>, figures: &[String]) -> Outcome<Self> {
        let preset = Preset::named(name).ok_or_else(|| {
            let known: Vec<_> = Preset::ALL.iter().map(|preset| preset.name).collect();
            let known = known.join(", ");
            Failure::input(
                format!("no preset is called {name:?}"),
                format!("choose from {known}"),
            )
        })?;
        let mut costs = preset.costs();
        let set = figures
            .iter()
            .map(|words| set(&mut costs, load.as_mut(), words))
            .collect::<Outcome<_>>()?;
        Ok(Self {
            preset,
            costs,
            load,
            set,
        })
    }

    /// What the machine is made to do.
    ///
    /// # Panics
    /// For a workload whose load has no figures.
    pub fn load(&self) -> &Load {
        self.load.as_ref().expect("the workload has a load")
    }

    /// The machine's description, and all of its figures if they are asked for.
    pub fn render(&self, shows_figures: bool) -> String {
        let Preset { name, about, .. } = self.preset;
        if !shows_figures {
            let figures = self.figures();
            let set = figures.iter().filter(|figure| figure.origin == "set");
            let set: String = set
                .map(|it| format!("{} = {}, set {}\n", it.name, number(it.value), it.source))
                .collect();
            return format!(
                "\n{name}: {about}; --figures shows its {} figures with their sources\n{set}",
                figures.len()
            );
        }
        let heading = ["figure", "value", "origin", "source or reason"];
        let cells = |figure: Figure| {
            let value = number(figure.value);
            [figure.name, &value, figure.origin, figure.source]
                .map(str::to_owned)
                .to_vec()
        };
        let rows = self.figures().into_iter().map(cells).collect();
        let table = grid(heading, rows, |index| index != 1);
        format!("\n{name}: {about}\n{table}\n")
    }

    /// The figures of the machine, and those of its load.
    fn figures(&self) -> Vec<Figure> {
        let all = PARAMETERS.iter().chain(self.costs.own_parameters());
        let machine = all.map(|it| {
            let origin = self.preset.origin(it);
            (it.name, it.get(&self.costs), origin)
        });
        let loads = self.load.iter().flat_map(|load| {
            LOAD_FIGURES
                .iter()
                .map(move |it| (it.name, it.get(load), Some(it.origin)))
        });
        let figure = |(name, value, origin): (&'static str, f64, Option<Origin>)| {
            let (origin, source) = match origin {
                _ if self.set.contains(&name) => ("set", "on the command line"),
                Some(origin) => (origin.word(), origin.text()),
                None => ("unknown", ""),
            };
            Figure {
                name,
                value,
                origin,
                source,
            }
        };
        machine.chain(loads).map(figure).collect()
    }

    /// One line that says how much of this was fitted.
    pub fn fitted(&self) -> String {
        let mut figures = self.figures();
        figures.retain(|figure| figure.origin == "fitted");
        let names: Vec<&str> = figures.iter().map(|figure| figure.name).collect();
        match names[..] {
            [] => "no figure was fitted".into(),
            _ => format!("fitted to rows of the table: {}", names.join(", ")),
        }
    }

    /// Every figure with its origin, for the result.
    pub fn figures_json(&self) -> Value {
        let figures = self.figures().into_iter();
        let figures = figures.map(|figure| (figure.name.to_owned(), json!(figure)));
        Value::Object(figures.collect())
    }
}

/// Carries out `NAME=VALUE`; returns the name.
fn set(costs: &mut Costs, load: Option<&mut Load>, words: &str) -> Outcome<&'static str> {
    let remedy = "--figures shows all names; use --set NAME=VALUE";
    let refused = |cause: String| Failure::input(cause, remedy);
    let (name, value) = words
        .split_once('=')
        .ok_or_else(|| refused(format!("--set {words:?} has no value")))?;
    let number: f64 = value
        .parse()
        .map_err(|_| refused(format!("{value:?} is no number for {name}")))?;
    if let Some((load, Ok(figure))) = load.map(|load| (load, LoadFigure::named(name))) {
        figure.set(load, number).map_err(refused)?;
        return Ok(figure.name);
    }
    let parameter = Parameter::named(name).map_err(|error| refused(error.to_string()))?;
    parameter
        .set(costs, number)
        .map_err(|error| refused(error.to_string()))?;
    if parameter.unit != Unit::Time && number.fract() != 0.0 {
        return Err(refused(format!("{name} takes whole numbers")));
    }
    Ok(parameter.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_set_by_name_or_refused_with_the_reason() {
        let mut costs = Costs::default();
        assert_eq!(set(&mut costs, None, "icr_ns=12.5").unwrap(), "icr_ns");
        assert_eq!(costs.icr_ps, 12_500);
        for (words, why) in [
            ("icr_ns", "no value"),
            ("icr_ns=fast", "no number"),
            ("icr=3", "did you mean icr_ns?"),
            ("icr_ns=-1", "takes 0 to"),
            ("cluster_cpus=1.5", "whole"),
        ] {
            let text = set(&mut costs, None, words).unwrap_err().to_string();
            assert!(text.contains(why) && !text.contains('\n'), "{text}");
        }
    }

    #[test]
    fn a_load_has_figures_of_its_own() {
        let (mut costs, mut load) = (Costs::default(), Load::default());
        let mut set = |words: &str| set(&mut costs, Some(&mut load), words);
        assert_eq!(set("tail_alpha=1.25").unwrap(), "tail_alpha");
        assert_eq!(set("icr_ns=12.5").unwrap(), "icr_ns");
        let text = set("tail_alpha=0").unwrap_err().to_string();
        assert!(text.contains("takes"), "{text}");
        assert_eq!((load.tail_alpha, costs.icr_ps), (1.25, 12_500));
    }
}
