//! `lab footprint --mechanisms`: what each mechanism of the engine takes in lines and instructions, and what is lost without it.
//!
//! A file of `verify/mechanisms` names its code and the edits that switch it off; what is left is as right as before. It is built and measured in the copy of
//! the workspace that mutants use: on this host's cores, the whole engine and the other one by turns, and in situations of the simulated machine.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use serde::Deserialize;
use serde_json::{Value, json};

use super::{build, count, numbers};
use crate::bench::{Row, grid, report};
use crate::cargo;
use crate::cli::Footprint;
use crate::failure::{Doing, Failure, Outcome};
use crate::machine::Child;
use crate::mutants::{Copy, Edit, Scratch, read_files};
use crate::place;
use crate::progress::Progress;

/// A mechanism of the engine.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Mechanism {
    /// What it does.
    does: String,
    /// Its code: files, or items of files behind a colon.
    code: Vec<String>,
    /// The situation that it was made for.
    made_for: Option<String>,
    /// The document that shows what it wins where no situation does.
    shown_by: Option<String>,
    /// The changes that switch it off; none if it takes no part where it is not used.
    #[serde(default)]
    edits: Vec<Edit>,
}

/// Processes of each engine on cores, by turns.
const TURNS: usize = 9;
/// What each of them measures.
const MEASURED: [&str; 5] = [
    "--operations=plain-calls,flushes",
    "--pages=1",
    "--rounds=3",
    "--calls=500",
    "--interrupt=0",
];
/// Operations on cores that the table shows, as rows name them.
const ON_CORES: [&str; 3] = ["call 1", "all call all", "flush 1 page"];
/// A change of so little is none.
const LEVEL: f64 = 0.02;

/// What one engine took.
struct Taken {
    /// Instructions of a call and of a flush.
    instructions: [i64; 2],
    /// Virtual nanoseconds, by situation.
    situations: BTreeMap<String, f64>,
}

/// Prints the table of all mechanisms, or of those that are named.
///
/// # Errors
/// A mechanism is not known, an edit does not apply, or what is left does not build or does not do what it should.
pub fn command(arguments: &Footprint) -> Outcome<ExitCode> {
    let mut all: Vec<(String, Mechanism)> = read_files("verify/mechanisms")?;
    let names = &arguments.names;
    if let Some(name) = names
        .iter()
        .find(|name| all.iter().all(|it| it.0 != **name))
    {
        return Err(Failure::input(
            format!("there is no mechanism {name}"),
            "use the names of the files in verify/mechanisms",
        ));
    }
    all.retain(|(name, _)| names.is_empty() || names.contains(name));
    let mut progress = Progress::new();
    let scratch = Scratch::open()?;
    let copy = scratch.copy(0)?;
    let total = all.len() as u64 + 1;
    progress.step(0, total, "the engine as it is");
    let (whole, whole_cores) = measure(&copy, &[], "cores-whole")?;
    let mut rows = Vec::new();
    // Cores are measured when all is built, so that no build is beside them.
    let mut programs = Vec::new();
    for (done, (name, mechanism)) in all.iter().enumerate() {
        progress.step(done as u64, total, name);
        let lines = lines_of(&mechanism.code)?;
        let mut row = json!({
            "mechanism": name, "does": mechanism.does, "lines": lines, "made_for": mechanism.made_for,
            "shown_by": mechanism.shown_by,
        });
        if !mechanism.edits.is_empty() {
            let kept = format!("cores-without-{name}");
            let (without, cores) = measure(&copy, &mechanism.edits, &kept)?;
            programs.push((rows.len(), cores));
            for (index, operation) in ["call", "flush"].iter().enumerate() {
                let change = whole.instructions[index] - without.instructions[index];
                row[format!("{operation}_instructions")] = change.into();
            }
            let ratios = without.situations.iter();
            let ratios: BTreeMap<&String, f64> = ratios
                .map(|(name, ns)| (name, ns / whole.situations[name]))
                .collect();
            summarize(&mut row, &ratios);
            row["situations"] = json!(ratios);
        }
        rows.push(row);
    }
    progress.step(total - 1, total, "cores");
    for (row, without) in &programs {
        rows[*row]["cores"] = on_cores(&whole_cores, without)?;
    }
    rows.iter_mut().for_each(describe);
    let engine = lines_of(&["crates/shootdown/src".to_owned()])?;
    let result = json!({
        "workload": "mechanisms", "date": place::timestamp(), "commit": place::commit(), "engine_lines": engine,
        "rows": rows,
    });
    report::write(arguments.json.as_deref(), &result)?;
    drop(progress);
    print(&rows, engine);
    scratch.remove().map(|()| ExitCode::SUCCESS)
}

