//! What consoles of booted machines once said goes through the whole of a bench again: rows, tables and result are those in `golden/booted`.
//!
//! A recording begins with the words of a bench. Before the lines of each boot (only those for programs, and a few of their samples) stands
//! `# group machine`, boots in the order of their numbers. They are lines of the files in `.lab/consoles`, which every bench leaves there.

use std::path::{Path, PathBuf};

use serde_json::json;

use super::contest::ContestPlan;
use super::machine::Heard;
use super::plan::{Found, Plan, View};
use super::program::ProgramPlan;
use super::row::Row;
use crate::cli::Bench;
use crate::cli::tests::bench;
use crate::progress::Progress;
use crate::session::Session;

/// Set, the test writes the files.
const UPDATE: &str = "SHOOTDOWN_UPDATE_GOLDEN";

/// One boot: the number of its group, its machine, its lines.
type Boot<'a> = (usize, &'a str, Vec<&'a str>);

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/booted")
}

fn boots(recording: &str) -> Vec<Boot<'_>> {
    let mut boots: Vec<Boot<'_>> = Vec::new();
    for line in recording.lines().skip(1) {
        match line
            .strip_prefix("# ")
            .and_then(|head| head.split_once(' '))
        {
            Some((group, machine)) => boots.push((group.parse().unwrap(), machine, Vec::new())),
            None => boots.last_mut().expect("a boot").2.push(line),
        }
    }
    boots
}

/// What becomes of the boots of a bench.
fn replay(plan: &dyn Plan, boots: &[Boot<'_>]) -> View {
    let mut found = Found::default();
    let has_ours = boots.iter().any(|(_, machine, _)| *machine != "linux");
    for (group, starts) in plan.groups().iter().enumerate() {
        let mut rows: Vec<Vec<Row>> = Vec::new();
        for (_, machine, lines) in boots.iter().filter(|(of, _, _)| *of == group) {
            // Ours is first, if it is there.
            let index = usize::from(has_ours && *machine == "linux");
            let mut heard = Heard::of(&starts[index]);
            for line in lines {
                heard.listen(line, &mut Progress::new(), "");
            }
            assert_eq!(heard.garbled, None);
            plan.check(group, index, &heard.rows).unwrap();
            if index == 0 {
                rows.push(Vec::new());
            }
            found.take(heard, rows.last_mut().expect("ours"));
        }
        found.groups.push(rows);
    }
    plan.view(found)
}

/// The plan of a bench on a host where nothing is asked but what the words say.
fn plan(bench: &Bench) -> Box<dyn Plan + '_> {
    let session = Session {
        qemu: "/nonexistent/qemu".into(),
        linux: Some("/nonexistent/linux".into()),
        flavour: crate::cargo::Flavour::Plain,
    };
    match bench.calls() {
        Some(calls) => Box::new(ContestPlan::new(calls).unwrap()),
        None => Box::new(ProgramPlan::new(bench, session).unwrap()),
    }
}

/// Which file a recording does not lead to any more, if any.
fn changed(path: &Path) -> Option<String> {
    let recording = std::fs::read_to_string(path).unwrap();
    let words = recording.lines().next().unwrap().trim_start_matches("# ");
    let bench = bench(words.trim_start_matches("bench "));
    let View {
        remarks,
        mut tables,
        mut result,
        ..
    } = replay(&*plan(&bench), &boots(&recording));
    if bench.calls().is_some() {
        // The recordings know no threads.
        tables = tables
            .replace("tcg,thread=single", "tcg")
            .replace("tcg,thread=multi", "tcg");
        for group in result["groups"].as_array_mut().unwrap() {
            group["accel"] = json!("tcg");
        }
    }
    for key in ["commit", "date"] {
        result[key] = json!(null);
    }
    let said = crate::report::summary(&result).unwrap_or_default() + &remarks + &tables;
    let result = result.to_string().replace("},{", "},\n{");
    [("txt", said), ("json", result)]
        .into_iter()
        .find_map(|(extension, now)| {
            let path = path.with_extension(extension);
            if std::env::var_os(UPDATE).is_some() {
                std::fs::write(&path, &now).unwrap();
            }
            let before = std::fs::read_to_string(&path).unwrap_or_default();
            let mut lines = before.lines().zip(now.lines());
            let first = lines.find(|(before, now)| before != now);
            let (before_line, now_line) = first.unwrap_or(("its end", "another one"));
            (before != now).then(|| format!("{}:\n- {before_line}\n+ {now_line}", path.display()))
        })
}

#[test]
fn recorded_consoles_lead_to_the_same_tables_and_results() {
    let files = std::fs::read_dir(directory()).unwrap();
    let files = files.map(|file| file.unwrap().path());
    let recordings = files.filter(|path| path.extension().is_some_and(|e| e == "console"));
    let recordings: Vec<PathBuf> = recordings.collect();
    assert!(!recordings.is_empty(), "they are part of the source");
    let changed: Vec<String> = recordings.iter().filter_map(|path| changed(path)).collect();
    assert!(
        changed.is_empty(),
        "{}\nIf that is meant, run this test with {UPDATE}=1 and commit tools/lab/golden",
        changed.join("\n")
    );
}
