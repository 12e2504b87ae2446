//! What the programs print for the lab.
//!
//! Lines that begin with `@` are for programs, everything else is for people:
//!
//! * `@info {json}` once: what runs where;
//! * `@progress done total label` now and then;
//! * `@row {json}` once for each result row.
//!
//! Each line is one write to standard output, so that lines of the kernel's log stay apart from it.

use std::io::{self, Write};

use serde_json::Value;

/// Prints what runs where.
pub fn info(value: &Value) {
    line(&format!("@info {value}\n"));
}

/// How much of the run is done.
#[derive(Debug)]
pub struct Meter {
    done: usize,
    total: usize,
}

impl Meter {
    /// Nothing of so many steps.
    pub fn new(total: usize) -> Self {
        Self { done: 0, total }
    }

    /// Prints how much is done, and what comes now; that is one more step.
    pub fn step(&mut self, label: &str) {
        progress(self.done.min(self.total), self.total, label);
        self.done += 1;
    }
}

/// Prints how much of the run is done.
pub fn progress(done: usize, total: usize, label: &str) {
    line(&format!("@progress {done} {total} {label}\n"));
}

/// Prints one result row.
pub fn row(value: &Value) {
    line(&format!("@row {value}\n"));
}

/// Prints a line for people.
pub fn say(text: &str) {
    line(&format!("{text}\n"));
}

/// Waits until everything printed has left a terminal; call last.
///
/// As init on Linux a program's end is the kernel's panic, whose text would otherwise overtake
/// what the terminal has still to send.
pub fn drain() {
    for file in [libc::STDOUT_FILENO, libc::STDERR_FILENO] {
        // SAFETY: waits for output; anything but a terminal is refused without effect.
        unsafe { libc::tcdrain(file) };
    }
}

fn line(text: &str) {
    let mut out = io::stdout().lock();
    // A closed standard output leaves nobody to tell.
    let _ignored = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
