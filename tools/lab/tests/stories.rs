//! Bugs that kernels have: what `lab stories` prints, and the chapter that tells the same.

mod support;

use std::path::{Path, PathBuf};

use shootdown_sim::stories::{STORIES, Story, Way};
use shootdown_sim::walkthrough::{Titles, columns};
use support::Fixture;

/// Set, the test writes the chapter.
const UPDATE: &str = "SHOOTDOWN_UPDATE_GOLDEN";
/// More schedules than the rarest of them takes.
const MOST_SOUGHT: u64 = 300_000;

fn chapter_path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/stories.md")
}

/// Longer drawings are the lab's alone: a chapter is not to be long.
const MOST_LINES: usize = 24;

/// The drawing of a story, without what stands below the columns.
fn drawing(story: &Story) -> String {
    let found = story.find(Way::Described, 1..=MOST_SOUGHT).expect("a bug");
    let answers = story.shrink(Way::Described, &found);
    let titles = Titles {
        title: "",
        command: "",
    };
    let drawn = columns(&story.walk(Way::Described, &answers, titles));
    let columns: Vec<String> = drawn
        .into_iter()
        .take_while(|line| !line.is_empty())
        .collect();
    match columns.len() {
        0..MOST_LINES => format!("```\n{}\n```", columns.join("\n")),
        lines => format!(
            "The drawing has {lines} lines: `./lab stories {}`.",
            story.name
        ),
    }
}

/// The section of a story.
fn section(story: &Story) -> String {
    let mending = story.mending.map_or_else(String::new, |mending| {
        format!("**What mends it**: {mending}.\n\n")
    });
    format!(
        "## {}\n\n{}.\n\n**What the kernel does**: {}.\n\n**What goes wrong**: {}.\n\n{}\n\n{mending}**Source**: {}.\n",
        story.name,
        capital(story.title),
        story.algorithm,
        story.wrong,
        drawing(story),
        story.source
    )
}

fn capital(text: &str) -> String {
    let (first, rest) = text.split_at(1);
    first.to_uppercase() + rest
}

#[test]
fn the_chapter_tells_each_story_as_the_lab_does() {
    let before = std::fs::read_to_string(chapter_path()).unwrap();
    let (head, _) = before
        .split_once("\n## ")
        .unwrap_or((before.trim_end(), ""));
    let sections: Vec<String> = STORIES.iter().map(|story| section(story)).collect();
    let now = format!("{}\n\n{}", head.trim_end(), sections.join("\n"));
    if std::env::var_os(UPDATE).is_some() {
        return std::fs::write(chapter_path(), now).expect("the source folder can be written");
    }
    let differs = before
        .lines()
        .zip(now.lines())
        .find(|(before, now)| before != now);
    assert!(
        before == now,
        "docs/stories.md is not what the lab prints, first here: {differs:?}\nIf that is meant, run this test with {UPDATE}=1 and commit it"
    );
}

#[test]
fn each_story_is_listed() {
    let answer = Fixture::new().lab(&["stories"]);
    assert_eq!(answer.code, Some(0), "{answer:?}");
    for story in STORIES {
        let mut lines = answer.output.lines();
        let is_it = |line: &str| line.starts_with(story.name) && line.ends_with(story.title);
        assert!(lines.any(is_it), "{} in {}", story.name, answer.output);
    }
}

#[test]
fn a_story_shows_its_bug_and_that_the_engine_has_none() {
    let fixture = Fixture::new();
    let page = fixture.file("page.html", b"");
    let answer = fixture.lab(&["stories", "no-wait", "--runs", "500", "--html", &page]);
    assert_eq!(answer.code, Some(0), "{answer:?}");
    let words = [
        "What goes wrong",
        "** stale-access",
        "ok: 500 schedules with that, nothing stale",
        "ok: 500 schedules with this engine, the CPUs doing the same, nothing stale",
    ];
    let mut rest = answer.output.as_str();
    for words in words {
        let (_, after) = rest
            .split_once(words)
            .unwrap_or_else(|| panic!("no {words:?} in {answer:?}"));
        rest = after;
    }
    let page = std::fs::read_to_string(page).unwrap();
    for title in ["as described", "the same with this engine"] {
        assert!(page.contains(title), "no {title:?} in the page");
    }
}