/// Adds what matters of the ratios without the mechanism to with it.
fn summarize(row: &mut Value, ratios: &BTreeMap<&String, f64>) {
    let own = row["made_for"].as_str().map(str::to_owned);
    let own = own.and_then(|own| ratios.get(&own).copied());
    row["made_for_ratio"] = own.into();
    let by_ratio = |one: &(&&String, &f64), other: &(&&String, &f64)| one.1.total_cmp(other.1);
    let (most, least) = (
        ratios.iter().max_by(by_ratio),
        ratios.iter().min_by(by_ratio),
    );
    let most = most.filter(|(_, ratio)| **ratio >= 1.0 + LEVEL);
    let least = least.filter(|(_, ratio)| **ratio <= 1.0 - LEVEL);
    for (key, found) in [("loses", most), ("gains", least)] {
        row[format!("{key}_in")] = found.map(|(name, _)| name.as_str()).into();
        row[format!("{key}_ratio")] = found.map(|(_, ratio)| *ratio).into();
    }
}

/// Builds the copy with these edits: what it took, and the program that measures it on cores.
fn measure(copy: &Copy, edits: &[Edit], kept: &str) -> Outcome<(Taken, PathBuf)> {
    copy.with_edits(edits, || {
        let counts = count(copy)?;
        let program = build(
            copy,
            "-p shootdown-sim --features two-sizes --example situations",
        )?;
        let child = Child::succeed(&mut Command::new(program), cargo::BUILD_DEADLINE)?;
        let program = build(copy, "-p shootdown-cores")?;
        let cores = copy.path.join(kept);
        std::fs::copy(program, &cores).doing("keep what measures on cores")?;
        let taken = Taken {
            instructions: [counts["best"], counts["flush"]],
            situations: numbers(&child.output)?,
        };
        Ok((taken, cores))
    })
}

/// How long the engine takes by Linux's algorithm in the same process: one list a placement and operation.
type ByLinux = BTreeMap<(String, String), Vec<f64>>;

/// The ratios of the engine without a mechanism to the whole one, by placement and operation, where both were measured.
fn on_cores(whole: &PathBuf, without: &PathBuf) -> Outcome<Value> {
    let mut both = [ByLinux::new(), ByLinux::new()];
    for _ in 0..TURNS {
        for (program, found) in [whole, without].into_iter().zip(&mut both) {
            let mut command = Command::new(program);
            let child = Child::succeed(command.args(MEASURED), cargo::BUILD_DEADLINE)?;
            add(found, &Row::all_of(&child.output)?);
        }
    }
    let [whole, without] = both;
    let mut ratios = serde_json::Map::new();
    for ((placement, operation), of_whole) in whole {
        let Some(of_other) = without.get(&(placement.clone(), operation.clone())) else {
            continue;
        };
        // A process settles in one of two places, by where its memory lies: the better one, which nine find, is what the code can do.
        let least = |list: &[f64]| list.iter().copied().fold(f64::INFINITY, f64::min);
        let ratio = least(of_other) / least(&of_whole);
        ratios.insert(format!("{placement}, {operation}"), ratio.into());
    }
    Ok(ratios.into())
}

