//! The simulated machine that a bench runs on: a preset, with the figures that the caller set.

use serde_json::{Map, Value, json};
use shootdown_sim::timed::{Costs, Origin, PARAMETERS, Parameter, Preset, Unit};
use shootdown_sim::workload::{LOAD_FIGURES, Load, LoadFigure};

use crate::bench::columns::{grid, number};
use crate::failure::{Failure, Outcome};

/// A machine, and where its figures come from.
pub struct Setup {
    preset: &'static Preset,
    costs: Costs,
    /// What the machine is made to do, where that has figures too.
    load: Option<Load>,
    /// Names of the parameters that the caller set.
    set: Vec<&'static str>,
}

impl Setup {
    /// A machine by name, what it is made to do if that has figures, and figures that the caller sets.
    ///
    /// # Errors
    /// No such preset or figure, or no such value of it.
    pub fn new(name: &str, mut load: Option<Load>, figures: &[String]) -> Outcome<Self> {
        let preset = Preset::named(name).ok_or_else(|| {
            let known = Preset::ALL.map(|preset| preset.name).join(", ");
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

    /// The machine's name and description.
    pub fn preset(&self) -> &'static Preset {
        self.preset
    }

    /// What the machine costs.
    pub fn costs(&self) -> &Costs {
        &self.costs
    }

    /// What the machine is made to do.
    ///
    /// # Panics
    /// For a workload whose load has no figures.
    pub fn load(&self) -> &Load {
        self.load.as_ref().expect("the workload has a load")
    }

    /// The machine's description and all of its figures.
    pub fn render(&self) -> String {
        let Preset { name, about, .. } = self.preset;
        format!("\n{name}: {about}\n{}\n", self.figures())
    }

    /// Every figure with its origin.
    fn figures(&self) -> String {
        let heading = ["figure", "value", "origin", "source or reason"];
        let cells = |(name, value, (word, text)): (&str, f64, (String, String))| {
            vec![name.to_owned(), number(value), word, text]
        };
        let rows = self.all().map(cells).collect();
        grid(heading.map(str::to_owned).to_vec(), rows, |index| {
            index != 1
        })
    }

    /// The figures of the machine, and those of its load: name, value, origin in a word and in a sentence.
    fn all(&self) -> impl Iterator<Item = (&'static str, f64, (String, String))> {
        let machine = PARAMETERS.iter().map(|parameter| {
            let origin = self.origin(parameter.name, self.preset.origin(parameter));
            (parameter.name, parameter.get(&self.costs), origin)
        });
        let loads = self.load.iter().flat_map(|load| {
            let of =
                move |figure: &'static LoadFigure| (figure.name, figure.get(load), figure.origin);
            LOAD_FIGURES.iter().map(of)
        });
        machine.chain(
            loads.map(|(name, value, origin)| (name, value, self.origin(name, Some(origin)))),
        )
    }

    fn origin(&self, name: &str, origin: Option<Origin>) -> (String, String) {
        if self.set.contains(&name) {
            return ("set".into(), "on the command line".into());
        }
        match origin {
            Some(origin) => (origin.word().into(), origin.text().into()),
            None => ("unknown".into(), String::new()),
        }
    }

    /// One line that says how much of this was fitted.
    pub fn fitted(&self) -> String {
        let fitted = self.all().filter(|(_, _, (word, _))| word == "fitted");
        let fitted: Vec<&str> = fitted.map(|(name, _, _)| name).collect();
        match fitted[..] {
            [] => "no figure was fitted".into(),
            _ => format!("fitted to rows of the table: {}", fitted.join(", ")),
        }
    }

    /// Every figure with its origin, for the result.
    pub fn figures_json(&self) -> Value {
        let figure = |(name, value, (origin, source)): (&str, f64, (String, String))| {
            let figure = json!({"value": value, "origin": origin, "source": source});
            (name.to_owned(), figure)
        };
        let figures: Map<String, Value> = self.all().map(figure).collect();
        figures.into()
    }
}

/// Carries out `NAME=VALUE`; returns the name.
fn set(costs: &mut Costs, load: Option<&mut Load>, words: &str) -> Outcome<&'static str> {
    let remedy = "the table of every run names the figures; use --set NAME=VALUE";
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
        assert!(
            set("tail_alpha=0")
                .unwrap_err()
                .to_string()
                .contains("takes")
        );
        assert_eq!((load.tail_alpha, costs.icr_ps), (1.25, 12_500));
    }
}
