//! Pages of recorded and of made-up results.

use std::path::Path;

use serde_json::{Value, json};

use super::axes::Layout;
use super::compare::{Comparison, Verdict};
use super::document::{Content, Document};
use super::page;
use super::summary::headline;
use super::tables::{Cell, overview};

/// What would be run if it were not escaped.
const HOSTILE: &str = "<script>alert(1)</script>\"'&";

fn document(name: &str, result: &Value) -> Document {
    Document::of(name.into(), result.clone()).unwrap()
}

/// A result of `golden/`.
fn golden(name: &str) -> Document {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("golden")
        .join(name);
    Document::read(&path).unwrap()
}

/// The verdicts on the rows of two results that differ in these.
fn verdicts(first: &[Value], second: &[Value]) -> Vec<Vec<Verdict>> {
    let of = |rows: &[Value]| {
        document(
            "x",
            &json!({"workload": "w", "machine": "qemu", "rows": rows}),
        )
    };
    let (first, second) = (of(first), of(second));
    let comparison = Comparison::new(&first, &second).unwrap();
    let of =
        |part: super::compare::Part<'_>| part.pairs.into_iter().map(|pair| pair.verdict).collect();
    comparison.parts.into_iter().map(of).collect()
}

fn row(policy: &str, boots: &[f64]) -> Value {
    json!({"policy": policy, "threads": 2, "ratio": 1.0, "median_ns": boots.first(), "boot_medians_ns": boots})
}

fn refused(text: &str) -> String {
    Content::parse("x".into(), text.as_bytes()).unwrap_err()
}

#[test]
fn a_recorded_result_has_the_expected_table_and_sentence() {
    let document = golden("madvise.json");
    let layout = Layout::new(&document.rows);
    let tables = overview(&layout, "");
    assert_eq!(tables.len(), 2);
    let heads = [
        "threads",
        "pages",
        "before",
        "published",
        "best",
        "published ratio",
        "best ratio",
    ];
    assert_eq!(tables[0].heads, heads);
    let figure = |value, text: &str| Cell::Figure(value, text.into());
    assert_eq!(tables[0].lines.len(), 4);
    assert_eq!(
        tables[0].lines[0][..4],
        [
            figure(1.0, "1"),
            figure(1.0, "1"),
            figure(665.2, "665 ns"),
            figure(665.2, "665 ns")
        ]
    );
    let sentence = headline(&layout);
    assert!(
        sentence.starts_with("best takes 0.655 times as long as before"),
        "{sentence}"
    );
    let panels: Vec<&str> = layout
        .panels
        .iter()
        .map(|panel| panel.title.as_str())
        .collect();
    assert_eq!(panels, ["1 page", "8 pages"]);
}

#[test]
fn every_recorded_result_makes_a_page_that_fetches_nothing() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden");
    let files =
        [golden.clone(), golden.join("booted")].map(|path| std::fs::read_dir(path).unwrap());
    let paths = files.into_iter().flatten().map(|file| file.unwrap().path());
    let mut pages = 0;
    for path in paths.filter(|path| {
        path.extension()
            .is_some_and(|extension| extension == "json")
    }) {
        let document = Document::read(&path).unwrap();
        let page = page::of_one(&document).unwrap();
        let shown = path.display();
        assert!(
            page.contains("<table") && page.contains("</svg>"),
            "{shown}"
        );
        let (figures, _) = page.split_once("<script").unwrap();
        assert!(
            !figures.contains("NaN") && !figures.contains("inf\""),
            "{shown}"
        );
        let links = page.replace("http://www.w3.org/2000/svg", "");
        for link in ["http:", "https:", "src=", "href=", "url("] {
            assert!(!links.contains(link), "{shown}: {link}");
        }
        let both = Comparison::new(&document, &document).unwrap();
        page::of_two(&both).unwrap();
        pages += 1;
    }
    assert!(pages > 20, "{pages} results");
}

