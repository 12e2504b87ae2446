//! What the engine tells, in a few words.

use shootdown::{FreedTables, LocalFlush, watch::TraceEvent};

use crate::walkthrough::Sort;

const PAGE_SHIFT: u32 = 12;

/// What kind of thing an event is, and how to say it in a box.
pub(crate) fn of_engine(event: &TraceEvent) -> (Sort, String) {
    let (sort, words) = match event {
        TraceEvent::Submitted { targets, ipis, .. } => {
            let words = format!("submits to {targets}, interrupts {ipis}");
            return (Sort::Engine, words);
        }
        TraceEvent::Acknowledged { initiator, .. } => {
            return (Sort::Engine, format!("acks {initiator}"));
        }
        TraceEvent::HandlerEntered { .. } => (Sort::Interrupt, "handler begins"),
        TraceEvent::HandlerLeft { .. } => (Sort::Interrupt, "handler ends"),
        TraceEvent::FlushStarted { .. } => (Sort::Flush, "flush begins"),
        TraceEvent::FlushFinished { .. } => (Sort::Flush, "flush ends"),
        TraceEvent::FunctionStarted { .. } => (Sort::Function, "function begins"),
        TraceEvent::FunctionFinished { .. } => (Sort::Function, "function ends"),
        TraceEvent::WaitStarted { .. } => (Sort::Wait, "wait begins"),
        TraceEvent::WaitFinished { .. } => (Sort::Wait, "wait ends"),
        TraceEvent::FoundDone { .. } => (Sort::Wait, "found done"),
        TraceEvent::Switched { .. } => (Sort::Engine, "switched"),
        TraceEvent::Online { .. } => (Sort::Engine, "online"),
        TraceEvent::Offline { .. } => (Sort::Engine, "offline"),
        _ => (Sort::Engine, "event"),
    };
    (sort, words.to_owned())
}

/// What is dropped. Pages are numbers.
pub(super) fn of_flush(operation: LocalFlush) -> String {
    match operation {
        LocalFlush::Pages(range, freed) => {
            let mut pages = range.iter_pages().map(|address| address >> PAGE_SHIFT);
            let first = pages.next().unwrap_or(0);
            let pages = match pages.last() {
                None => format!("drops page {first}"),
                Some(last) => format!("drops pages {first} to {last}"),
            };
            match freed {
                FreedTables::Yes => pages + " and tables",
                FreedTables::No => pages,
            }
        }
        LocalFlush::Space => "drops the loaded tag".to_owned(),
        LocalFlush::All => "drops everything".to_owned(),
    }
}

/// What kind of thing a sentence of the story is about.
pub(crate) fn sort_of(text: &str) -> Sort {
    match text.split(' ').next() {
        Some("drops" | "has") => Sort::Flush,
        Some("locks" | "unlocks") => Sort::Lock,
        _ => Sort::Program,
    }
}
