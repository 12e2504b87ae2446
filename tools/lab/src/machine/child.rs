//! One child process under a deadline: its output is read while it runs, and it never outlives us.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use rustix::process::{Signal, set_parent_process_death_signal};

use crate::failure::{Doing, Failure, Outcome};

/// Output beyond this ends the child: no run of ours prints a tenth of it.
const OUTPUT_LIMIT_BYTES: usize = 64 << 20;
/// How often a silent child is looked at.
const TICK: Duration = Duration::from_millis(50);
/// How long output is awaited after the end: a grandchild may hold the pipe open for ever.
const DRAIN: Duration = Duration::from_millis(300);

/// A child that has ended, with all that it printed.
#[derive(Debug)]
pub struct Child {
    /// How it ended by itself; none if it was ended by us.
    pub status: Option<ExitStatus>,
    /// Why we ended it.
    pub stopped: Option<Stopped>,
    /// Its standard output.
    pub output: String,
    /// Its standard error.
    pub errors: String,
}

/// Why a child was ended by us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// The deadline passed.
    Overrun,
    /// It printed without end.
    Flooding,
    /// Whoever listened saw no sense in waiting any longer.
    GivenUp,
}

enum Chunk {
    Output(Vec<u8>),
    Errors(Vec<u8>),
}

impl Child {
    /// Runs `command` without input until it ends or `deadline` has passed, and hands every line of
    /// its standard output to `on_line` as it comes, without line ending. Blocks.
    ///
    /// # Errors
    /// The command could not be started.
    pub fn run(
        command: &mut Command,
        deadline: Duration,
        on_line: &mut dyn FnMut(&str),
    ) -> std::io::Result<Self> {
        Self::run_until(command, deadline, on_line, &mut || false)
    }

    /// As [`run`](Self::run), but ends the child also when `gives_up`, which is asked all the time, says so.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_until(
        command: &mut Command,
        deadline: Duration,
        on_line: &mut dyn FnMut(&str),
        gives_up: &mut dyn FnMut() -> bool,
    ) -> std::io::Result<Self> {
        let started = Instant::now();
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.env("TMPDIR", tempfile::env::temp_dir());
        // SAFETY: between fork and exec the closure makes one system call and allocates nothing.
        unsafe {
            command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?));
        }
        let mut child = command.spawn()?;
        let (sender, chunks) = channel();
        if let Some(pipe) = child.stdout.take() {
            forward(pipe, sender.clone(), Chunk::Output);
        }
        if let Some(pipe) = child.stderr.take() {
            forward(pipe, sender, Chunk::Errors);
        }
        let mut heard = Heard::default();
        let (status, stopped) = loop {
            let left = deadline.saturating_sub(started.elapsed());
            if left.is_zero() {
                let status = child.try_wait()?;
                break (status, status.is_none().then_some(Stopped::Overrun));
            }
            if heard.is_flooded() {
                break (None, Some(Stopped::Flooding));
            }
            if gives_up() {
                break (None, Some(Stopped::GivenUp));
            }
            match chunks.recv_timeout(left.min(TICK)) {
                Ok(chunk) => heard.take(chunk, on_line),
                Err(silence) => {
                    if let Some(status) = child.try_wait()? {
                        break (Some(status), None);
                    }
                    if silence == RecvTimeoutError::Disconnected {
                        std::thread::sleep(left.min(TICK));
                    }
                }
            }
        };
        if status.is_none() {
            child.kill()?;
            child.wait()?;
        }
        let drained_by = Instant::now() + DRAIN;
        let left = || drained_by.saturating_duration_since(Instant::now());
        while !heard.is_flooded()
            && let Ok(chunk) = chunks.recv_timeout(left())
        {
            heard.take(chunk, on_line);
        }
        heard.finish(on_line);
        Ok(Self {
            status,
            stopped,
            output: text(&heard.output),
            errors: text(&heard.errors),
        })
    }

    /// Runs `command`, which is to do well by itself within `deadline`. Blocks.
    ///
    /// # Errors
    /// It did not; the last that it said.
    pub fn succeed(command: &mut Command, deadline: Duration) -> Outcome<Self> {
        let name = Path::new(command.get_program()).file_name();
        let name = name.unwrap_or_default().to_string_lossy().into_owned();
        let child = Self::run(command, deadline, &mut |_| ()).doing(format!("start {name}"))?;
        if child.has_succeeded() {
            return Ok(child);
        }
        let said = child.last_error().unwrap_or("it said nothing");
        Err(Failure::work(format!("{name} failed: {said}")))
    }

    /// Whether it ended by itself with status 0.
    pub fn has_succeeded(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    /// The last line that it wrote to standard error.
    pub fn last_error(&self) -> Option<&str> {
        let mut lines = self.errors.lines().rev().map(str::trim);
        lines.find(|line| !line.is_empty())
    }
}