#[test]
fn everything_of_a_result_is_escaped() {
    let result = json!({
        "workload": HOSTILE, "machine": HOSTILE, "commit": HOSTILE, "date": HOSTILE,
        "params": {HOSTILE: {HOSTILE: [HOSTILE, {"x": HOSTILE}]}, "list": [{HOSTILE: HOSTILE}, {HOSTILE: 1}]},
        "rows": [
            {"policy": "before", "machine": HOSTILE, "accel": HOSTILE, "threads": 1, "preset": HOSTILE,
             "median_ns": 3.0, "ratio": 1.0, HOSTILE: HOSTILE, "counters": {HOSTILE: 1}, "samples": [1, 2, 3]},
            {"policy": HOSTILE, "threads": 1, "preset": HOSTILE, "median_ns": 2.0, "ratio": 0.6},
        ],
    });
    let first = document(HOSTILE, &result);
    let pages = [
        page::of_one(&first).unwrap(),
        page::of_two(&Comparison::new(&first, &document("other", &result)).unwrap()).unwrap(),
    ];
    for page in pages {
        assert_eq!(page.matches("<script").count(), 1, "the page's own");
        assert!(page.contains("&lt;script&gt;alert(1)"));
        // Its quotes end no attribute.
        assert!(!page.contains("</script>\"'&"));
    }
}

#[test]
fn odd_figures_do_no_harm() {
    let result = json!({"workload": "w", "rows": [
        {"policy": "a", "threads": 1e300, "pages": -1, "ratio": 1.0, "median_ns": 1e300, "samples": [1e300, -5, 0]},
        {"policy": "b", "threads": 0, "pages": 2.5, "ratio": null, "median_ns": -3, "boot_medians_ns": [0, 0]},
        {"policy": "c", "threads": "many", "pages": {"a": 1}, "ratio": "x", "median_ns": [], "samples": 7},
        {"peer": 5, "threads": [1], "ipis": 1e-300, "counters": 5},
    ], "params": [1, [2, {"a": null}]]});
    let document = document("x", &result);
    page::of_one(&document).unwrap();
    page::of_two(&Comparison::new(&document, &document).unwrap()).unwrap();
}

#[test]
fn what_differs_between_boots_is_told_and_what_does_not_is_not() {
    let slow = [100.0, 101.0, 99.0, 102.0, 98.0];
    let fast = slow.map(|ns| ns / 2.0);
    assert_eq!(
        verdicts(&[row("a", &slow)], &[row("a", &fast)]),
        [[Verdict::Faster]]
    );
    assert_eq!(
        verdicts(&[row("a", &fast)], &[row("a", &slow)]),
        [[Verdict::Slower]]
    );
    let again = [101.0, 98.5, 99.5, 100.5, 102.5];
    assert_eq!(
        verdicts(&[row("a", &slow)], &[row("a", &again)]),
        [[Verdict::NotShown]]
    );
    let few = verdicts(&[row("a", &slow[..2])], &[row("a", &fast[..2])]);
    assert_eq!(few, [[Verdict::TooFew(2, 2)]]);
    let without = json!({"policy": "a", "ratio": 1.0, "median_ns": 5.0});
    let none = verdicts(
        std::slice::from_ref(&without),
        std::slice::from_ref(&without),
    );
    assert_eq!(none, [[Verdict::TooFew(0, 0)]]);
}

#[test]
fn a_host_that_became_slower_does_not_show_in_ratios() {
    let [before, best] = [
        [100.0, 120.0, 90.0, 110.0, 95.0],
        [80.0, 97.0, 71.5, 88.5, 76.0],
    ];
    let slower = |figures: [f64; 5]| figures.map(|ns| ns * 2.0);
    let first = [row("before", &before), row("best", &best)];
    let second = [row("before", &slower(before)), row("best", &slower(best))];
    let [absolute, relative] = &verdicts(&first, &second)[..] else {
        panic!("two parts");
    };
    assert_eq!(absolute, &[Verdict::Slower, Verdict::Slower]);
    assert_eq!(relative, &[Verdict::NotShown]);
}

#[test]
fn simulated_rows_are_equal_or_differ() {
    let row = |ns: u32| json!({"machine": "sim", "policy": "a", "threads": 1, "ratio": 1, "median_ns": 5, "p99_ns": ns, "samples": [ns]});
    assert_eq!(verdicts(&[row(7)], &[row(7)]), [[Verdict::Equal]]);
    let differs = Verdict::Differs(vec!["p99_ns".into()]);
    assert_eq!(verdicts(&[row(7)], &[row(8)]), [[differs]]);
}

