//! `bench zerocopy` on the simulated machine, which it runs on where nothing else is asked for.

mod support;

use support::{Answer, Fixture};

/// A few rows of T2.
const SMALL: [&str; 5] = ["bench", "zerocopy", "--tables", "--threads", "1,8"];

fn small(words: &[&str]) -> Answer {
    Fixture::new().lab(&[&SMALL[..], words].concat())
}

#[test]
fn it_stands_beside_what_was_published_with_and_without_what_else_is_shared() {
    let fixture = Fixture::new();
    let (answer, result) = fixture.result(&SMALL);
    assert_eq!(answer.complaints(), "", "{answer:?}");
    for words in [
        "40-core-2018",
        "1113138",
        "unsound",
        "alone: ",
        "fitted to rows of the table: ",
        "stale accesses: 0",
    ] {
        assert!(answer.output.contains(words), "no {words:?} in {answer:?}");
    }
    let rows = result["rows"].as_array().unwrap();
    assert_eq!((rows.len(), &result["cpus"]), (12, &40.into()));
    let figure = |policy: &str, shared: bool, name: &str| {
        let axes = (&policy.into(), &8.into(), &shared.into());
        let row = rows
            .iter()
            .find(|row| (&row["policy"], &row["threads"], &row["charges_shared"]) == axes);
        row.unwrap()[name].as_f64()
    };
    assert!(figure("before", true, "ipis_per_op") > Some(1.0));
    assert_eq!(figure("best", true, "ipis_per_op"), Some(0.0));
    assert!(figure("best", true, "per_s") >= figure("best", true, "published_per_s"));
    assert_eq!(figure("best", false, "published_per_s"), None);
    let scaling = figure("best", false, "scaling_percent").unwrap();
    assert!((98.0..102.0).contains(&scaling), "{scaling}");
}

#[test]
fn the_same_words_print_the_same_bytes_and_other_machines_have_no_published_column() {
    let words = ["--quick", "--policies", "before,best", "--seed", "3"];
    assert_eq!(small(&words).output, small(&words).output);
    let other = small(&["--quick", "--preset", "40-core"]);
    assert!(!other.output.contains("1113138"), "{other:?}");
}

#[test]
fn mistakes_are_named_in_one_line() {
    for (words, cause) in [
        (&["--pages", "2"][..], "one page"),
        (&["--cpus", "0"], "1 to 4096"),
        (&["--cpus", "4097"], "1 to 4096"),
        (&["--spaces", "2"], "--threads"),
        (&["--policies", "best+defer"], "--machine qemu"),
        (&["--set", "relay=1"], "relay_ns"),
    ] {
        let answer = small(words);
        assert_eq!(
            (answer.code, answer.output.as_str()),
            (Some(2), ""),
            "{answer:?}"
        );
        assert_eq!(answer.errors.lines().count(), 1, "{answer:?}");
        assert!(answer.errors.contains(cause), "{answer:?}");
    }
}
