//! `lab stories`: bugs that kernels have, played on the simulated machine until they show; then the same with what mends them, and with the
//! engine. docs/stories.md tells them.

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use shootdown_sim::stories::{Answers, Found, STORIES, Story, Way};
use shootdown_sim::walkthrough::{Titles, Walkthrough, columns, page, wrapped};

use crate::bench::report::{probe, unwritable};
use crate::cli::Stories;
use crate::failure::{Failure, Outcome};
use crate::progress::Progress;

/// A story whose bug has not shown after so many schedules has none any more.
const MOST_SOUGHT: u64 = 1_000_000;
/// As wide as the drawing.
const WIDTH: usize = 100;

/// Lists the stories, or tells one. Exit code 1 if its bug does not show, or something goes wrong with it mended or with the engine.
///
/// # Errors
/// A file cannot be written (exit code 2); the story is not what it says.
pub fn command(arguments: &Stories) -> Outcome<ExitCode> {
    let Some(story) = arguments.story else {
        list();
        return Ok(ExitCode::SUCCESS);
    };
    probe(arguments.html.as_deref(), "--html")?;
    tell(story, arguments)?;
    Ok(ExitCode::SUCCESS)
}

fn list() {
    for story in STORIES {
        println!("{:14} {}", story.name, story.title);
    }
    println!("\n./lab stories NAME plays one; docs/stories.md tells them all");
}

fn tell(story: &Story, arguments: &Stories) -> Outcome<()> {
    println!("{}: {}", story.name, story.title);
    say("What the kernel does", story.algorithm);
    say("What goes wrong", story.wrong);
    let started = Instant::now();
    let mut progress = Progress::new();
    progress.stage("looking for a schedule that shows it");
    let found = story.find(Way::Described, 1..=MOST_SOUGHT).ok_or_else(|| {
        Failure::work(format!(
            "{MOST_SOUGHT} schedules show nothing wrong: the model has lost its bug"
        ))
    })?;
    drop(progress);
    let answers = story.shrink(Way::Described, &found);
    println!(
        "\nSchedule {} shows it, after {:.1} s; with as few unusual events as it takes:\n",
        found.seed,
        started.elapsed().as_secs_f64()
    );
    let wrong = walk(story, Way::Described, &answers);
    columns(&wrong).iter().for_each(|line| println!("{line}"));
    if let Some(path) = &arguments.html {
        let right = walk(story, Way::Engine, &Answers::of(found.seed));
        write(path, &[wrong, right])?;
    }
    println!();
    let runs = arguments.runs.max(found.seed);
    if let Some(mending) = story.mending {
        say("What mends it", mending);
        expect_none(story, Way::Mended, runs, "with that")?;
    }
    expect_none(
        story,
        Way::Engine,
        runs,
        "with this engine, the CPUs doing the same",
    )?;
    say("Source", story.source);
    Ok(())
}

/// The run, to walk through.
fn walk(story: &Story, way: Way, answers: &Answers) -> Walkthrough {
    let by = match way {
        Way::Described => "as described",
        Way::Mended => "mended",
        Way::Engine => "the same with this engine",
    };
    let titles = Titles {
        title: &format!("{}: {}; {by}", story.name, story.title),
        command: &format!("./lab stories {} --html FILE", story.name),
    };
    story.walk(way, answers, titles)
}

fn write(path: &Path, runs: &[Walkthrough]) -> Outcome<()> {
    std::fs::write(path, page(runs)).map_err(|error| unwritable(path, &error, "--html"))?;
    println!("\npage to walk through, both ways: {}", path.display());
    Ok(())
}

/// Plays so many schedules, in which nothing may go wrong.
fn expect_none(story: &Story, way: Way, runs: u64, by: &str) -> Outcome<()> {
    let mut progress = Progress::new();
    let label = format!("schedules {by}");
    let seeds = (1..=runs).inspect(|seed| progress.step(seed - 1, runs, &label));
    let found = story.find(way, seeds);
    drop(progress);
    let Some(Found { seed, failure, .. }) = found else {
        println!("ok: {runs} schedules {by}, nothing stale");
        return Ok(());
    };
    Err(Failure::work(format!("schedule {seed} {by}: {failure}")))
}

/// A paragraph.
fn say(head: &str, text: &str) {
    let lines = wrapped(&format!("{head}: {text}."), WIDTH);
    println!("{}", lines.join("\n"));
}
