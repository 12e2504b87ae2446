//! The lines by which a program under measurement talks to the lab over the console.
//!
//! `@row {json}`: one result. `@info {json}`: facts about the run, once. `@progress done total label`.
//! Everything else is for people.

use serde_json::{Map, Value};

/// A result as the program printed it.
pub type Object = Map<String, Value>;

/// One line that means something to the lab.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// A result.
    Row(Object),
    /// Facts about the run.
    Info(Object),
    /// How far the program is.
    Progress {
        /// Steps behind it.
        done: u64,
        /// All steps.
        total: u64,
        /// What it is doing.
        label: String,
    },
}

/// A line with a mark that could not be read: results are missing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a garbled result line on the console: {0}")]
pub struct Garbled(pub String);

/// Reads one console line. A kernel's own message may stand before the mark, never after it.
pub fn parse(line: &str) -> Option<Result<Message, Garbled>> {
    let marks = ["@row ", "@info ", "@progress "].iter();
    let at = marks.filter_map(|mark| line.find(mark)).min()?;
    let (mark, rest) = line[at..].split_once(' ')?;
    let garbled = || Garbled(line.chars().take(120).collect());
    let message = match mark {
        "@progress" => parse_progress(rest),
        mark => serde_json::from_str(rest).ok().map(|object| match mark {
            "@row" => Message::Row(object),
            _ => Message::Info(object),
        }),
    };
    Some(message.ok_or_else(garbled))
}

fn parse_progress(text: &str) -> Option<Message> {
    let mut words = text.splitn(3, ' ');
    let done = words.next()?.parse().ok()?;
    let total = words.next()?.parse().ok()?;
    Some(Message::Progress {
        done,
        total,
        label: words.next().unwrap_or_default().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_also_after_a_kernel_message() {
        for line in [
            r#"@row {"stale":0}"#,
            r#"[    0.1] random: @row {"stale":0}"#,
        ] {
            let Some(Ok(Message::Row(row))) = parse(line) else {
                panic!("{line}")
            };
            assert_eq!(row["stale"], 0);
        }
    }

    #[test]
    fn other_lines_mean_nothing() {
        for line in ["", "@", "@rows {}", "hello @ row", "row {}"] {
            assert_eq!(parse(line), None, "{line}");
        }
    }

    #[test]
    fn garbled_rows_are_reported_not_skipped() {
        let lines = "@row {\"a\":|@row [1]|@row 7|@progress x 3 y|@info \u{fffd}";
        for line in lines.split('|') {
            assert!(matches!(parse(line), Some(Err(_))), "{line}");
        }
    }

    #[test]
    fn progress_keeps_its_label_whole() {
        let expected = Message::Progress {
            done: 2,
            total: 9,
            label: "1 page, best".into(),
        };
        assert_eq!(parse("@progress 2 9 1 page, best"), Some(Ok(expected)));
    }
}