#[test]
fn rates_are_better_when_they_are_higher() {
    let row =
        |rounds: &[f64]| json!({"policy": "a", "threads": 1, "per_s_ratio": 1, "per_s": rounds});
    let (few, many) = ([1.0, 2.0, 3.0, 4.0], [11.0, 12.0, 13.0, 14.0]);
    assert_eq!(verdicts(&[row(&few)], &[row(&many)]), [[Verdict::Faster]]);
}

#[test]
fn results_that_cannot_be_compared_are_refused_in_one_line() {
    let of = |workload: &str, policy: &str| {
        document(
            "x.json",
            &json!({"workload": workload, "rows": [{"policy": policy, "ratio": 1, "median_ns": 1}]}),
        )
    };
    let refused = |other: &Document| {
        Comparison::new(&of("one", "a"), other)
            .unwrap_err()
            .to_string()
    };
    for (text, words) in [
        (refused(&of("two", "a")), "same workload"),
        (refused(&of("one", "b")), "no row in common"),
    ] {
        assert!(text.contains(words) && !text.contains('\n'), "{text}");
    }
}

#[test]
fn what_is_no_result_is_refused() {
    for (text, words) in [
        (" \n", "is empty"),
        ("{\"rows\": ", "is not JSON"),
        ("[1, 2]", "no object"),
        ("{\"name\": 1}", "no workload"),
        ("{\"workload\": \"w\"}", "no rows"),
        ("{\"workload\": \"w\", \"rows\": [7]}", "without a policy"),
        (
            "{\"workload\": \"w\", \"groups\": [7, {\"rows\": 7}]}",
            "no rows",
        ),
        ("{\"benches\": 7}", "no list"),
        (
            "{\"benches\": [{\"workload\": \"w\"}]}",
            "no bench with rows",
        ),
    ] {
        let refusal = refused(text);
        assert!(
            refusal.contains(words) && !refusal.contains('\n'),
            "{refusal}"
        );
    }
}

#[test]
fn a_survey_has_a_section_for_each_bench_and_says_what_is_missing() {
    let [madvise, shoot] = ["madvise", "shoot"].map(|name| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("golden/{name}.json"));
        serde_json::from_slice::<Value>(&std::fs::read(path).unwrap()).unwrap()
    });
    let empty = json!({"workload": "pingpong", "rows": []});
    let survey = json!({
        "workload": "survey", "machine": "pc", "is_done": false, "params": {"brand": HOSTILE},
        "benches": [madvise, shoot, shoot, empty],
    });
    let content = Content::parse("pc.json".into(), survey.to_string().as_bytes());
    let Ok(Content::Several(survey)) = content else {
        panic!("{content:?}")
    };
    let page = page::of_survey(&survey).unwrap();
    assert_eq!(page.matches("<h2 class=\"bench\">madvise</h2>").count(), 1);
    assert_eq!(page.matches("<h2 class=\"bench\">shoot</h2>").count(), 2);
    for words in ["did not come to its end", "pingpong has no rows."] {
        assert!(page.contains(words), "{words}");
    }
    assert_eq!(page.matches("<script").count(), 1, "the page's own");
    let parts = page.split(" id=\"").skip(1);
    let mut ids: Vec<&str> = parts.filter_map(|part| part.split('"').next()).collect();
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert!(all > 3 && ids.len() == all, "{ids:?}");
}

#[test]
fn dates_are_readable_and_simulations_have_none() {
    let dated = |date: &str| {
        document(
            "x",
            &json!({"workload": "w", "machine": "qemu", "date": date, "rows": [{"peer": "a"}]}),
        )
        .date()
    };
    assert_eq!(dated("20260131T120000Z"), "2026-01-31 12:00:00 UTC");
    assert_eq!(dated("yesterday"), "yesterday");
    assert_eq!(golden("madvise.json").date(), "no date: virtual time");
}
