//! What the kernel does at the first write to a clean page, where there is a choice.

use std::fs;
use std::io;

/// Where the reference kernel takes it.
const FILE: &str = "/proc/shootdown/first_writes";

/// What a row has the kernel do. `before` is where T5 began: a flush, one at a time; `published` is T5: a flush. No other needs one.
fn of_row(row: &str) -> &'static str {
    match row {
        "before" => "flushed-one-by-one",
        "published" => "flushed",
        _ => "unflushed",
    }
}

/// Has the kernel do what the row says, unless it has no choice.
pub fn choose(row: &str) -> io::Result<()> {
    match fs::write(FILE, of_row(row)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        written => written,
    }
}
