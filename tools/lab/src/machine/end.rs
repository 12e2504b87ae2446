//! How a machine ended: read from QEMU's exit code and from the console.

use std::fmt;
use std::time::Duration;

use super::child::{Child, Stopped};

/// The reference kernel writes `v` to the debug port and QEMU then exits with `2v + 1`.
const LAST_PLAIN_STATUS: i32 = 0x3d;
const SIGNAL_OR_LARGE: i32 = 0x3e;
const BOOT_FAILED: i32 = 0x7d;
const PANICKED: i32 = 0x7e;

/// How a machine ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// The first process exited with this status.
    Exited(u8),
    /// A signal ended the first process.
    Signalled(String),
    /// The kernel panicked.
    Panicked(String),
    /// The kernel could not start the first process.
    BootFailed,
    /// The machine reset or powered off without a status.
    Reset,
    /// The emulator itself failed; what it said.
    Emulator(String),
    /// The deadline passed.
    Overrun(Duration),
    /// The console was flooded.
    Flooded,
    /// It did not get on.
    GivenUp,
}

impl End {
    /// Reads the end of a machine that booted the reference kernel.
    pub fn of_shootdown(child: &Child, deadline: Duration) -> Self {
        if let Some(end) = Self::outside(child, deadline) {
            return end;
        }
        let code = child.status.and_then(|status| status.code()).unwrap_or(0);
        if code == 0 {
            return Self::Reset;
        }
        // QEMU exits with 1 for its own mistakes too: only the console tells them apart.
        let reported = init_status(&child.output);
        match (code - 1) / 2 {
            _ if code % 2 == 0 => Self::Emulator(said(child)),
            0 if reported != Some(Self::Exited(0)) => Self::Emulator(said(child)),
            value @ 0..=LAST_PLAIN_STATUS => Self::Exited(value as u8),
            SIGNAL_OR_LARGE => {
                reported.unwrap_or_else(|| Self::Signalled("an unnamed signal".into()))
            }
            BOOT_FAILED => Self::BootFailed,
            PANICKED => Self::Panicked(line_after(&child.output, "KERNEL PANIC")),
            other => Self::Emulator(format!(
                "the kernel ended with the unknown value {other:#x}"
            )),
        }
    }

    /// Reads the end of a Bochs that booted the reference kernel: its exit code says nothing.
    pub fn of_bochs(child: &Child, deadline: Duration) -> Self {
        let console = &child.output;
        if console.contains("KERNEL PANIC") {
            return Self::Panicked(line_after(console, "KERNEL PANIC"));
        }
        if console.contains("shootdown: cannot boot") {
            return Self::BootFailed;
        }
        Self::outside(child, deadline)
            .or_else(|| init_status(console))
            .unwrap_or_else(|| Self::Emulator(said(child)))
    }

    /// Reads the end of a machine that booted Linux: it panics when the first process exits.
    pub fn of_linux(child: &Child, deadline: Duration) -> Self {
        if let Some(end) = Self::outside(child, deadline) {
            return end;
        }
        if let Some(status) = linux_exit_code(&child.output) {
            return match status {
                status if status & 0x7f == 0 => Self::Exited((status >> 8) as u8),
                status => Self::Signalled(signal_name(status & 0x7f)),
            };
        }
        if child.output.contains("Kernel panic") {
            return Self::Panicked(line_after(&child.output, "Kernel panic"));
        }
        match child.status.and_then(|status| status.code()) {
            Some(0) => Self::Reset,
            _ => Self::Emulator(said(child)),
        }
    }

    /// The end of a program that the first process has started, and whose end it has taken over: as a shell does, it exits with 128 and the number of a
    /// signal, and says before, behind these words, that there was one.
    pub fn of_started(&self, console: &str, words: &str) -> Self {
        const KILLED: u8 = 128;
        let said = console.rsplit_once(words).and_then(|(_, rest)| {
            let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
            digits.parse::<u8>().ok()
        });
        match (self, said) {
            (Self::Exited(status), Some(number)) if *status == KILLED.wrapping_add(number) => {
                Self::Signalled(signal_name(number.into()))
            }
            _ => self.clone(),
        }
    }

    /// The ends that do not depend on the guest.
    fn outside(child: &Child, deadline: Duration) -> Option<Self> {
        use std::os::unix::process::ExitStatusExt;
        Some(match child.stopped {
            Some(Stopped::Overrun) => Self::Overrun(deadline),
            Some(Stopped::Flooding) => Self::Flooded,
            Some(Stopped::GivenUp) => Self::GivenUp,
            None => {
                let signal = child.status?.signal()?;
                Self::Emulator(format!("ended by {}", signal_name(signal as u32)))
            }
        })
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(status) => write!(f, "the program exited with status {status}"),
            Self::Signalled(name) => write!(f, "the program was killed by {name}"),
            Self::Panicked(line) => write!(f, "the kernel panicked: {line}"),
            Self::BootFailed => f.write_str("the kernel could not start the program"),
            Self::Reset => f.write_str("the machine reset without a status (a triple fault?)"),
            Self::Emulator(words) => write!(f, "the emulator failed: {words}"),
            Self::Overrun(deadline) => {
                write!(
                    f,
                    "still running after {} s, so it was ended",
                    deadline.as_secs()
                )
            }
            Self::GivenUp => f.write_str("it did not get on, so it was ended"),
            Self::Flooded => {
                f.write_str("the console printed without end, so the machine was ended")
            }
        }
    }
}

