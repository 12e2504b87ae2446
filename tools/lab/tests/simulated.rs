//! `bench --machine sim`: the same words, the same bytes; and mistakes named in one line.

mod support;

use support::{Answer, Fixture};

/// The table of T1 and nothing that takes long.
const SMALL: [&str; 7] = [
    "bench",
    "madvise",
    "--tables",
    "--machine",
    "sim",
    "--pages",
    "1",
];

fn small(fixture: &Fixture, words: &[&str]) -> Answer {
    fixture.lab(&[&SMALL[..], words].concat())
}

#[test]
fn the_same_seed_prints_and_writes_the_same_bytes() {
    let fixture = Fixture::new();
    let (first, second) = (fixture.file("first", b""), fixture.file("second", b""));
    let one = small(&fixture, &["--json", &first, "--seed", "7"]);
    let other = small(&fixture, &["--json", &second, "--seed", "7"]);
    assert_eq!(
        (one.code, one.complaints().as_str()),
        (Some(0), ""),
        "{one:?}"
    );
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
    let answer = small(&Fixture::new(), &["--figures"]);
    for words in [
        "T1's own ns",
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

const PINGPONG: [&str; 5] = ["bench", "pingpong", "--tables", "--machine", "sim"];

#[test]
fn pingpong_stands_beside_what_was_published_and_its_rows_say_what_tags_do() {
    let fixture = Fixture::new();
    let words = ["--spaces", "2,8", "--pages", "0,128,512"];
    let (answer, result) = fixture.result(&[&PINGPONG[..], &words].concat());
    assert_eq!(answer.complaints(), "", "{answer:?}");
    for words in [
        "skylake-laptop",
        "ns a page",
        "walks",
        "6200",
        "1800",
        "stale accesses: 0",
    ] {
        assert!(answer.output.contains(words), "no {words:?} in {answer:?}");
    }
    assert_eq!(result["workload"], "pingpong");
    assert_eq!(result["params"]["spaces"], serde_json::json!([2, 8]));
    let rows = result["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2 * 3 * 3);
    let figure = |policy: &str, spaces: u64, pages: u64, name: &str| {
        let axes = (&policy.into(), &spaces.into(), &pages.into());
        let row = rows
            .iter()
            .find(|row| (&row["policy"], &row["spaces"], &row["pages"]) == axes);
        row.unwrap()[name].as_f64().unwrap_or(0.0)
    };
    assert_eq!(figure("before", 2, 512, "walks_per_op"), 512.0);
    assert!(figure("published", 2, 512, "walks_per_op") < 51.2);
    assert_eq!(figure("published", 2, 512, "published_ns"), 1800.0);
    // Six tags are too few for eight spaces in turn, all tags are not.
    assert_eq!(figure("published", 8, 128, "ratio"), 1.0);
    assert!(figure("best", 8, 128, "ratio_to_published") < 0.6);
    assert!(figure("best", 8, 128, "page_ns") < figure("published", 8, 128, "page_ns") / 4.0);
    assert!(rows.iter().all(|row| row["stale"] == 0));
}

#[test]
fn pingpong_with_page_table_isolation_takes_longer_and_says_so() {
    let fixture = Fixture::new();
    let words = ["--spaces", "2", "--pages", "0", "--isolation"];
    let (answer, result) = fixture.result(&[&PINGPONG[..], &words].concat());
    assert!(answer.output.contains("page-table isolation"), "{answer:?}");
    assert_eq!(result["params"]["isolation"], true);
    let rows = result["rows"].as_array().unwrap();
    // Without PCIDs each of four more loads of a root drops all, with them none does.
    let means = rows.iter().map(|row| row["mean_ns"].as_f64().unwrap());
    assert_eq!(means.collect::<Vec<_>>(), [2075.0, 1500.0, 1500.0]);
}

#[test]
fn pingpong_prints_the_same_bytes_and_can_be_swept() {
    let fixture = Fixture::new();
    let words = ["--spaces", "2", "--pages", "64", "--sweep"];
    let run = || fixture.lab(&[&PINGPONG[..], &words].concat());
    let answer = run();
    assert_eq!(answer.code, Some(0), "{answer:?}");
    assert!(
        answer.output.contains("sensitivity, 2 spaces, 64 pages"),
        "{answer:?}"
    );
    assert!(answer.output.contains("best / before: "), "{answer:?}");
    assert_eq!(answer.output, run().output);
}

#[test]
fn mistakes_in_pingpong_are_named_in_one_line() {
    let fixture = Fixture::new();
    for (words, cause) in [
        (&["--spaces", "1"][..], "2 to 64"),
        (&["--spaces", "65"], "2 to 64"),
        (&["--pages", "513"], "0 to 512"),
        (&["--threads", "2"], "--spaces"),
        (&["--cpus", "2"], "one CPU"),
        (&["--policies", "magic"], "published"),
        (&["--preset", "toaster"], "skylake-laptop"),
        (&["--trace", "/dev/null"], "bench madvise"),
    ] {
        let answer = fixture.lab(&[&PINGPONG[..], words].concat());
        assert_eq!(
            (answer.code, answer.output.as_str()),
            (Some(2), ""),
            "{answer:?}"
        );
        assert_eq!(answer.errors.lines().count(), 1, "{answer:?}");
        assert!(answer.errors.contains(cause), "{answer:?}");
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
        (&["--spaces", "2"], "--threads"),
        (&["--isolation"], "pingpong"),
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

/// A part of table T5 that takes a moment.
const CALLS: [&str; 14] = [
    "bench",
    "selected",
    "--tables",
    "--cpus",
    "24",
    "--initiators",
    "4",
    "--targets",
    "4",
    "--function-us",
    "500",
    "--calls",
    "10",
    "--masks",
];

#[test]
fn calls_stand_beside_other_kernels_and_the_limit_of_their_masks() {
    let fixture = Fixture::new();
    let words = [&CALLS[..], &["disjoint,random,identical"]].concat();
    let (one, result_one) = fixture.result(&words);
    let (other, result_other) = fixture.result(&words);
    assert_eq!((&one.output, &result_one), (&other.output, &result_other));
    let rows = result_one["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 3 * 6);
    let of = |masks: &str, peer: &str| {
        let row = rows
            .iter()
            .find(|row| row["masks"] == masks && row["peer"] == peer);
        row.unwrap_or_else(|| panic!("no {peer} with {masks} masks"))
    };
    for masks in ["disjoint", "random", "identical"] {
        let limit = of(masks, "best")["limit_percent"].as_f64().unwrap();
        for peer in ["xen", "linux", "freebsd", "best"] {
            let change = of(masks, peer)["change_percent"].as_f64().unwrap();
            let is_near = if masks == "random" { 8.0 } else { 1.0 };
            assert!(
                (change - limit).abs() < is_near,
                "{masks}, {peer}: {change} at {limit}"
            );
        }
        assert_eq!(of(masks, "xen-before")["change_percent"], 0.0);
        assert_eq!(of(masks, "best")["published_percent"], -66.55);
        assert_eq!(of(masks, "best")["runs"], 4 * 4 * 10);
    }
    for words in ["limit: ", "T5's own", "p99 ns", "40-core", "--figures"] {
        assert!(one.output.contains(words), "no {words:?} in {one:?}");
    }
}

#[test]
fn calls_of_any_size_are_told_with_their_interrupts() {
    let fixture = Fixture::new();
    let words = [
        "bench",
        "shoot",
        "--tables",
        "--cpus",
        "8",
        "--targets",
        "1,all",
        "--peers",
        "mailbox,best",
        "--calls",
        "3",
        "--preset",
        "40-core",
        "--lines",
        // Long turns of spin loops are few.
        "--set",
        "relax_ns=500",
    ];
    let (answer, result) = fixture.result(&words);
    let rows = result["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2 * 2 + 2 * (2 * 2));
    let flushes = rows.iter().filter(|row| row["operation"] == "flush");
    assert_eq!(flushes.count(), 2 * 2);
    for row in rows {
        let figure = |name: &str| row[name].as_f64().expect(name);
        assert!(0.0 < figure("sent_median_ns") && figure("busy_median_ns") <= figure("median_ns"));
        assert!(figure("median_ns") <= figure("p99_ns") && figure("unfairness") >= 1.0);
        assert!(figure("interrupts_per_target") <= figure("ipis_per_target"));
        let moves = row["moves"].as_array().unwrap().iter();
        let named: f64 = moves.map(|line| line["per_call"].as_f64().unwrap()).sum();
        let lines = figure("lines_per_target") * figure("targets");
        assert!(
            (named - lines).abs() < 1e-6,
            "{named} of {lines} lines have names: {row}"
        );
        if row["callers"] == "one" {
            assert_eq!(figure("ipis_per_target"), 1.0, "{row}");
            let clusters = if row["peer"] == "best" {
                1.0
            } else {
                figure("targets")
            };
            assert_eq!(figure("register_writes_per_call"), clusters, "{row}");
        }
    }
    for words in [
        "memory for CPUs",
        "4096",
        "ICR writes",
        "all CPUs flush a page at once",
        "cache lines that move, 8 flush on 7 each of 40-core",
        "message",
        "in the kernel (deferral)",
    ] {
        assert!(answer.output.contains(words), "no {words:?} in {answer:?}");
    }
}
