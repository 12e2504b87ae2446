//! QEMU's monitor: where the processors of a machine are that does not end, and what is in its memory.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

/// How long each answer is awaited.
const PATIENCE: Duration = Duration::from_secs(1);
/// Between two looks: a processor that goes on is elsewhere then.
const MOMENT: Duration = Duration::from_millis(20);
/// As long as the name of a socket may be, and a few characters less.
const MOST_BYTES: usize = 100;

/// The monitor of one machine.
#[derive(Debug)]
pub struct Monitor {
    socket: PathBuf,
}

impl Monitor {
    /// Has `command`, which runs QEMU, offer a monitor in this directory, if its name allows that.
    pub fn offer(command: &mut Command, directory: &Path) -> Option<Self> {
        let socket = directory.join("monitor");
        let name = socket.to_str()?;
        if name.len() > MOST_BYTES || name.contains(',') {
            return None;
        }
        let chardev = format!("socket,id=monitor,server=on,wait=off,path={name}");
        command.args(["-chardev", &chardev, "-mon", "chardev=monitor,mode=control"]);
        Some(Self { socket })
    }

    /// The registers of all processors, twice within a moment, each behind the kernel's function where it is. The machine stands still meanwhile, or
    /// they would be those of an instruction half done.
    ///
    /// # Errors
    /// The monitor is not there yet, or does not answer.
    pub fn registers(&self, symbols: Option<&str>) -> std::io::Result<String> {
        let read = || {
            self.ask("stop")?;
            let registers = self.ask("info registers -a");
            // It may end by itself yet.
            self.ask("cont")?;
            std::io::Result::Ok(with_functions(&registers?, symbols.unwrap_or_default()))
        };
        let first = read()?;
        std::thread::sleep(MOMENT);
        let second = read().unwrap_or_else(|error| format!("no answer: {error}\n"));
        Ok(format!("{first}a moment later\n{second}"))
    }

    /// What the monitor answers to this line.
    ///
    /// # Errors
    /// As [`registers`](Self::registers), or QEMU does not know the line.
    pub fn ask(&self, line: &str) -> std::io::Result<String> {
        let stream = UnixStream::connect(&self.socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut answers = BufReader::new(stream.try_clone()?).lines();
        let ask = json!({"execute": "human-monitor-command", "arguments": {"command-line": line}, "id": 1});
        write!(&stream, "{}{ask}", json!({"execute": "qmp_capabilities"}))?;
        loop {
            let answer = answers.next().ok_or(std::io::ErrorKind::UnexpectedEof)??;
            let answer: Value = serde_json::from_str(&answer)?;
            if answer["id"] == 1 {
                let text = answer["return"].as_str().map(str::to_owned);
                return text.ok_or_else(|| std::io::Error::other(answer.to_string()));
            }
        }
    }
}

/// Puts before each line with an instruction pointer the function that it is in, of a table as [`symbols`](super::symbols) makes it.
fn with_functions(registers: &str, symbols: &str) -> String {
    let mut functions: Vec<(u64, &str)> = symbols
        .lines()
        .filter_map(|line| {
            let (address, name) = line.split_once(" t ")?;
            Some((u64::from_str_radix(address, 16).ok()?, name))
        })
        .collect();
    functions.sort_unstable();
    let mut text = String::new();
    for line in registers.lines() {
        let mut words = line.split_whitespace();
        let is_kernels = !line.contains("CPL=3");
        let pointer = words.find_map(|word| word.strip_prefix("RIP=").filter(|_| is_kernels));
        if let Some(at) = pointer.and_then(|digits| u64::from_str_radix(digits, 16).ok()) {
            let before = functions.partition_point(|(address, _)| *address <= at);
            if let Some((start, name)) = before.checked_sub(1).map(|last| functions[last]) {
                let _ = writeln!(text, "in {name} + {:#x}", at - start);
            }
        }
        let _ = writeln!(text, "{line}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_has_its_function() {
        let symbols = "0000000000002000 t later\n0000000000001000 t earlier\n";
        let text = with_functions(
            "CPU#0\nRAX=1 RBX=2\nRIP=0000000000001fff RFL=2\nRIP=0000000000000010",
            symbols,
        );
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[2..4],
            ["in earlier + 0xfff", "RIP=0000000000001fff RFL=2"]
        );
        assert_eq!(lines[4], "RIP=0000000000000010", "{text}");
        let user = "RIP=0000000000001fff RFL=2 CPL=3\n";
        assert_eq!(with_functions(user, symbols), user);
    }

    #[test]
    fn a_monitor_that_is_not_there_is_no_failure() {
        let directory = tempfile::tempdir().unwrap();
        let monitor = Monitor::offer(&mut Command::new("true"), directory.path());
        assert!(monitor.unwrap().registers(None).is_err());
        let long = directory.path().join("x".repeat(MOST_BYTES));
        for name in [long.as_path(), Path::new("/tmp/a,b")] {
            let mut command = Command::new("true");
            assert!(Monitor::offer(&mut command, name).is_none());
            assert_eq!(command.get_args().count(), 0);
        }
    }
}