/// What the emulator said last, or that it said nothing.
fn said(child: &Child) -> String {
    let code = child.status.and_then(|status| status.code()).unwrap_or(-1);
    let silence = || format!("it exited with code {code} and said nothing");
    child.last_error().map_or_else(silence, str::to_owned)
}

/// The reference kernel's closing line.
fn init_status(console: &str) -> Option<End> {
    console.lines().rev().find_map(|line| {
        if let Some((_, status)) = line.split_once("init exited with status ") {
            let status: i64 = status.split_whitespace().next()?.parse().ok()?;
            return Some(End::Exited(u8::try_from(status & 0xff).ok()?));
        }
        let (_, name) = line.split_once("init killed by ")?;
        Some(End::Signalled(
            name.split([':', ' ', '\r']).next()?.to_owned(),
        ))
    })
}

/// Linux's closing line, as `wait` would report it: status in the second byte, signal in the first.
fn linux_exit_code(console: &str) -> Option<u32> {
    let (_, digits) = console.rsplit_once("exitcode=0x")?;
    let digits: String = digits.chars().take_while(char::is_ascii_hexdigit).collect();
    u32::from_str_radix(&digits, 16).ok()
}

fn line_after(console: &str, words: &str) -> String {
    let line = console.lines().find(|line| line.contains(words));
    line.unwrap_or(words).trim().to_owned()
}

fn signal_name(number: u32) -> String {
    let name = match number {
        4 => "SIGILL",
        5 => "SIGTRAP",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        15 => "SIGTERM",
        31 => "SIGSYS",
        other => return format!("signal {other}"),
    };
    name.to_owned()
}

/// The number of a signal by name, for a shell's 128 + n.
pub fn signal_number(name: &str) -> Option<u8> {
    (1..64).find(|&number| signal_name(number.into()) == name)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::*;

    const DEADLINE: Duration = Duration::from_secs(9);

    fn ended(code: i32, output: &str, errors: &str) -> Child {
        let status = Some(ExitStatus::from_raw(code << 8));
        Child {
            status,
            stopped: None,
            output: output.into(),
            errors: errors.into(),
        }
    }

    #[test]
    fn debug_port_values_decode() {
        let end = |value: i32, console: &str| {
            End::of_shootdown(&ended(value * 2 + 1, console, ""), DEADLINE)
        };
        for (value, console, expected) in [
            (
                0,
                "shootdown: init exited with status 0\r\n",
                End::Exited(0),
            ),
            (7, "", End::Exited(7)),
            (0x3d, "", End::Exited(0x3d)),
            (0x3e, "x init exited with status 134\r\n", End::Exited(134)),
            (
                0x3e,
                "x init killed by SIGSEGV\r\n",
                End::Signalled("SIGSEGV".into()),
            ),
            (0x7d, "", End::BootFailed),
            (
                0x7e,
                "KERNEL PANIC cpu1: no\r\n",
                End::Panicked("KERNEL PANIC cpu1: no".into()),
            ),
        ] {
            assert_eq!(end(value, console), expected);
        }
        assert!(matches!(end(0x50, ""), End::Emulator(_)));
    }

    #[test]
    fn status_zero_needs_the_kernels_word_for_it() {
        let dead = ended(1, "", "qemu: bad option\n");
        assert_eq!(
            End::of_shootdown(&dead, DEADLINE),
            End::Emulator("qemu: bad option".into())
        );
        assert_eq!(End::of_shootdown(&ended(0, "", ""), DEADLINE), End::Reset);
    }

    #[test]
    fn bochs_ends_as_its_console_says() {
        let end = |console: &str| End::of_bochs(&ended(1, console, "odd\n"), DEADLINE);
        assert_eq!(end("x init exited with status 3\r\n"), End::Exited(3));
        assert_eq!(end("shootdown: cannot boot: no\n"), End::BootFailed);
        assert!(matches!(end("KERNEL PANIC cpu0: no\n"), End::Panicked(_)));
        assert_eq!(end("hello\n"), End::Emulator("odd".into()));
    }

    #[test]
    fn linux_panic_line_decodes() {
        let end = |line: &str| End::of_linux(&ended(0, line, ""), DEADLINE);
        let line = "Attempted to kill init! exitcode=0x00000100\r\n";
        assert_eq!(end(line), End::Exited(1));
        assert_eq!(end("exitcode=0x00000000 ]---"), End::Exited(0));
        assert_eq!(end("exitcode=0x0000008b"), End::Signalled("SIGSEGV".into()));
        let end_of_boot = end("Kernel panic - not syncing: VFS");
        assert!(matches!(end_of_boot, End::Panicked(_)));
        assert_eq!(end(""), End::Reset);
    }

    #[test]
    fn started_programs_end_as_is_said() {
        let end = |status: u8, console: &str| End::Exited(status).of_started(console, "by signal ");
        assert_eq!(
            end(139, "x by signal 11\r\n"),
            End::Signalled("SIGSEGV".into())
        );
        assert_eq!(end(139, "nothing"), End::Exited(139));
        assert_eq!(end(0, "x by signal 11\r\n"), End::Exited(0));
    }

    #[test]
    fn signal_numbers_round_trip() {
        assert_eq!(signal_number("SIGSEGV"), Some(11));
        assert_eq!(signal_number("SIGNONE"), None);
    }
}
