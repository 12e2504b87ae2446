//! What the screen shows of the lines that come.

use shootdown_kernel_tests::grid::{COLUMNS, Grid, ROWS};

/// All rows after this text, without the blanks at their ends.
fn rows(text: &str) -> Vec<String> {
    let mut grid = Grid::blank();
    text.bytes().for_each(|byte| grid.put(byte));
    let row = |_| {
        let (_, cells) = grid.take_changed_row()?;
        let row: String = cells.iter().map(|&cell| cell as u8 as char).collect();
        Some(row.trim_end().to_owned())
    };
    (0..ROWS).map_while(row).collect()
}

/// The same up to the last row that is not empty.
fn shown(text: &str) -> Vec<String> {
    let mut rows = rows(text);
    let filled = rows.iter().rposition(|row| !row.is_empty());
    rows.truncate(filled.map_or(0, |last| last + 1));
    rows
}

#[test]
fn lines_stand_one_below_the_other_and_long_ones_go_on_in_the_next_row() {
    assert_eq!(shown("one\r\ntwo\n\nfour"), ["one", "two", "", "four"]);
    let long = "x".repeat(COLUMNS + 1);
    assert_eq!(shown(&format!("{long}\ny\n")), [&long[1..], "x", "y"]);
    assert_eq!(shown("\na"), ["", "a"]);
}

#[test]
fn lines_for_programs_are_left_out() {
    let text = "a\n@row {\"b\": 1}\nc @ d\n@info {}\n@";
    assert_eq!(shown(text), ["a", "c @ d"]);
    assert_eq!(shown("@row 1\na"), ["a"]);
    assert_eq!(shown("a\n@row 1\n\nb\n"), ["a", "", "b"]);
}

#[test]
fn the_last_lines_stay_and_the_end_of_the_last_one_moves_nothing() {
    let lines: Vec<String> = (0..ROWS + 7).map(|line| line.to_string()).collect();
    let rows = rows(&(lines.join("\n") + "\n@row\n"));
    assert_eq!(rows, lines[7..]);
}

#[test]
fn what_the_font_lacks_is_one_question_mark() {
    assert_eq!(shown("a\u{b5}\u{2026}b\x1b\tc"), ["a??b    c"]);
}

#[test]
fn only_rows_that_changed_are_drawn_again() {
    let mut grid = Grid::blank();
    let changed = |grid: &mut Grid| -> Vec<usize> {
        let next = || grid.take_changed_row().map(|(row, _)| row);
        core::iter::from_fn(next).collect()
    };
    assert_eq!(changed(&mut grid).len(), ROWS);
    "a\n@row\n".bytes().for_each(|byte| grid.put(byte));
    assert_eq!(changed(&mut grid), [0]);
    grid.put(b'b');
    assert_eq!(changed(&mut grid), [1]);
}