/// The first line that a command answers with; none if it cannot be run or fails.
pub fn answer(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).output().ok()?;
    let line = text(&output.stdout).lines().next()?.to_owned();
    output.status.success().then_some(line)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn forward(
    mut pipe: impl Read + Send + 'static,
    sender: Sender<Chunk>,
    wrap: fn(Vec<u8>) -> Chunk,
) {
    std::thread::spawn(move || {
        let mut buffer = vec![0; 16 << 10];
        while let Ok(length @ 1..) = pipe.read(&mut buffer) {
            if sender.send(wrap(buffer[..length].to_vec())).is_err() {
                break;
            }
        }
    });
}

/// What the child has printed so far.
#[derive(Default)]
struct Heard {
    output: Vec<u8>,
    errors: Vec<u8>,
    /// Where the line starts that is not yet complete.
    line_start: usize,
}

impl Heard {
    fn take(&mut self, chunk: Chunk, on_line: &mut dyn FnMut(&str)) {
        match chunk {
            Chunk::Errors(bytes) => self.errors.extend(bytes),
            Chunk::Output(bytes) => {
                self.output.extend(bytes);
                self.report_lines(on_line);
            }
        }
    }

    fn report_lines(&mut self, on_line: &mut dyn FnMut(&str)) {
        while let Some(length) = self.output[self.line_start..]
            .iter()
            .position(|&byte| byte == b'\n')
        {
            let line = &self.output[self.line_start..self.line_start + length];
            on_line(String::from_utf8_lossy(line).trim_end_matches('\r'));
            self.line_start += length + 1;
        }
    }

    fn finish(&mut self, on_line: &mut dyn FnMut(&str)) {
        let rest = &self.output[self.line_start..];
        if !rest.is_empty() {
            on_line(String::from_utf8_lossy(rest).trim_end_matches('\r'));
        }
    }

    fn is_flooded(&self) -> bool {
        self.output.len() + self.errors.len() > OUTPUT_LIMIT_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, deadline: Duration) -> (Child, Vec<String>) {
        let mut lines = Vec::new();
        let mut command = Command::new("sh");
        let child = Child::run(command.args(["-c", script]), deadline, &mut |line| {
            lines.push(line.to_owned());
        });
        (child.unwrap(), lines)
    }

    #[test]
    fn lines_come_whole_and_without_their_ends() {
        let (child, lines) = shell(
            r"printf 'a\r\nb'; sleep 0.1; printf 'c\nlast'; echo no >&2; exit 3",
            Duration::from_secs(20),
        );
        assert_eq!(lines, ["a", "bc", "last"]);
        assert_eq!(child.errors, "no\n");
        assert_eq!(child.status.and_then(|status| status.code()), Some(3));
    }

    #[test]
    fn overrun_ends_the_child_though_a_grandchild_holds_the_pipe() {
        let started = Instant::now();
        let (child, lines) = shell("echo up; sleep 30", Duration::from_secs(3));
        assert_eq!(child.stopped, Some(Stopped::Overrun));
        assert_eq!(lines, ["up"]);
        assert!(started.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn child_that_closes_its_output_is_still_held_to_the_deadline() {
        let (child, _) = shell("exec >&- 2>&-; sleep 20", Duration::from_millis(300));
        assert_eq!(child.stopped, Some(Stopped::Overrun));
    }

    #[test]
    fn a_child_that_has_ended_when_its_deadline_is_noticed_is_no_overrun() {
        let deadline = Duration::from_secs(3);
        let started = Instant::now();
        let mut command = Command::new("echo");
        let child = Child::run(command.arg("up"), deadline, &mut |_| {
            std::thread::sleep(deadline.saturating_sub(started.elapsed()));
        });
        let child = child.unwrap();
        assert_eq!(child.stopped, None);
        assert!(child.status.is_some_and(|status| status.success()));
    }

    #[test]
    fn a_listener_may_give_up() {
        let heard = std::cell::Cell::new(false);
        let mut command = Command::new("sh");
        let child = Child::run_until(
            command.args(["-c", "echo up; sleep 30"]),
            Duration::from_secs(20),
            &mut |_| heard.set(true),
            &mut || heard.get(),
        );
        let child = child.unwrap();
        assert_eq!(child.stopped, Some(Stopped::GivenUp));
        assert_eq!(child.output, "up\n");
    }

    #[test]
    fn endless_output_is_cut() {
        let (child, _) = shell(
            "exec yes aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
            Duration::from_secs(60),
        );
        assert_eq!(child.stopped, Some(Stopped::Flooding));
    }
}