fn add(found: &mut ByLinux, rows: &[Row]) {
    for row in rows.iter().filter(|row| row.text("peer") == "best") {
        let is_beside = |other: &&Row| row.agrees(other, &["placement", "operation"]);
        let mut beside = rows.iter().filter(is_beside);
        let linux = beside.find(|other| other.text("peer") == "linux");
        let cycles = |row: &Row| row.number("median_cycles");
        if let (Some(best), Some(linux)) = (cycles(row), linux.and_then(cycles)) {
            let key = ["placement", "operation"].map(|key| row.text(key).to_owned());
            found.entry(key.into()).or_default().push(best / linux);
        }
    }
}

/// Where the CPUs may be, in the order of the table.
const PLACEMENTS: [&str; 3] = ["far", "shared cache", "near"];

/// Cells of the table, by the key that a row has them under: headings.
const COLUMNS: [(&str, &str); 10] = [
    ("mechanism", "mechanism"),
    ("lines", "lines"),
    ("instructions", "call, flush"),
    ("cores_call", "call on cores"),
    ("cores_both", "both call"),
    ("cores_flush", "flush"),
    ("own", "made for"),
    ("most_lost", "most lost"),
    ("most_gained", "most gained"),
    ("does", "what it does"),
];

/// Adds what people read to a row.
fn describe(row: &mut Value) {
    let ratio = |value: &Value| {
        value
            .as_f64()
            .map_or(String::new(), |it| format!("{it:.2}"))
    };
    let instructions = |operation: &str| {
        let change = row[format!("{operation}_instructions")].as_i64();
        change.map_or(String::new(), |it| format!("{it:+}"))
    };
    let pair = |[one, other]: [String; 2], between: &str| match one.is_empty() && other.is_empty() {
        true => String::new(),
        false => format!("{one}{between}{other}"),
    };
    let on_cores = |operation: &str| {
        let of = |placement: &str| ratio(&row["cores"][format!("{placement}, {operation}")]);
        let cells = PLACEMENTS.map(of);
        match cells.iter().all(String::is_empty) {
            true => String::new(),
            false => cells.join(" / "),
        }
    };
    let [call, both, flush] = ON_CORES.map(on_cores);
    let found = |key: &str, ratio_key: &str| {
        let name = row[key].as_str().unwrap_or_default().to_owned();
        pair([ratio(&row[ratio_key]), name], " ").trim().to_owned()
    };
    let own = match row["shown_by"].as_str() {
        Some(document) => format!("see {document}"),
        None => found("made_for", "made_for_ratio"),
    };
    let cells = [
        (
            "instructions",
            pair(["call", "flush"].map(instructions), ", "),
        ),
        ("cores_call", call),
        ("cores_both", both),
        ("cores_flush", flush),
        ("own", own),
        ("most_lost", found("loses_in", "loses_ratio")),
        ("most_gained", found("gains_in", "gains_ratio")),
    ];
    for (key, cell) in cells {
        row[key] = cell.into();
    }
}

