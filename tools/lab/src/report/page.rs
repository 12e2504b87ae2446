//! The page: one file that needs nothing else, with everything of the results escaped.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::axes::Layout;
use super::compare::Comparison;
use super::document::Document;
use super::plots::{self, Group, Plot};
use super::survey::Survey;
use super::{compared, params, summary, tables};
use crate::failure::Outcome;

/// How it looks.
const STYLE: &str = include_str!("page.css");
/// What sorts.
const SCRIPT: &str = include_str!("page.js");
/// Nothing is fetched, whatever a result says.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'";

/// Of one result.
///
/// # Errors
/// A plot cannot be drawn.
pub fn of_one(document: &Document) -> Outcome<String> {
    let title = format!("{} on {}", document.workload, document.word("machine"));
    let body = html! {
        h1 { (title) }
        (origin(&[("", document)]))
        (bench(document, "")?)
    };
    Ok(whole(&title, body))
}

/// What one result says; identifiers begin with `prefix`.
fn bench(document: &Document, prefix: &str) -> Outcome<Markup> {
    let layout = Layout::new(&document.rows);
    Ok(html! {
        p.headline { (summary::headline(&layout)) }
        (notes(&summary::warnings(document)))
        (results(&layout, prefix)?)
        (settings(document, "Parameters"))
    })
}

/// Of several results of one machine.
///
/// # Errors
/// A plot cannot be drawn.
pub fn of_survey(survey: &Survey) -> Outcome<String> {
    let first = &survey.benches[0];
    let title = format!("survey of {}", first.word("machine"));
    let section = |(number, document): (usize, &Document)| -> Outcome<Markup> {
        let prefix = format!("bench{}-", number + 1);
        Ok(html! {
            section {
                h2.bench { (document.workload) }
                (bench(document, &prefix)?)
            }
        })
    };
    let sections = survey.benches.iter().enumerate().map(section);
    let sections = sections.collect::<Outcome<Vec<Markup>>>()?;
    let body = html! {
        h1 { (title) }
        (origin(&[("", first)]))
        (notes(&survey.missing))
        @for section in sections { (section) }
        details.settings { summary { "Machine" } (params::markup(&survey.about)) }
    };
    Ok(whole(&title, body))
}

/// Of two results.
///
/// # Errors
/// A plot cannot be drawn.
pub fn of_two(comparison: &Comparison<'_>) -> Outcome<String> {
    let both = [("A", comparison.first), ("B", comparison.second)];
    let title = format!("{}: two results", comparison.first.workload);
    let mut warnings = summary::caveats(comparison);
    for (name, document) in both {
        let own = summary::warnings(document).into_iter();
        warnings.extend(own.map(|warning| format!("{name}: {warning}")));
    }
    let body = html! {
        h1 { (title) }
        (origin(&both))
        p.headline { (summary::verdicts(comparison)) }
        (notes(&warnings))
        @for table in compared::tables(comparison, true) { (table.markup()) }
        @for group in plots::of_two(comparison)? { (plots_markup(&group)) }
        (others(comparison))
        (changes(comparison))
        div.pair { @for (name, document) in both {
            section {
                h2 { (name) ": " (document.name) }
                (results(&Layout::new(&document.rows), &format!("{}-", name.to_lowercase()))?)
                (settings(document, "Parameters"))
            }
        } }
    };
    Ok(whole(&title, body))
}

fn whole(title: &str, body: Markup) -> String {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                main { (body) }
                footer { "Made by lab report " (env!("CARGO_PKG_VERSION")) ". Tables sort by a click on a head. In plots, series are moved a little aside, so that equal ones do not hide each other." }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    }
    .into_string()
}

/// Where, by which commit and when.
fn origin(documents: &[(&str, &Document)]) -> Markup {
    html! {
        div.origin { @for (name, document) in documents {
            dl {
                @if !name.is_empty() { dt { "file " (name) } dd { (document.name) } }
                dt { "machine" } dd { (document.word("machine")) }
                @let grounds = grounds(document);
                @if !grounds.is_empty() { dt { "runs on" } dd { (grounds) } }
                dt { "commit" } dd { (document.word("commit")) }
                dt { "date" } dd { (document.date()) }
            }
        } }
    }
}

/// What machines of rows run on.
fn grounds(document: &Document) -> String {
    let mut grounds: Vec<&str> = document.rows.iter().map(|row| row.text("accel")).collect();
    grounds.sort_unstable();
    grounds.dedup();
    grounds.join("; ")
}

fn notes(notes: &[String]) -> Markup {
    html! {
        @if !notes.is_empty() {
            ul.notes { @for note in notes { li { (note) } } }
        }
    }
}

/// Tables and plots of one result.
fn results(layout: &Layout<'_>, prefix: &str) -> Outcome<Markup> {
    Ok(html! {
        @for table in tables::overview(layout, prefix) { (table.markup()) }
        @for group in plots::of_one(layout)? { (plots_markup(&group)) }
        details {
            summary { "All figures" }
            (tables::all_figures(layout, prefix).markup())
        }
        @if let Some(table) = tables::counters(layout, prefix) {
            details { summary { "Counters" } (table.markup()) }
        }
    })
}

fn plots_markup(group: &Group) -> Markup {
    html! {
        section.plots {
            h2 { (group.title) }
            @if !group.note.is_empty() { p.note { (group.note) } }
            div.grid { @for plot in &group.plots { (plot_markup(plot, &group.title)) } }
            @if group.left_out > 0 {
                p.note { (group.left_out) " more are left out here; the tables have all rows." }
            }
        }
    }
}

fn plot_markup(plot: &Plot, of: &str) -> Markup {
    html! {
        figure {
            figcaption { (plot.title) }
            ul.legend { @for (look, name) in &plot.legend { li { (look.glyph()) (name) } } }
            div role="img" aria-label={ (of) ", " (plot.title) } { (PreEscaped(&plot.svg)) }
        }
    }
}

fn settings(document: &Document, title: &str) -> Markup {
    html! { details.settings { summary { (title) } (params::markup(&document.settings())) } }
}

/// Figures of which no boot or round is known.
fn others(comparison: &Comparison<'_>) -> Markup {
    let tables = compared::tables(comparison, false);
    html! {
        @if !tables.is_empty() {
            details {
                summary { "Figures without a verdict" }
                @for table in tables { (table.markup()) }
            }
        }
    }
}

/// Parameters that are not the same.
fn changes(comparison: &Comparison<'_>) -> Markup {
    let changes = comparison.changes();
    html! {
        details open[(1..=12).contains(&changes.len())] {
            summary { "Parameters that differ: " (changes.len()) }
            div.scroll tabindex="0" { table {
                thead { tr { th.words scope="col" { "parameter" } th.words scope="col" { "A" } th.words scope="col" { "B" } } }
                tbody { @for (path, first, second) in changes {
                    tr { td.words { (path) } td.words { (first) } td.words { (second) } }
                } }
            } }
        }
    }
}
