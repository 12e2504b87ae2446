//! What consoles of booted machines once said goes through the whole of a bench again: rows, tables and result are those in `golden/booted`.
//!
//! A recording begins with the words of a bench. Before the lines of each boot (only those for programs, and a few of their samples) stands
//! `# group machine`, boots in the order of their numbers. They are lines of the files in `.lab/consoles`, which every bench leaves there.

use std::path::{Path, PathBuf};

use clap::Parser;
use serde_json::{Value, json};

use super::measure::{Heard, check_complete};
use super::merge::merge;
use super::plan::Plan;
use super::{live, report, table};
use crate::cli::{Bench, Cli, Command, MachineKind};
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

/// Tables and result of a program.
fn program(bench: &Bench, boots: &[Boot<'_>]) -> (String, Value) {
    let session = Session {
        qemu: "/nonexistent/qemu".into(),
        linux: Some("/nonexistent/linux".into()),
    };
    let plan = Plan::new(bench, &session).unwrap();
    let (mut rows, mut about) = (Vec::new(), None);
    for (index, group) in plan.groups.iter().enumerate() {
        let mut merged: Vec<Vec<_>> = Vec::new();
        for (_, machine, lines) in boots.iter().filter(|(of, _, _)| *of == index) {
            let kind = match *machine {
                "linux" => MachineKind::Linux,
                _ => MachineKind::Qemu,
            };
            let mut heard = Heard::of(kind);
            for line in lines {
                heard.listen(line, &mut Progress::new(), "");
            }
            assert_eq!(heard.garbled, None);
            let wanted = group.rows(bench, &plan.axes, kind);
            assert_eq!(check_complete(&heard.rows, &wanted, bench.workload), Ok(()));
            if kind == MachineKind::Qemu {
                about = heard.about;
                merged.push(heard.rows);
            } else {
                merged.last_mut().expect("ours is first").extend(heard.rows);
            }
        }
        rows.extend(merge(merged, &group.setting(), bench.workload));
    }
    let tables = table::render(bench, &plan, &rows, about.as_ref(), None);
    let result = report::result(bench, &session, &plan, &rows, about.as_ref(), None);
    (tables, result)
}

/// Which file a recording does not lead to any more, if any.
fn changed(path: &Path) -> Option<String> {
    let recording = std::fs::read_to_string(path).unwrap();
    let words = recording.lines().next().unwrap().trim_start_matches("# ");
    let words = ["lab"].into_iter().chain(words.split(' '));
    let Command::Bench(bench) = Cli::parse_from(words).command else {
        panic!("a bench");
    };
    let bench = bench.settle();
    let boots = boots(&recording);
    let (tables, mut result) = match &bench.calls {
        None => program(&bench, &boots),
        Some(calls) => live::recorded(calls, boots.into_iter().map(|(_, _, lines)| lines)),
    };
    for key in ["commit", "date"] {
        result[key] = json!(null);
    }
    let result = result.to_string().replace("},{", "},\n{");
    [("txt", tables), ("json", result)]
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
