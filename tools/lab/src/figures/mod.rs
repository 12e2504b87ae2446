//! `lab figures`: the tables of the documents, made from what benches print.
//!
//! A file `docs/figures/NAME.toml` says which bench is run and what of its rows a table shows ([`figure`]). What the table needs of the
//! result is kept in `NAME.json` beside it ([`record`]). The table stands in a document between marks ([`document`]); its rows may be
//! drawn as well ([`plot`]).

mod document;
mod figure;
mod plot;
mod record;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use self::document::Document;
use self::figure::Figure;
use self::record::{Results, read, write};
use crate::cli::Figures;
use crate::failure::{Doing, Failure, Outcome};
use crate::mutants::read_files;
use crate::place;

/// Where descriptions and records are.
const DIRECTORY: &str = "docs/figures";
/// Where drawings are.
const PLOTS: &str = "docs/plots";

/// Runs the benches of the figures that were named, or of all on the simulated machine; writes records and tables.
///
/// # Errors
/// A name is unknown (exit code 2), a bench failed, or with `--check` something is not as a fresh run has it.
pub fn command(arguments: &Figures) -> Outcome<()> {
    let all = figures()?;
    let known = |name: &&String| !all.contains_key(*name);
    if let Some(name) = arguments.names.iter().find(known) {
        let names: Vec<&str> = all.keys().map(String::as_str).collect();
        return Err(Failure::input(
            format!("there is no figure {name}"),
            format!("name one of {}", names.join(", ")),
        ));
    }
    let is_due = |(name, figure): &(&String, &Figure)| match &arguments.names[..] {
        [] => !figure.is_timed_by_host,
        names => names.contains(name),
    };
    let due: Vec<_> = all.iter().filter(is_due).collect();
    if arguments.check {
        compare_tables(&all)?;
        compare_records(&due)?;
        println!("{} figures as their benches print them", due.len());
        return Ok(());
    }
    make(&all, &due)
}

/// Compares the records with a fresh run, but for those that take minutes.
///
/// # Errors
/// Says which record is not as it should be.
pub fn check_quick_records() -> Outcome<()> {
    let all = figures()?;
    let quick = all
        .iter()
        .filter(|(_, it)| !it.is_timed_by_host && !it.takes_minutes);
    compare_records(&quick.collect::<Vec<_>>())
}

/// All, by name.
fn figures() -> Outcome<BTreeMap<String, Figure>> {
    Ok(read_files(DIRECTORY)?.into_iter().collect())
}

/// Runs benches, and writes what came of them.
fn make(all: &BTreeMap<String, Figure>, due: &[(&String, &Figure)]) -> Outcome<()> {
    let mut results = Results::new(due);
    for (name, figure) in due {
        write(name, &figure.record(results.of(&figure.command)?)?)?;
    }
    drop(results);
    let (tables, drawings) = rendered(all)?;
    for document in documents()? {
        document.replace(&tables)?;
    }
    std::fs::create_dir_all(place::root().join(PLOTS)).doing(format!("make {PLOTS}"))?;
    for (path, drawn) in drawings {
        std::fs::write(&path, drawn).doing(format!("write {}", path.display()))?;
    }
    println!(
        "{} figures made; see what changed with  git diff",
        due.len()
    );
    Ok(())
}

/// Compares the tables of the documents with their records, and says how many there are. Runs no bench.
///
/// # Errors
/// Says which table is not as recorded, or stands nowhere.
pub fn check_tables() -> Outcome<usize> {
    let all = figures()?;
    compare_tables(&all)?;
    Ok(all.len())
}

/// Compares the records of the simulated machine with a fresh run.
fn compare_records(due: &[(&String, &Figure)]) -> Outcome<()> {
    let mut results = Results::new(due);
    let mut differ = Vec::new();
    for (name, figure) in due.iter().filter(|(_, it)| !it.is_timed_by_host) {
        if figure.record(results.of(&figure.command)?)? != read(name)? {
            differ.push(name.as_str());
        }
    }
    match &differ[..] {
        [] => Ok(()),
        names => Err(Failure::work(format!(
            "what these figures have in {DIRECTORY} is not what their benches print today: run  ./lab figures {}",
            names.join(" ")
        ))),
    }
}

fn compare_tables(all: &BTreeMap<String, Figure>) -> Outcome<()> {
    let (tables, drawings) = rendered(all)?;
    let mut shown = BTreeSet::new();
    for document in documents()? {
        shown.extend(document.check(&tables)?);
    }
    if let Some(name) = all.keys().find(|name| !shown.contains(*name)) {
        return Err(Failure::work(format!(
            "no document shows the figure {name}"
        )));
    }
    for (path, drawn) in &drawings {
        if std::fs::read_to_string(path).unwrap_or_default() != *drawn {
            let (shown, name) = (path.display(), path.file_stem().unwrap_or_default());
            return Err(Failure::work(format!(
                "{shown} is not as its record has it: run  ./lab figures {}",
                name.display()
            )));
        }
    }
    let drawn = drawings.into_iter().map(|(path, _)| path).collect();
    refuse_surplus(PLOTS, "svg", &drawn)?;
    let recorded = all.keys().map(|name| record::path(name)).collect();
    refuse_surplus(DIRECTORY, "json", &recorded)
}

/// An error for a file of a directory that has this extension and is none of these.
fn refuse_surplus(directory: &str, extension: &str, wanted: &BTreeSet<PathBuf>) -> Outcome<()> {
    let mut paths = Vec::new();
    collect(&place::root().join(directory), extension, &mut paths)?;
    match paths.iter().find(|path| !wanted.contains(*path)) {
        None => Ok(()),
        Some(path) => Err(Failure::work(format!(
            "{} belongs to no figure: remove it",
            path.display()
        ))),
    }
}

/// By name, what stands between marks.
type Tables = BTreeMap<String, String>;
/// The files that drawings are kept in, and what they hold.
type Drawings = Vec<(PathBuf, String)>;

/// What stands between the marks of each figure, and the drawings.
fn rendered(all: &BTreeMap<String, Figure>) -> Outcome<(Tables, Drawings)> {
    let (mut tables, mut drawings) = (Tables::new(), Drawings::new());
    for (name, figure) in all {
        let record = read(name)?;
        tables.insert(name.clone(), figure.render(&record)?);
        if let Some(drawn) = figure.svg(&record)? {
            let path = place::root().join(PLOTS).join(format!("{name}.svg"));
            drawings.push((path, drawn));
        }
    }
    Ok((tables, drawings))
}

/// README and all of `docs`.
fn documents() -> Outcome<Vec<Document>> {
    let root = place::root();
    let mut paths = vec![root.join("README.md")];
    collect(&root.join("docs"), "md", &mut paths)?;
    paths.into_iter().map(Document::read).collect()
}

/// Adds the files of a directory that have this extension, with those below it.
fn collect(directory: &Path, extension: &str, paths: &mut Vec<PathBuf>) -> Outcome<()> {
    let entries = std::fs::read_dir(directory).doing(format!("list {}", directory.display()))?;
    let mut entries: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    entries.sort();
    for path in entries {
        match path.is_dir() {
            true => collect(&path, extension, paths)?,
            false if path.extension().is_some_and(|it| it == extension) => paths.push(path),
            false => {}
        }
    }
    Ok(())
}
