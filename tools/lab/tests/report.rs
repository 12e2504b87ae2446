//! Pages in a browser, if there is one: they sort, they are not wider than the window, and what they look like is kept for people.

mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use support::Fixture;

/// What a browser may be called.
const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];
/// A result with several boots, and one without noise.
const RESULTS: [&str; 2] = ["booted/zerocopy.json", "madvise.json"];
/// When a browser is stuck.
const DEADLINE_S: &str = "120";
/// Widths of windows: a desk's and a telephone's.
const WIDTHS: [u32; 2] = [1280, 400];

/// Which column is sorted: ratios, in no order.
const COLUMN: usize = 6;
/// What a head has by which its table is sorted.
const SORTED: &str = " aria-sort=\"";

/// The browser of this host; without one the test is over.
fn browser() -> Option<PathBuf> {
    // Some systems have a script of that name which only says how to install one.
    let works = |path: &PathBuf| {
        let version = Command::new(path).arg("--version").output();
        version.is_ok_and(|version| version.status.success())
    };
    let mut paths = BROWSERS.iter().filter_map(|name| which::which(name).ok());
    let found = paths.find(works);
    if found.is_none() {
        eprintln!("skipped: no browser here; `apt-get install chromium` brings one");
    }
    found
}

/// Where pictures are kept.
fn artefacts() -> PathBuf {
    let path = match std::env::var_os("CI_ARTEFACTS") {
        Some(path) => PathBuf::from(path),
        None => {
            let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
            let own = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
            target.unwrap_or_else(own).join("artefacts")
        }
    };
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// What the browser prints of an address.
fn visit(browser: &Path, profile: &str, words: &[&str]) -> String {
    let flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
    ];
    let output = Command::new("timeout")
        .arg(DEADLINE_S)
        .arg(browser)
        .args(flags)
        .arg(format!("--user-data-dir={profile}/profile"))
        .args(words)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A recorded result as a page; returns the page's path.
fn page(fixture: &Fixture, results: &[&str], name: &str) -> String {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden");
    let results: Vec<String> = results
        .iter()
        .map(|name| golden.join(name).display().to_string())
        .collect();
    let out = format!("{}/{name}", fixture.path());
    let mut words = vec!["report", "-o", &out];
    words.extend(results.iter().map(String::as_str));
    let answer = fixture.lab(&words);
    assert_eq!(
        (answer.code, answer.errors.as_str()),
        (Some(0), ""),
        "{answer:?}"
    );
    assert!(answer.output.contains(name));
    out
}

/// The values of a column of a table, from top to bottom.
fn column(dom: &str, table: &str, column: usize) -> Vec<f64> {
    let (_, from) = dom
        .split_once(&format!("id=\"{table}\""))
        .expect("the table");
    let (body, _) = from.split_once("</tbody>").expect("its end");
    let (_, body) = body.split_once("<tbody>").expect("its body");
    let value = |line: &str| {
        let cell = line.split("<td").nth(column + 1).expect("a cell");
        let (_, value) = cell.split_once("data-value=\"").expect("a figure");
        value.split('"').next().unwrap().parse().unwrap()
    };
    body.split("<tr>").skip(1).map(value).collect()
}

/// What the serial port of a PC sends, made of what booted machines once said.
fn serial() -> String {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/booted");
    let mut text = String::from("@info {\"program\":\"survey\",\"effort\":\"quick\",\"cpus\":2}\n");
    let mut count = 0;
    for name in ["madvise", "shoot"] {
        let console = std::fs::read_to_string(golden.join(format!("{name}.console"))).unwrap();
        let boot = console
            .lines()
            .skip(2)
            .take_while(|line| !line.starts_with('#'));
        let rows: Vec<&str> = boot.filter(|line| line.starts_with("@row ")).collect();
        text += &format!("@info {{\"program\":\"{name}\"}}\n{}\n", rows.join("\n"));
        count += rows.len();
    }
    text + &format!("@info {{\"program\":\"survey\",\"is_done\":true,\"rows\":{count}}}\n")
}

/// The result of that; returns its path.
fn survey(fixture: &Fixture) -> String {
    let text = fixture.file("serial.txt", serial().as_bytes());
    let result = format!("{}/pc.json", fixture.path());
    let answer = fixture.lab(&["iso", "--read", &text, "--json", &result]);
    assert_eq!(answer.code, Some(0), "{answer:?}");
    result
}

#[test]
fn what_a_pc_has_sent_makes_a_page_and_is_not_compared() {
    let fixture = Fixture::new();
    let result = survey(&fixture);
    let html = std::fs::read_to_string(page(&fixture, &[&result], "pc.html")).unwrap();
    for heading in ["survey of pc", ">madvise</h2>", ">shoot</h2>"] {
        assert!(html.contains(heading), "{heading}");
    }
    let answer = fixture.lab(&["report", &result, &result, "-o", "two.html"]);
    assert_eq!(answer.code, Some(2), "{answer:?}");
    assert!(answer.errors.contains("several benches"), "{answer:?}");
}

#[test]
fn tables_sort_by_a_click_on_a_head() {
    let Some(browser) = browser() else {
        return;
    };
    let fixture = Fixture::new();
    let page = page(&fixture, &["madvise.json"], "page.html");
    let dom = |fragment: &str| {
        let address = format!("file://{page}{fragment}");
        visit(&browser, fixture.path(), &["--dump-dom", &address])
    };
    let before = dom("");
    assert!(!before.contains(SORTED));
    let figures = column(&before, "median_ns", COLUMN);
    assert_eq!(figures.len(), 4);
    assert!(!figures.is_sorted(), "{figures:?}");
    let ascending = dom(&format!("#sort=median_ns.{COLUMN}"));
    assert!(ascending.contains(&format!("{SORTED}ascending")));
    let up = column(&ascending, "median_ns", COLUMN);
    assert!(up.is_sorted(), "{up:?}");
    let descending = dom(&format!("#sort=median_ns.{COLUMN}.descending"));
    assert!(descending.contains(&format!("{SORTED}descending")));
    let down = column(&descending, "median_ns", COLUMN);
    assert!(down.iter().rev().eq(&up), "{down:?}");
    // An address that means nothing does nothing.
    for odd in [
        "#sort=",
        "#sort=nothing.1",
        "#sort=median_ns.99",
        "#sort=%E0",
    ] {
        assert!(!dom(odd).contains(SORTED), "{odd}");
    }
}

/// Pages of every kind, and their names.
fn pages(fixture: &Fixture) -> Vec<(String, String)> {
    let mut pages: Vec<(String, String)> = RESULTS
        .iter()
        .map(|result| {
            let name = result.replace('/', "-").replace(".json", "");
            (page(fixture, &[result], &format!("{name}.html")), name)
        })
        .collect();
    let [first, second] =
        [1.0, 0.8].map(|factor| fixture.file(&format!("{factor}.json"), boots(factor).as_bytes()));
    pages.push((page(fixture, &[&first, &second], "two.html"), "two".into()));
    let survey = survey(fixture);
    pages.push((page(fixture, &[&survey], "pc.html"), "pc".into()));
    let walk = format!("{}/walk.html", fixture.path());
    let words = "sim replay --cpus 3 --seed 7 --html";
    let words: Vec<&str> = words.split(' ').chain([walk.as_str()]).collect();
    assert_eq!(fixture.lab(&words).code, Some(0));
    pages.push((walk, "walk".into()));
    pages
}

#[test]
fn pages_fit_into_windows_and_are_kept_as_pictures() {
    let Some(browser) = browser() else {
        return;
    };
    let fixture = Fixture::new();
    let pages = pages(&fixture);
    for (page, name) in &pages {
        for width in WIDTHS {
            let picture = artefacts().join(format!("page-{name}-{width}.png"));
            let _ = std::fs::remove_file(&picture);
            let shot = format!("--screenshot={}", picture.display());
            let size = format!("--window-size={width},2000");
            visit(
                &browser,
                fixture.path(),
                &[&shot, &size, &format!("file://{page}")],
            );
            let bytes = std::fs::read(&picture).unwrap();
            assert!(
                bytes.starts_with(b"\x89PNG") && bytes.len() > 20_000,
                "{name} {width}"
            );
        }
        let overflow = overflow(&browser, &fixture, page);
        assert_eq!(overflow, "0", "{name} is wider than its window");
    }
}

/// A result of five boots, in which larger rows of one policy take so many times as long.
fn boots(factor: f64) -> String {
    let row = |threads: u32, policy: &str, share: f64| {
        let typical = 1000.0 * f64::from(threads) * share;
        let turn = (factor * 10.0) as usize + policy.len();
        let noise = [1.0, 1.04, 0.97, 1.01, 0.99].into_iter().cycle();
        let boots = noise.skip(turn % 5).take(5).map(|noise| typical * noise);
        let samples =
            (0..200u32).map(|number| typical * (0.9 + f64::from(number % 17).powi(2) / 900.0));
        serde_json::json!({
            "policy": policy, "threads": threads, "ratio": share, "accel": "made up", "median_ns": typical,
            "boot_medians_ns": boots.collect::<Vec<f64>>(), "ipis_per_op": threads - 1,
            "samples": samples.collect::<Vec<f64>>(),
        })
    };
    let of = |threads| {
        let share = if threads > 2 { 0.8 * factor } else { 0.8 };
        [row(threads, "before", 1.0), row(threads, "best", share)]
    };
    let rows: Vec<serde_json::Value> = [1, 2, 4, 8].into_iter().flat_map(of).collect();
    let params = serde_json::json!({"factor": factor});
    serde_json::json!({"workload": "made up", "machine": "qemu", "params": params, "rows": rows})
        .to_string()
}

/// By how many pixels a page is wider than a frame of the narrowest width.
fn overflow(browser: &Path, fixture: &Fixture, page: &str) -> String {
    let width = WIDTHS[1];
    let probe = format!(
        "<iframe id=f width={width} height=900 style='border:0' src='file://{page}'></iframe><output id=o>none</output>\
         <script>f.onload = () => {{ const d = f.contentDocument.documentElement; o.textContent = d.scrollWidth - d.clientWidth; }}</script>"
    );
    let probe = fixture.file("probe.html", probe.as_bytes());
    let words = [
        "--allow-file-access-from-files",
        "--dump-dom",
        &format!("file://{probe}"),
    ];
    let dom = visit(browser, fixture.path(), &words);
    let (_, from) = dom.split_once("<output id=\"o\">").expect("the answer");
    from.split('<').next().unwrap().to_owned()
}