fn print(rows: &[Value], engine: usize) {
    let cell = |row: &Value, key: &str| match &row[key] {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let cells = rows
        .iter()
        .map(|row| COLUMNS.iter().map(|(key, _)| cell(row, key)).collect());
    println!(
        "lines and instructions of each; and how many times as long the engine takes without it"
    );
    let headings = COLUMNS.map(|(_, heading)| heading);
    println!("{}", grid(headings, cells.collect(), |column| column != 1));
    println!(
        "cores: {}, each by Linux's algorithm in the same process; the rest on the simulated machine",
        PLACEMENTS.join(" / ")
    );
    println!(
        "the engine has {engine} lines of code that a kernel links, without comments and tests"
    );
}

/// Prints the lines of the engine that a kernel links, and those of each mechanism.
///
/// # Errors
/// A file cannot be read.
pub fn lines(arguments: &Footprint) -> Outcome<ExitCode> {
    let mut rows = Vec::new();
    for (name, mechanism) in read_files::<Mechanism>("verify/mechanisms")? {
        rows.push(json!({
            "mechanism": name, "does": mechanism.does, "lines": lines_of(&mechanism.code)?,
            "switch": if mechanism.edits.is_empty() { "no" } else { "yes" },
        }));
    }
    let engine = lines_of(&["crates/shootdown/src".to_owned()])?;
    let result = json!({"workload": "lines", "engine_lines": engine, "rows": rows});
    report::write(arguments.json.as_deref(), &result)?;
    let keys = ["mechanism", "lines", "switch", "does"];
    let cells = rows.iter().map(|row| {
        let cell = |key: &str| {
            row[key]
                .as_str()
                .map_or_else(|| row[key].to_string(), str::to_owned)
        };
        keys.iter().map(|key| cell(key)).collect()
    });
    println!("{}", grid(keys, cells.collect(), |column| column == 1));
    println!(
        "the engine has {engine} lines of code that a kernel links, without comments and tests"
    );
    Ok(ExitCode::SUCCESS)
}

/// Lines of code in these files, directories, and items of files.
fn lines_of(places: &[String]) -> Outcome<usize> {
    let mut sum = 0;
    for one in places {
        let (path, item) = match one.split_once(':') {
            Some((path, item)) => (path, Some(item)),
            None => (one.as_str(), None),
        };
        let path = place::root().join(path);
        for file in files(path)? {
            let text = std::fs::read_to_string(&file).doing(format!("read {one}"))?;
            let code = code(&text);
            sum += match item {
                None => code.len(),
                Some(item) => item_lines(&code, item)
                    .ok_or_else(|| Failure::work(format!("there is no {one}")))?,
            };
        }
    }
    Ok(sum)
}

/// The file, or the source files of the directory, without those that are tests.
fn files(path: PathBuf) -> Outcome<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path]);
    }
    let entries = std::fs::read_dir(&path).doing("list a directory of the engine")?;
    let mut found = Vec::new();
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.ends_with("_tests.rs") && !name.ends_with("_models.rs") {
            found.extend(files(entry.path())?);
        }
    }
    // A module that only checks have is one of their files.
    let mut of_checks = Vec::new();
    for file in &found {
        let text = std::fs::read_to_string(file).doing("read a file of the engine")?;
        let modules = split(&text).1.into_iter();
        let names = modules.filter_map(|line| line.strip_suffix(';')?.split(" mod ").nth(1));
        of_checks.extend(names.map(|name| file.with_extension("").join(format!("{name}.rs"))));
    }
    found.retain(|file| !of_checks.contains(file));
    Ok(found)
}

/// The lines that a kernel links: no comments, no tests, and nothing that only the simulator or loom has.
fn code(text: &str) -> Vec<&str> {
    split(text).0
}

/// The lines of code that a kernel links, and those that only the simulator and loom have. A module of tests ends its file.
fn split(text: &str) -> (Vec<&str>, Vec<&str>) {
    let is_test = |line: &&str| line.starts_with("#[cfg(") && line.contains("test");
    let code = text.lines().take_while(|line| !is_test(line));
    let is_code = |line: &&str| {
        let line = line.trim_start();
        !line.is_empty() && !line.starts_with("//")
    };
    let (mut linked, mut of_checks, mut depth) = (Vec::new(), Vec::new(), None);
    for line in code.filter(is_code) {
        let begins = depth.is_none() && is_for_checks(line);
        if begins {
            depth = Some(indent(line));
        }
        match depth {
            None => linked.push(line),
            Some(_) => of_checks.push(line),
        }
        let is_attribute = line.trim_start().starts_with("#[");
        if !is_attribute && depth.is_some_and(|depth| ends_item(line, depth)) {
            depth = None;
        }
    }
    (linked, of_checks)
}

