//! What the benches of the simulated machine print and write, byte for byte, against the files in `golden/`: a figure, a heading or a key that
//! changed shows here. So does a change that is meant, and its reviewer reads which lines it moved.

mod support;

use std::path::Path;

use support::Fixture;

/// Name of the files, and the words after `lab bench`: every workload, every part of its output, and as little work as that takes. (Long turns of
/// spin loops are few: with those of the preset, the 256 CPUs that `shoot` has idle and poll take three times as long as all
/// others together.)
const BENCHES: [(&str, &str); 12] = [
    (
        "madvise",
        "madvise --machine sim --threads 1,2 --pages 1,8 --set icr_ns=50",
    ),
    (
        "madvise-sweep",
        "madvise --machine sim --threads 2 --pages 1 --sweep --preset 40-core --cpus 4 --policies before,best",
    ),
    (
        "pingpong",
        "pingpong --machine sim --spaces 2,8 --pages 0,128 --seed 3",
    ),
    (
        "pingpong-sweep",
        "pingpong --machine sim --spaces 2 --pages 4 --sweep",
    ),
    (
        "preemptoff",
        "preemptoff --machine sim --quick --threads 2,4 --sweep --set tail_alpha=1.3",
    ),
    (
        "zerocopy",
        "zerocopy --quick --threads 1,4 --cpus 40 --set relay_ns=100",
    ),
    (
        "zerocopy-sweep",
        "zerocopy --quick --threads 2 --cpus 2 --preset 16-core --sweep --policies before,best",
    ),
    ("overcommit", "overcommit --quick --threads 8,16"),
    (
        "evacuate",
        "evacuate --machine sim --quick --cpus 16 --set guest_write_ns=2000",
    ),
    (
        "selected",
        "selected --quick --function-us 0,500 --cpus 24 --initiators 1,4 --targets 4 --calls 10",
    ),
    (
        "shoot",
        "shoot --quick --cpus 8 --targets 1,all --calls 3 --preset 16-core --set relax_ns=500 --lines",
    ),
    (
        "shoot-broadcasts",
        "shoot --quick --cpus 8 --targets 1,all --calls 2 --preset 16-core --peers best --set relax_ns=500 --set broadcast_ns=300",
    ),
];
/// The same without tables: a line for each case, and one for each condition.
const BRIEF: [(&str, &str); 2] = [
    (
        "brief",
        "madvise --machine sim --threads 1,2 --pages 1,8 --set icr_ns=50",
    ),
    (
        "brief-conditions",
        "selected --quick --function-us 0,500 --cpus 24 --initiators 1,4 --targets 4 --calls 10",
    ),
];
/// What the command line says of itself.
const HELP: [(&str, &str); 2] = [("help", "--help"), ("help-calls", "selected --help")];
/// Set, the test writes the files.
const UPDATE: &str = "SHOOTDOWN_UPDATE_GOLDEN";
/// At most so many changed lines are shown.
const LINES_SHOWN: usize = 10;

/// The lab's answer to the words, and the result that it writes.
fn run(words: &str) -> (String, String) {
    let fixture = Fixture::new();
    let path = fixture.file("result", b"");
    let words: Vec<&str> = ["bench"].into_iter().chain(words.split(' ')).collect();
    let answer = fixture.lab(&[&words[..], &["--json", &path]].concat());
    assert_eq!(answer.code, Some(0), "{words:?}: {answer:?}");
    let result = std::fs::read_to_string(path).unwrap();
    // The only field that depends on where and when; and an object a line, for people and their tools.
    let result = result.replace(r#""commit":"unknown","#, "");
    (answer.output, result.replace("},{", "},\n{"))
}

/// Which lines of a file differ, or nothing.
fn difference(name: &str, now: &str) -> Option<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("golden")
        .join(name);
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(&path, now).expect("the source folder can be written");
    }
    let before = std::fs::read_to_string(&path).unwrap_or_default();
    if before == now {
        return None;
    }
    let (old, new) = (before.lines().count(), now.lines().count());
    let mut changed: Vec<String> = before
        .lines()
        .zip(now.lines())
        .enumerate()
        .filter(|(_, (before, now))| before != now)
        .map(|(index, (before, now))| format!("line {}:\n- {before}\n+ {now}", index + 1))
        .collect();
    changed.truncate(LINES_SHOWN);
    Some(format!(
        "golden/{name} ({old} lines, now {new}):\n{}",
        changed.join("\n")
    ))
}

#[track_caller]
fn assert_unchanged(differences: &[String]) {
    assert!(
        differences.is_empty(),
        "the lab prints something else than before:\n{}\nIf that is meant, run this test with {UPDATE}=1 and commit tools/lab/golden",
        differences.join("\n")
    );
}

#[test]
fn simulated_benches_print_and_write_what_they_did() {
    let mut differences = Vec::new();
    for (name, words) in BENCHES {
        let (table, result) = run(&format!("{words} --tables"));
        differences.extend(difference(&format!("{name}.txt"), &table));
        differences.extend(difference(&format!("{name}.json"), &result));
    }
    assert_unchanged(&differences);
}

#[test]
fn without_tables_the_main_result_is_short() {
    let brief = |(name, words): &(&str, &str)| difference(&format!("{name}.txt"), &run(words).0);
    let differences: Vec<String> = BRIEF.iter().filter_map(brief).collect();
    assert_unchanged(&differences);
}

#[test]
fn the_help_is_what_it_was() {
    let help = |words: &str| {
        let words: Vec<&str> = ["bench"].into_iter().chain(words.split(' ')).collect();
        Fixture::new().lab(&words).output
    };
    let differences: Vec<String> = HELP
        .iter()
        .filter_map(|(name, words)| difference(&format!("{name}.txt"), &help(words)))
        .collect();
    assert_unchanged(&differences);
}
