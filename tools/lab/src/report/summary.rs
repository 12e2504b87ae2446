//! What a page says first: the main result in one sentence, and what a reader has to know before he believes it.

use super::axes::{Layout, title, varying};
use super::compare::{Comparison, Part, Verdict};
use super::document::Document;
use super::figure::{is_better_high, ratio, value};
use super::principal::principal;
use crate::bench::{Row, counted, crowded, remarks};
use crate::chart::{Unit, heading};

/// The main result of one file.
pub fn headline(layout: &Layout<'_>) -> String {
    let keys = principal(&layout.rows);
    let Some(&key) = keys.first() else {
        return format!(
            "{}, and no figure that stands for them.",
            counted(layout.rows.len(), "rows")
        );
    };
    let pairs: Vec<Pair<'_>> = layout
        .shapes()
        .into_iter()
        .filter_map(|shape| {
            let subject = layout.beside(shape, layout.subject)?;
            let reference = layout.beside(shape, layout.reference)?;
            Some((subject, reference, ratio(subject, reference, key)?))
        })
        .collect();
    // Times of crowded rows are those of the host's scheduler, too.
    let pairs = rather(pairs, |(row, ..)| !row.is_crowded());
    // Where no CPU has to be told all policies do the same.
    let pairs = rather(pairs, |(_, reference, _)| {
        reference.number("ipis_per_op") != Some(0.0)
    });
    let is_alone = layout.subject == layout.reference;
    match middle(&pairs, is_better_high(key)) {
        Some(pair) if !is_alone => against(layout, key, &pairs, pair),
        _ => alone(layout, key),
    }
}

/// A row, the reference's row of the same shape, and the ratio of their figures.
type Pair<'a> = (&'a Row, &'a Row, f64);

/// The pairs that are as wanted, if there are any; otherwise all.
fn rather<'a>(pairs: Vec<Pair<'a>>, is_wanted: impl Fn(&Pair<'a>) -> bool) -> Vec<Pair<'a>> {
    let wanted: Vec<Pair<'a>> = pairs
        .iter()
        .filter(|pair| is_wanted(pair))
        .copied()
        .collect();
    if wanted.is_empty() { pairs } else { wanted }
}

/// The pair whose ratio is the median; of two, the one that is worse for the subject.
fn middle<'a>(pairs: &[Pair<'a>], is_better_high: bool) -> Option<Pair<'a>> {
    let mut sorted = pairs.to_vec();
    sorted.sort_by(|(.., one), (.., other)| one.total_cmp(other));
    if is_better_high {
        sorted.reverse();
    }
    sorted.get(sorted.len() / 2).copied()
}

