//! Colours, where a terminal is that shows them and nobody forbids them (`NO_COLOR`).

use std::io::IsTerminal;

/// What a colour says (SGR parameters).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Colour {
    /// It is wrong.
    Red = 31,
    /// It is as it should be.
    Green = 32,
    /// It is worth a look.
    Yellow = 33,
    /// It is ours: no colour, but bold.
    Bold = 1,
}

/// Text for the standard output.
pub fn on_stdout(text: &str, colour: Colour) -> String {
    paint(text, colour, std::io::stdout().is_terminal())
}

/// Text for the standard error.
pub fn on_stderr(text: &str, colour: Colour) -> String {
    paint(text, colour, std::io::stderr().is_terminal())
}

fn paint(text: &str, colour: Colour, is_terminal: bool) -> String {
    match is_terminal && std::env::var_os("NO_COLOR").is_none() {
        true => format!("\x1b[{}m{text}\x1b[0m", colour as u8),
        false => text.to_owned(),
    }
}

/// A bench's tables for the standard output: the rows of the default policy, where the engine is behind others, and stale accesses stand out.
pub fn tables(text: &str) -> String {
    let line = |line: &str| match colour_of(line) {
        Some(colour) => on_stdout(line, colour),
        None => line.to_owned(),
    };
    text.split_inclusive('\n')
        .map(|whole| match whole.strip_suffix('\n') {
            Some(bare) => line(bare) + "\n",
            None => line(whole),
        })
        .collect()
}

fn colour_of(line: &str) -> Option<Colour> {
    let is_row_of_best =
        line.starts_with('│') && line.split(['│', '┆']).any(|cell| cell.trim() == "best");
    match line {
        _ if is_row_of_best => Some(Colour::Bold),
        _ if line.starts_with("behind ") => Some(Colour::Yellow),
        _ if line.starts_with("other work kept ") => Some(Colour::Yellow),
        _ if line.starts_with("best is ahead") => Some(Colour::Green),
        _ if line.starts_with("stale accesses: 0") => Some(Colour::Green),
        _ if line.starts_with("stale accesses: ") => Some(Colour::Red),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{Colour, colour_of, paint, tables};

    #[test]
    fn what_no_terminal_shows_is_left_as_it_is() {
        let text = "│ best ┆ 1 │\nbehind freebsd: 1\n\nstale accesses: 0";
        assert_eq!(paint(text, Colour::Red, false), text);
        // Tests have none.
        assert_eq!(tables(text), text);
        assert_eq!(paint("no", Colour::Red, true), "\x1b[31mno\x1b[0m");
    }

    #[test]
    fn what_is_ours_and_what_is_wrong_stands_out() {
        for (line, colour) in [
            ("│       1 ┆ best      ┆   8265908 │", Some(Colour::Bold)),
            ("│ peer ┆ best median │", None),
            ("│ freebsd ┆ 16 │", None),
            (
                "behind freebsd: 256 flush on 255 each",
                Some(Colour::Yellow),
            ),
            (
                "other work kept 0.7 host cores busy meanwhile",
                Some(Colour::Yellow),
            ),
            ("best is ahead of all others", Some(Colour::Green)),
            ("stale accesses: 0   raw samples: ...", Some(Colour::Green)),
            ("stale accesses: 12", Some(Colour::Red)),
        ] {
            assert_eq!(colour_of(line), colour, "{line}");
        }
    }
}
