//! The descriptions in `verify/mutants`.

use std::path::PathBuf;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::check::Check;
use super::scratch::Edit;
use crate::failure::{Doing, Failure, Outcome};
use crate::place;

/// One deliberate mistake.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mutant {
    /// Its name; that of its file.
    pub id: String,
    /// The row of the list of bugs that this field really had, if it has one there.
    pub row: Option<String>,
    /// Where such a mistake was made or described before.
    pub origin: String,
    /// What is left out or altered.
    pub breaks: String,
    /// What goes wrong then.
    pub happens: String,
    /// The checks that are expected to notice, in the order in which they are tried.
    pub killers: Vec<Check>,
    /// The changes that make the mistake.
    pub edits: Vec<Edit>,
}

/// All mutants, by name.
pub fn read_all() -> Outcome<Vec<Mutant>> {
    let files = read_files("verify/mutants")?;
    files.into_iter().map(check).collect()
}

/// What the files `*.toml` of a directory of the workspace describe, with their names, by name.
pub fn read_files<T: DeserializeOwned>(directory: &str) -> Outcome<Vec<(String, T)>> {
    let entries = std::fs::read_dir(place::root().join(directory));
    let entries = entries.doing(format!("list {directory}"))?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|it| it == "toml"));
    files.sort();
    files.iter().map(read).collect()
}

fn read<T: DeserializeOwned>(file: &PathBuf) -> Outcome<(String, T)> {
    let name = file.file_stem().unwrap_or_default().to_string_lossy();
    let text = std::fs::read_to_string(file).doing(format!("read {name}.toml"))?;
    let described = toml::from_str(&text).doing(format!("understand {name}.toml"))?;
    Ok((name.into_owned(), described))
}

fn check((name, mutant): (String, Mutant)) -> Outcome<Mutant> {
    let id = &mutant.id;
    match mutant.killers.is_empty() || mutant.edits.is_empty() {
        _ if *id != name => Err(Failure::work(format!(
            "the mutant in {name}.toml calls itself {id}"
        ))),
        true => Err(Failure::work(format!(
            "the mutant {name} has no edit or no check that should notice it"
        ))),
        false => Ok(mutant),
    }
}

/// Those that were named, by their own names or by those of their rows; or all.
pub fn select(mut mutants: Vec<Mutant>, ids: &[String]) -> Outcome<Vec<Mutant>> {
    let has = |mutant: &Mutant, id: &String| mutant.id == *id || mutant.row.as_ref() == Some(id);
    let is_known = |id: &&String| mutants.iter().any(|mutant| has(mutant, id));
    if let Some(unknown) = ids.iter().find(|id| !is_known(id)) {
        return Err(Failure::input(
            format!("there is no mutant {unknown}"),
            "name files of verify/mutants, without .toml, or rows of docs/field-bugs.md",
        ));
    }
    mutants.retain(|mutant| ids.is_empty() || ids.iter().any(|id| has(mutant, id)));
    Ok(mutants)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_edit_applies_to_the_present_sources_exactly_once() {
        let mutants = read_all().unwrap();
        assert!(!mutants.is_empty());
        for mutant in &mutants {
            for edit in &mutant.edits {
                let text = std::fs::read_to_string(place::root().join(&edit.file))
                    .unwrap_or_else(|error| panic!("{}: {error}", mutant.id));
                let changed = edit
                    .apply(&text)
                    .unwrap_or_else(|failure| panic!("{}: {failure}", mutant.id));
                assert_ne!(changed, text, "{} changes nothing", mutant.id);
            }
        }
    }

    #[test]
    fn a_row_stands_for_its_mutants() {
        let all = read_all().unwrap();
        let of = |row: &str| {
            all.iter()
                .filter(|it| it.row.as_deref() == Some(row))
                .count()
        };
        let due = of("early-ack-tables");
        let chosen = select(read_all().unwrap(), &["early-ack-tables".into()]).unwrap();
        assert!(due > 1 && chosen.len() == due, "{} of {due}", chosen.len());
    }

    #[test]
    fn an_unknown_name_is_refused() {
        let failure = select(read_all().unwrap(), &["nobody".into()]).unwrap_err();
        let text = failure.to_string();
        assert!(text.starts_with("there is no mutant nobody: "), "{text}");
    }

    #[test]
    fn an_edit_that_applies_twice_is_refused() {
        let edit = Edit {
            file: "f".into(),
            find: "a".into(),
            replace: "b".into(),
        };
        assert_eq!(edit.apply("xay").unwrap(), "xby");
        assert!(edit.apply("aa").is_err() && edit.apply("x").is_err());
    }
}
