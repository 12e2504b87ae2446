//! Progress on standard error: a bar on a terminal, a plain line now and then elsewhere.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// How far apart the plain lines are while nothing but the count changes.
const PLAIN_LINE_EVERY: Duration = Duration::from_secs(10);

/// One progress display.
#[derive(Debug)]
pub struct Progress {
    bar: Option<ProgressBar>,
    last_line: Option<Instant>,
}

impl Progress {
    /// A display that shows nothing yet.
    pub fn new() -> Self {
        let style = ProgressStyle::with_template(
            "{elapsed_precise} {bar:30} {pos}/{len}, {eta} left  {msg}",
        );
        let style = style.ok().filter(|_| std::io::stderr().is_terminal());
        Self {
            bar: style.map(|style| ProgressBar::new(0).with_style(style)),
            last_line: None,
        }
    }

    /// A new stage has begun.
    pub fn stage(&mut self, label: &str) {
        match &self.bar {
            Some(bar) => bar.set_message(label.to_owned()),
            None => {
                eprintln!("lab: {label}");
                self.last_line = Some(Instant::now());
            }
        }
    }

    /// So many of so many steps are done.
    pub fn step(&mut self, done: u64, total: u64, label: &str) {
        match &self.bar {
            Some(bar) => {
                bar.set_length(total);
                bar.set_position(done);
                bar.set_message(label.to_owned());
            }
            None => {
                let is_recent = |at: &Instant| at.elapsed() < PLAIN_LINE_EVERY;
                if !self.last_line.as_ref().is_some_and(is_recent) {
                    eprintln!("lab: {done} of {total}: {label}");
                    self.last_line = Some(Instant::now());
                }
            }
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