/// Whether the item behind this attribute is there for the simulator or loom only.
fn is_for_checks(line: &str) -> bool {
    let condition = line.trim_start().strip_prefix("#[cfg(").unwrap_or_default();
    let negations = [
        "not(any(loom, feature = \"sim\"))",
        "not(loom)",
        "not(feature = \"sim\")",
    ];
    let rest = negations
        .iter()
        .fold(condition.to_owned(), |rest, it| rest.replace(it, ""));
    rest.contains("loom") || rest.contains("\"sim\"")
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// Whether an item that begins at this depth ends with this line.
fn ends_item(line: &str, depth: usize) -> bool {
    indent(line) == depth && (line.trim_start().starts_with('}') || line.ends_with([';', '}', ',']))
}

/// The lines of the function, type or constant with this name.
fn item_lines(code: &[&str], name: &str) -> Option<usize> {
    let is_it = |line: &&str| {
        let words: Vec<&str> = line
            .split(|it: char| !it.is_alphanumeric() && it != '_')
            .filter(|word| !word.is_empty())
            .collect();
        let kinds = ["fn", "struct", "enum", "const", "static", "trait"];
        words
            .windows(2)
            .any(|pair| kinds.contains(&pair[0]) && pair[1] == name)
    };
    let first = code.iter().position(is_it)?;
    let depth = indent(code[first]);
    let last = code[first..]
        .iter()
        .position(|line| ends_item(line, depth))?;
    Some(last + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mechanism_has_code_and_its_edits_apply() {
        let all: Vec<(String, Mechanism)> = read_files("verify/mechanisms").unwrap();
        assert!(!all.is_empty());
        for (name, mechanism) in &all {
            assert!(lines_of(&mechanism.code).unwrap() > 0, "{name} has no code");
            let is_shown = mechanism.made_for.is_some() || mechanism.shown_by.is_some();
            assert!(is_shown, "{name} says nowhere what it wins");
            assert!(
                mechanism.made_for.is_none() || !mechanism.edits.is_empty(),
                "{name}"
            );
            for edit in &mechanism.edits {
                let path = place::root().join(&edit.file);
                let text = std::fs::read_to_string(path).unwrap();
                edit.apply(&text)
                    .unwrap_or_else(|it| panic!("{name}: {it}"));
            }
        }
    }

    #[test]
    fn code_is_counted_without_comments_and_tests() {
        let text = "//! A.\n\nconst A: u64 = 1;\n/// B.\nfn b() {\n    // C.\n    c();\n}\n#[cfg(test)]\nmod tests {\n}\n";
        let code = code(text);
        assert_eq!(code.len(), 4);
        assert_eq!(item_lines(&code, "b"), Some(3));
        assert_eq!(item_lines(&code, "A"), Some(1));
        assert_eq!(item_lines(&code, "c"), None);
    }

    #[test]
    fn what_only_checks_have_is_not_counted() {
        let text = "#[cfg(all(feature = \"sim\", not(loom)))]\npub(crate) mod line;\n#[cfg(not(loom))]\nconst A: u64 = 1;\nstruct B {\n    #[cfg(loom)]\n    used: u64,\n    next: u64,\n}\n    #[cfg(feature = \"sim\")]\n    fn c(\n    ) {\n        d();\n    }\n#[cfg(not(any(loom, feature = \"sim\")))]\nuse e;\n";
        let (linked, of_checks) = split(text);
        assert_eq!(
            linked,
            [
                "#[cfg(not(loom))]",
                "const A: u64 = 1;",
                "struct B {",
                "    next: u64,",
                "}",
                "#[cfg(not(any(loom, feature = \"sim\")))]",
                "use e;"
            ]
        );
        assert_eq!(of_checks.len(), 2 + 2 + 5);
    }

    #[test]
    fn what_is_lost_and_gained_is_told_and_a_level_one_is_not() {
        let names = ["a", "b", "c"].map(str::to_owned);
        let ratios = BTreeMap::from([(&names[0], 1.5), (&names[1], 0.9), (&names[2], 1.01)]);
        let mut row = json!({"made_for": "c"});
        summarize(&mut row, &ratios);
        assert_eq!(row["made_for_ratio"], 1.01);
        assert_eq!(
            (&row["loses_in"], &row["gains_in"]),
            (&json!("a"), &json!("b"))
        );
        let mut row = json!({});
        summarize(&mut row, &BTreeMap::from([(&names[2], 1.01)]));
        assert!(row["loses_in"].is_null() && row["gains_in"].is_null());
    }
}
