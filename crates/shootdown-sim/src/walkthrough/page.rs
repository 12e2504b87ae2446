//! [`page()`]: one HTML file that shows runs and needs nothing else.

use crate::walkthrough::Walkthrough;

const TEMPLATE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPTS: [&str; 2] = [include_str!("tracks.js"), include_str!("page.js")];

/// The page of one run, or of several of which the reader chooses.
///
/// # Panics
/// Never: a document is made of text and numbers.
pub fn page(runs: &[Walkthrough]) -> String {
    let documents = serde_json::to_string(runs).expect("text and numbers");
    let title = runs.first().map_or("", |run| run.title.as_str());
    // The template comes in pieces: nothing that is filled in is looked at again.
    let mut pieces = TEMPLATE.split("@@");
    let mut page = String::with_capacity(documents.len() + TEMPLATE.len());
    while let Some(piece) = pieces.next() {
        page.push_str(piece);
        match pieces.next() {
            Some("title") => page.push_str(&escape(title)),
            Some("style") => page.push_str(STYLE),
            Some("script") => page.extend(SCRIPTS),
            Some("documents") => page.push_str(&documents.replace('<', "\\u003c")),
            Some(other) => page.push_str(other),
            None => {}
        }
    }
    page
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
