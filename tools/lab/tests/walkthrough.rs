//! Pages to walk through: written by the command line, and drawn by a browser where there is one.

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use support::{Answer, Fixture};

/// A schedule that fails, as it should.
const FAILING: &str = "sim fuzz --runs 500 --threads 1 --scenario published-flag";

/// What a command answers that writes a page, and the page's path.
fn written(fixture: &Fixture, words: &str) -> (Answer, PathBuf) {
    let path = Path::new(fixture.path()).join("page.html");
    let mut words: Vec<&str> = words.split_whitespace().collect();
    words.extend(["--html", path.to_str().unwrap()]);
    (fixture.lab(&words), path)
}

/// The page of the failing schedule.
fn failing(fixture: &Fixture) -> PathBuf {
    let fuzzed = fixture.lab(&FAILING.split_whitespace().collect::<Vec<_>>());
    assert_eq!(fuzzed.code, Some(1), "{fuzzed:?}");
    let mut lines = fuzzed.output.lines();
    let shrunk = lines.find_map(|line| line.strip_prefix("or, shrunk,    ./lab "));
    let (answer, path) = written(fixture, shrunk.expect("the command that replays it"));
    assert_eq!(answer.code, Some(1), "{answer:?}");
    assert!(answer.output.contains("page to walk through"), "{answer:?}");
    path
}

/// The page as a browser has drawn it, or nothing where there is no browser.
fn drawn(page: &Path, fragment: &str) -> Option<String> {
    let browser = which::which("chromium").or_else(|_| which::which("chromium-browser"));
    let Ok(browser) = browser else {
        println!("skipped: no chromium here; install it with  apt-get install chromium");
        return None;
    };
    let answer = Command::new(browser)
        .args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--virtual-time-budget=5000",
        ])
        .args(["--window-size=1280,1000", "--dump-dom"])
        .arg(format!("file://{}#{fragment}", page.display()))
        .output()
        .expect("chromium starts");
    Some(String::from_utf8(answer.stdout).expect("a page is text"))
}

#[test]
fn a_replay_with_a_page_is_the_same_replay() {
    let fixture = Fixture::new();
    let words = "sim replay --cpus 3 --seed 451 --story";
    let (with, path) = written(&fixture, words);
    let without = fixture.lab(&words.split_whitespace().collect::<Vec<_>>());
    let said = |line: &&str| !line.starts_with("page to walk through");
    let lines: Vec<&str> = with.output.lines().filter(said).collect();
    assert_eq!(lines, without.output.lines().collect::<Vec<_>>());
    assert!(std::fs::metadata(path).unwrap().len() < 3_000_000);
}

#[test]
fn a_browser_draws_the_failing_step_in_its_state() {
    let fixture = Fixture::new();
    let page = failing(&fixture);
    let Some(dom) = drawn(&page, "") else {
        return;
    };
    for part in [
        "class=\"track\" data-cpu=\"0\"",
        "class=\"track\" data-cpu=\"1\"",
        "class=\"step violation current\"",
        "Broken promise: stale-access on cpu1",
        "data-place=\"TLB of cpu1\"",
        "aria-valuetext=\"step ",
    ] {
        assert!(dom.contains(part), "no {part} in the page");
    }
    // The stale translation is in the TLB, and its entry is not in the page tables.
    assert!(place(&dom, "TLB of cpu1").contains("page 16"));
    assert!(!place(&dom, "page tables").contains("table 6, entry 0"));
}

/// The panel of a place.
fn place<'a>(dom: &'a str, name: &str) -> &'a str {
    let start = format!("data-place=\"{name}\"");
    let (_, rest) = dom.split_once(&start).expect("a panel");
    rest.split("data-place").next().unwrap_or(rest)
}

#[test]
fn a_browser_draws_the_step_that_the_address_names() {
    let fixture = Fixture::new();
    let (answer, page) = written(&fixture, "bench madvise --policies best,before");
    assert_eq!(answer.code, Some(0), "{answer:?}");
    let (Some(first), Some(last)) = (drawn(&page, "step=1"), drawn(&page, "step=100000")) else {
        return;
    };
    assert!(first.contains("data-step=\"1\""), "its first step");
    for cpu in 0..4 {
        let name = format!("TLB of cpu{cpu}");
        assert!(first.contains(&format!("class=\"track\" data-cpu=\"{cpu}\"")));
        assert!(place(&last, &name).contains("nothing cached"), "cpu{cpu}");
    }
    assert!(place(&first, "TLB of cpu0").contains("frame 108, writable"));
    let other = drawn(&page, "run=1&step=1").expect("a browser");
    assert!(other.contains("before:"), "the second policy");
}
