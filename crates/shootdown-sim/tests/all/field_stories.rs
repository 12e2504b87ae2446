//! The stories of bugs that kernels have: each goes wrong as it is told, and neither mended nor with the engine.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use shootdown_sim::FailureKind;
use shootdown_sim::stories::{Answers, Found, STORIES, Story, Way};
use shootdown_sim::walkthrough::{Titles, columns};

/// More schedules than the rarest of them takes.
const MOST_SOUGHT: u64 = 300_000;
/// Of a story that shows its bug at once.
const FEWEST_RUNS: u64 = 3_000;
const TITLES: Titles<'static> = Titles {
    title: "a story",
    command: "none",
};

/// The stories, and where each of them goes wrong first, which takes long to find.
fn found() -> impl Iterator<Item = (&'static Story, &'static Found)> {
    static FOUND: LazyLock<Vec<Found>> = LazyLock::new(|| {
        let found = |story: &&Story| {
            let found = story.find(Way::Described, 1..=MOST_SOUGHT);
            found.unwrap_or_else(|| panic!("{} shows nothing wrong", story.name))
        };
        STORIES.iter().map(found).collect()
    });
    STORIES.iter().copied().zip(FOUND.iter())
}

#[test]
fn each_algorithm_goes_wrong_as_it_was_described() {
    for (story, found) in found() {
        assert_eq!(
            found.failure.kind,
            FailureKind::StaleAccess,
            "{}",
            story.name
        );
        let again = story.play(Way::Described, &Answers::of(found.seed));
        assert_eq!(
            again.failure.as_ref(),
            Some(&found.failure),
            "{}",
            story.name
        );
        assert_eq!(again.schedule, found.schedule, "{}", story.name);
    }
}

#[test]
fn neither_a_mended_algorithm_nor_the_engine_goes_wrong() {
    for (story, found) in found() {
        let runs = found.seed.max(FEWEST_RUNS);
        for way in story.ways().filter(|way| *way != Way::Described) {
            assert_eq!(story.find(way, 1..=runs), None, "{} {way:?}", story.name);
        }
    }
}

#[test]
fn the_shortest_schedule_is_drawn_to_the_broken_promise() {
    for (story, found) in found() {
        let answers = story.shrink(Way::Described, found);
        let shrunk = answers.schedule.as_ref().expect("a schedule");
        assert!(shrunk.0.len() <= found.schedule.0.len(), "{}", story.name);
        let walkthrough = story.walk(Way::Described, &answers, TITLES);
        assert!(walkthrough.violation.is_some(), "{}", story.name);
        let drawn = columns(&walkthrough);
        assert_eq!(drawn[0].matches("cpu").count(), story.cpus());
        let broken = drawn
            .iter()
            .position(|line| line.contains("** stale-access"));
        let note = drawn
            .iter()
            .position(|line| line.starts_with("broken on cpu"));
        assert!(broken.is_some() && broken < note, "{drawn:#?}");
    }
}

/// With the engine nothing is wrong to draw, and its cache lines have names.
#[test]
fn the_engine_s_run_can_be_walked_through() {
    for story in STORIES {
        let walkthrough = story.walk(Way::Engine, &Answers::of(1), TITLES);
        assert_eq!(walkthrough.violation, None, "{}", story.name);
        let mut steps = walkthrough.steps.iter();
        assert!(
            steps.any(|step| step.label.contains("engine")),
            "{}",
            story.name
        );
    }
}

#[test]
fn names_are_different_and_sentences_are_there() {
    let names: BTreeSet<&str> = STORIES.iter().map(|story| story.name).collect();
    assert_eq!(names.len(), STORIES.len());
    for story in STORIES {
        for text in [story.title, story.algorithm, story.wrong, story.source] {
            assert!(
                !text.is_empty() && !text.ends_with('.') && !text.contains("  "),
                "{}: {text}",
                story.name
            );
        }
    }
}
