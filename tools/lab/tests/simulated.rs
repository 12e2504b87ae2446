//! `bench --machine sim`: the same words, the same bytes; and mistakes named in one line.

mod support;

use support::{Answer, Fixture};

/// The table of T1 and nothing that takes long.
const SMALL: [&str; 6] = ["bench", "madvise", "--machine", "sim", "--pages", "1"];

fn small(fixture: &Fixture, words: &[&str]) -> Answer {
    fixture.lab(&[&SMALL[..], words].concat())
}

#[test]
fn the_same_seed_prints_and_writes_the_same_bytes() {
    let fixture = Fixture::new();
    let (first, second) = (fixture.file("first", b""), fixture.file("second", b""));
    let one = small(&fixture, &["--json", &first, "--seed", "7"]);
    let other = small(&fixture, &["--json", &second, "--seed", "7"]);
    assert_eq!((one.code, one.errors.as_str()), (Some(0), ""), "{one:?}");
    assert_eq!(one.output, other.output);
    let (first, second) = (
        std::fs::read(first).unwrap(),
        std::fs::read(second).unwrap(),
    );
    assert_eq!(first, second);
    let result: serde_json::Value = serde_json::from_slice(&first).unwrap();
    assert_eq!(
        (&result["machine"], &result["workload"]),
        (&"sim".into(), &"madvise".into())
    );
    assert_eq!(result["rows"].as_array().unwrap().len(), 9);
    assert_eq!(result["params"]["figures"]["icr_ns"]["origin"], "assumed");
    for key in ["accel", "cpus", "commit"] {
        assert!(!result[key].is_null(), "{key}");
    }
    for row in result["rows"].as_array().unwrap() {
        assert_eq!(row["stale"], 0);
        let figure = |name: &str| row[name].as_f64().expect(name);
        assert!(figure("median_ns") > 600.0);
        assert!(0.0 < figure("call_median_ns") && figure("call_median_ns") < figure("median_ns"));
        assert!(figure("call_median_ns") <= figure("call_p99_ns") && figure("call_ratio") > 0.0);
    }
}

#[test]
fn the_table_stands_beside_what_was_published_and_says_where_figures_come_from() {
    let answer = small(&Fixture::new(), &[]);
    for words in [
        "published ns",
        "call ns",
        "call / before",
        "1436",
        "1070",
        "FD.io CSIT",
        "fitted",
        "--sweep",
        "stale accesses: 0",
    ] {
        assert!(
            answer.output.contains(words),
            "no {words:?} in {}",
            answer.output
        );
    }
}

#[test]
fn without_qemu_the_built_in_machine_runs_and_says_so() {
    let fixture = Fixture::new();
    let answer = fixture.lab_alone(&["bench", "--pages", "1", "--threads", "2"]);
    assert_eq!(answer.code, Some(0), "{answer:?}");
    assert!(answer.output.contains("simulated machine"), "{answer:?}");
    let said = answer.errors + &answer.output;
    assert!(said.contains("no QEMU here"), "{said}");
    assert!(said.contains("apt-get install"), "{said}");
    let wanted = fixture.lab_alone(&["bench", "--machine", "qemu"]);
    assert_eq!(wanted.code, Some(2), "{wanted:?}");
}

#[test]
fn another_machine_is_not_compared_with_what_was_published() {
    let answer = small(&Fixture::new(), &["--preset", "40-core", "--threads", "2"]);
    assert_eq!(answer.code, Some(0), "{answer:?}");
    assert!(!answer.output.contains("1436"), "{answer:?}");
    assert!(answer.output.contains("no figure was fitted"), "{answer:?}");
}

#[test]
fn a_figure_that_is_set_changes_the_table_and_is_marked() {
    let fixture = Fixture::new();
    let words = ["--threads", "2", "--set", "icr_ns=5000"];
    let answer = small(&fixture, &words);
    assert!(answer.output.contains("on the command line"), "{answer:?}");
    assert_ne!(answer.output, small(&fixture, &words[..2]).output);
}

#[test]
fn a_sweep_says_between_what_the_ratios_move() {
    let answer = small(&Fixture::new(), &["--threads", "2", "--sweep"]);
    assert_eq!(answer.code, Some(0), "{answer:?}");
    for words in [
        "sensitivity, 2 threads",
        "published / before: ",
        "best / before: ",
        "no effect here: ",
    ] {
        assert!(
            answer.output.contains(words),
            "no {words:?} in {}",
            answer.output
        );
    }
}

#[test]
fn mistakes_are_named_in_one_line() {
    let fixture = Fixture::new();
    for (words, cause) in [
        (&["--preset", "toaster"][..], "haswell-ep"),
        (&["--set", "icr_ns"], "no value"),
        (&["--set", "speed=1"], "no parameter speed"),
        (&["--set", "icr_ns=x"], "no number"),
        (&["--cpus", "4097"], "1 to 4096"),
        (&["--threads", "5000"], "1 to 4096"),
        (&["--pages", "513"], "1 to 512"),
        (&["--policies", "magic"], "published"),
        (&["--machine", "qemu"], "measured alone"),
    ] {
        let answer = small(&fixture, words);
        assert_eq!(
            (answer.code, answer.output.as_str()),
            (Some(2), ""),
            "{answer:?}"
        );
        assert_eq!(answer.errors.lines().count(), 1, "{answer:?}");
        assert!(answer.errors.contains(cause), "{answer:?}");
    }
}