/// One series against another.
fn against(
    layout: &Layout<'_>,
    key: &str,
    pairs: &[Pair<'_>],
    (row, beside, middle): Pair<'_>,
) -> String {
    let ratios: Vec<f64> = pairs.iter().map(|(.., ratio)| *ratio).collect();
    let (least, most) = ends(&ratios);
    let written = |value| Unit::Ratio.write(value);
    let (subject, reference) = (
        &layout.series[layout.subject],
        &layout.series[layout.reference],
    );
    let what = heading(key);
    let comparison = match is_better_high(key) {
        true => format!("times as many {what} as {reference}"),
        false => format!("times as long as {reference} by the {what}"),
    };
    let verb = if is_better_high(key) { "does" } else { "takes" };
    let unit = Unit::of(key);
    let figure = |row| {
        value(row, key)
            .map(|value| unit.write(value))
            .unwrap_or_default()
    };
    let (own, other) = (figure(row), figure(beside));
    let place = match varying(&layout.rows) {
        axes if axes.is_empty() => String::new(),
        axes => format!(" with {}", title(row, &axes)),
    };
    let middle = written(middle);
    match pairs.len() {
        1 => format!("{subject} {verb} {middle} {comparison}: {own} against {other}{place}."),
        count => format!(
            "{subject} {verb} {middle} {comparison} (the median of {count} cases, which range from {} to {}): {own} against {other}{place}.",
            written(least),
            written(most)
        ),
    }
}

/// The least and the greatest.
fn ends(values: &[f64]) -> (f64, f64) {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    (least, values.iter().copied().fold(0.0, f64::max))
}

/// Nothing to compare with.
fn alone(layout: &Layout<'_>, key: &str) -> String {
    let values = layout.rows.iter().filter_map(|row| value(row, key));
    let values: Vec<f64> = values.collect();
    let (least, most) = ends(&values);
    let unit = Unit::of(key);
    format!(
        "{}: {} from {} to {}.",
        counted(values.len(), "rows"),
        heading(key),
        unit.write(least),
        unit.write(most)
    )
}

/// The main result of two files: by the first figure, and by its ratio to the reference.
pub fn verdicts(comparison: &Comparison<'_>) -> String {
    let judged = comparison.parts.iter().find(|part| part.is_judged());
    let key = judged.unwrap_or(&comparison.parts[0]).key;
    let parts = comparison.parts.iter().filter(|part| part.key == key);
    let parts: Vec<String> = parts.map(tally).collect();
    format!("B against A, {}.", parts.join("; "))
}

/// How often each verdict was given.
fn tally(part: &Part<'_>) -> String {
    let words = [
        "faster",
        "slower",
        "no difference shown",
        "equal",
        "differs",
    ];
    let counts = words.into_iter().filter_map(|words| {
        let own = part
            .pairs
            .iter()
            .filter(|pair| pair.verdict.words() == words);
        let count = own.count();
        (count > 0).then(|| format!("{words} in {count}"))
    });
    let counts: Vec<String> = counts.collect();
    let by = match &part.relative_to {
        None => format!("by {}", heading(part.key)),
        Some(reference) => format!("by its ratio to {reference} of the same boot"),
    };
    format!(
        "{by}: {} of {}",
        counts.join(", "),
        counted(part.pairs.len(), "rows")
    )
}

/// What has to be known of a comparison.
pub fn caveats(comparison: &Comparison<'_>) -> Vec<String> {
    let pairs = || comparison.parts.iter().flat_map(|part| &part.pairs);
    let mut notes = Vec::new();
    let judged = pairs().filter(|pair| pair.interval.is_some()).count();
    if judged > 0 {
        notes.push(format!(
            "Intervals are of Hodges and Lehmann, with the exact distribution of Mann and Whitney, over boots, or over rounds where a machine boots \
             once: these share that boot and say less. Single iterations are not independent. Of {judged} intervals, {} would miss 1 by chance if \
             nothing differed.",
            short_of(judged as f64 * 0.05)
        ));
        notes.push(
            "The two files were measured at different times: a host that became slower in between shows as a difference of every row. \
             Ratios to a reference of the same boot do not show it."
                .into(),
        );
    }
    if pairs().any(|pair| matches!(pair.verdict, Verdict::TooFew(1.., 1..))) {
        notes.push("Four boots or rounds of each file are enough to show a difference, if they do not overlap.".into());
    }
    if pairs().any(|pair| matches!(pair.verdict, Verdict::Equal | Verdict::Differs(_))) {
        notes.push("Simulated rows have no noise: they are equal, or they differ.".into());
    }
    let (first, second) = (&comparison.first.rows, &comparison.second.rows);
    let common = comparison.parts[0].pairs.len();
    if first.len() > common || second.len() > common {
        notes.push(format!(
            "{common} rows are in both; A has {}, B has {}.",
            first.len(),
            second.len()
        ));
    }
    notes
}

fn short_of(value: f64) -> String {
    match value {
        _ if value < 1.0 => "less than one".into(),
        _ => format!("about {value:.0}"),
    }
}

/// What makes figures worth less.
pub fn warnings(document: &Document) -> Vec<String> {
    let rows = &document.rows;
    let sum = |key| rows.iter().map(|row| row.count(key)).sum::<u64>();
    let mut warnings = Vec::new();
    for (key, what) in [
        ("stale", "stale accesses: a flush was lost or came late"),
        (
            "wrong",
            "calls returned although a target had not run the function once",
        ),
    ] {
        if sum(key) > 0 {
            warnings.push(format!("{} {what}.", sum(key)));
        }
    }
    if rows
        .iter()
        .any(|row| row.0.get("counts_instructions") == Some(&true.into()))
    {
        warnings.push(
            "Times are guest instructions of all CPUs, a thousand to the microsecond.".into(),
        );
    }
    let others = document.params["busy_cores_of_others"].as_f64();
    let is_quick = document.params["quick"] == true;
    let text = remarks(others, is_quick.then_some("fewer and shorter runs")) + crowded(rows);
    warnings.extend(text.lines().map(str::to_owned));
    warnings
}
