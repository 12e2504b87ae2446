//! The documents: every link leads somewhere, the book has every chapter, and no chapter is too long to be read.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::process::Command;

/// What a reader takes in at once.
const LONGEST_CHAPTER_BYTES: usize = 15_000;

/// Names in docs/field-bugs.md that are not those of mutants: mistakes in the kernel, a scenario, a peer.
const ELSEWHERE: [&str; 5] = [
    "fork-local",
    "no-remote",
    "no-wait",
    "published-flag",
    "xen-before",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The Markdown files of the repository, from its root.
fn documents() -> Vec<PathBuf> {
    let mut git = Command::new("git");
    let words = [
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
        "*.md",
    ];
    let output = git.current_dir(root()).args(words).output().unwrap();
    let list = String::from_utf8(output.stdout).unwrap();
    let files = list.lines().map(PathBuf::from);
    files.filter(|path| root().join(path).exists()).collect()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

/// The lines that are not code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// What links and images of a document name.
fn targets(text: &str) -> Vec<String> {
    let mut targets = Vec::new();
    for line in prose(text) {
        // Code spans may hold brackets.
        let plain: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
        let parts = plain.split("](").skip(1);
        targets.extend(parts.filter_map(|part| Some(part.split_once(')')?.0.to_owned())));
    }
    targets
}

/// The names by which headings are linked to.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut seen = BTreeMap::new();
    let headings = prose(text).filter(|line| line.starts_with('#'));
    let slug = |heading: &str| -> String {
        let text = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = text
            .chars()
            .filter(|&c| c.is_alphanumeric() || " -_".contains(c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    let numbered = |slug: String| {
        let count = seen.entry(slug.clone()).or_insert(0);
        *count += 1;
        match *count {
            1 => slug,
            more => format!("{slug}-{}", more - 1),
        }
    };
    headings.map(slug).map(numbered).collect()
}

/// A path without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

/// What is wrong with a link of a document, if anything.
fn broken(document: &Path, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = match file {
        "" => document.to_owned(),
        file => plain(&document.parent().unwrap().join(file)),
    };
    let says = |what: &str| Some(format!("{}: {target} {what}", document.display()));
    if !root().join(&path).exists() {
        return says("is not there");
    }
    let is_known = anchor.is_empty()
        || path.extension().is_none_or(|it| it != "md")
        || anchors(&read(&path)).contains(anchor);
    if is_known {
        None
    } else {
        says("names no heading")
    }
}

#[test]
fn every_link_leads_somewhere() {
    let of = |document: &PathBuf| {
        let targets = targets(&read(document)).into_iter();
        targets
            .filter_map(|target| broken(document, &target))
            .collect::<Vec<_>>()
    };
    let broken: Vec<String> = documents().iter().flat_map(of).collect();
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn the_book_has_every_chapter_and_no_long_one() {
    let summary: BTreeSet<PathBuf> = targets(&read(Path::new("docs/SUMMARY.md")))
        .iter()
        .map(|target| Path::new("docs").join(target))
        .collect();
    let chapters = documents()
        .into_iter()
        .filter(|path| path.starts_with("docs"));
    let chapters: BTreeSet<PathBuf> = chapters
        .filter(|path| !path.ends_with("SUMMARY.md"))
        .collect();
    assert_eq!(summary, chapters);
    for chapter in &chapters {
        let bytes = read(chapter).len();
        assert!(
            bytes <= LONGEST_CHAPTER_BYTES,
            "{} has {bytes} bytes",
            chapter.display()
        );
    }
}

#[test]
fn mistakes_that_the_documents_name_are_there() {
    let names = read(Path::new("docs/field-bugs.md"));
    let files: BTreeSet<String> = std::fs::read_dir(root().join("verify/mutants"))
        .unwrap()
        .flatten()
        .filter_map(|entry| {
            Some(
                entry
                    .file_name()
                    .to_str()?
                    .strip_suffix(".toml")?
                    .to_owned(),
            )
        })
        .collect();
    // The last column of each table, but for the kernel's own mistakes, a peer and a scenario.
    let cells = names
        .lines()
        .filter_map(|line| line.strip_suffix(" |")?.rsplit_once(" | "));
    let spans = cells.flat_map(|(_, cell)| cell.split('`').skip(1).step_by(2));
    let is_name = |name: &&str| name.contains('-') && !name.contains(['/', ' ']);
    let named: Vec<&str> = spans.filter(is_name).collect();
    let is_unknown = |name: &&&str| !files.contains(**name) && !ELSEWHERE.contains(*name);
    let unknown: Vec<&&str> = named.iter().filter(is_unknown).collect();
    assert!(
        unknown.is_empty() && named.len() > 40,
        "{unknown:?} of {named:?}"
    );
}

#[test]
fn this_check_sees_what_is_wrong() {
    let text =
        "# A `b` c\n[x](y.md#z) ![p](q.svg)\n```\n[no](no.md)\n```\n`[no](no.md)`\n# A b c\n";
    assert_eq!(targets(text), ["y.md#z", "q.svg"]);
    assert_eq!(
        anchors(text),
        BTreeSet::from(["a-b-c".to_owned(), "a-b-c-1".to_owned()])
    );
    let readme = Path::new("README.md");
    assert!(
        broken(readme, "no-such.md")
            .unwrap()
            .contains("is not there")
    );
    assert!(
        broken(readme, "ARCHITECTURE.md#no-such")
            .unwrap()
            .contains("names no heading")
    );
    assert!(broken(readme, "https://nowhere").is_none());
}
