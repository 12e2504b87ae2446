//! Progress on standard error: a bar on a terminal, a plain line now and then elsewhere.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// How far apart the plain lines are while nothing but the count changes.
const PLAIN_LINE_EVERY: Duration = Duration::from_secs(10);
/// What takes no longer needs no plain line.
const QUIET: Duration = Duration::from_secs(2);

/// One progress display.
#[derive(Debug)]
pub struct Progress {
    bar: Option<ProgressBar>,
    last_line: Option<Instant>,
    /// How many parts, of how many that take as long, were over before this one began.
    parts: (u32, u32),
    begun: Instant,
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
            parts: (0, 1),
            begun: Instant::now(),
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

    /// So many of so many parts are over, which take as long, and the next one has begun.
    pub fn part(&mut self, over: u32, of: u32, label: &str) {
        if over == 0 {
            self.begun = Instant::now();
        }
        self.parts = (over, of);
        self.stage(label);
    }

    /// So many of so many steps of this part are done.
    pub fn step(&mut self, done: u64, total: u64, label: &str) {
        let is_due = match self.last_line {
            Some(at) => at.elapsed() >= PLAIN_LINE_EVERY,
            None => done == 0 || self.begun.elapsed() >= QUIET,
        };
        self.show(done, total, label, is_due);
    }

    /// So many of so many steps are done, and the next one has begun, which may take long: it is named at once.
    pub fn begin_step(&mut self, done: u64, total: u64, label: &str) {
        self.show(done, total, label, true);
    }

    fn show(&mut self, done: u64, total: u64, label: &str, is_due: bool) {
        let (over, of) = self.parts;
        let (done, total) = (u64::from(over) * total + done, u64::from(of) * total);
        match &self.bar {
            Some(bar) => {
                bar.set_length(total);
                bar.set_position(done);
                bar.set_message(label.to_owned());
            }
            None if is_due => {
                let left = left(self.begun.elapsed(), done, total);
                eprintln!("lab: {done} of {total}{left}: {label}");
                self.last_line = Some(Instant::now());
            }
            None => {}
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

/// How long the rest takes if it goes on as before, in words behind the count; nothing before the first step.
fn left(since: Duration, done: u64, total: u64) -> String {
    if done == 0 || done >= total {
        return String::new();
    }
    let seconds = since.as_secs_f64() * (total - done) as f64 / done as f64;
    match seconds {
        ..120.0 => format!(", {seconds:.0} s left"),
        _ => format!(", {:.0} min left", seconds / 60.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_takes_as_long_as_what_is_done() {
        let since = Duration::from_secs(30);
        assert_eq!(left(since, 0, 4), "");
        assert_eq!(left(since, 1, 4), ", 90 s left");
        assert_eq!(left(since, 1, 21), ", 10 min left");
        assert_eq!(left(since, 4, 4), "");
    }
}
