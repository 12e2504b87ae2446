//! Starts a program of an image of packages, as the first process: mounts what programs expect, gives it the environment of a login, takes in orphans, and
//! ends as the program does. `./lab run --image` boots with it, on every kernel.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};

use lexopt::Arg::{Long, Short, Value};
use shootdown_user::args::UsageError;
use shootdown_user::child::{self, End};
use shootdown_user::{machine, program};

const HELP: &str = "\
start: mounts what programs expect, runs one, and ends as it does

  start [--directory DIRECTORY] PROGRAM [ARGS]";
/// A shell's status for what it cannot start, and its base for programs that a signal has ended.
const CANNOT_START: u8 = 127;
const KILLED: u8 = 128;
const ENVIRONMENT: [(&str, &str); 5] = [
    ("HOME", "/root"),
    ("LANG", "C.UTF-8"),
    ("LOGNAME", "root"),
    (
        "PATH",
        "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    ),
    // Nobody sits at the console: it is a serial line that is recorded.
    ("TERM", "dumb"),
];

struct Start {
    directory: String,
    command: Command,
    name: String,
}

fn parse() -> Result<Option<Start>, UsageError> {
    let mut parser = lexopt::Parser::from_env();
    let mut directory = "/".to_owned();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("help") | Short('h') => return Ok(None),
            Long("directory") => directory = parser.value()?.to_string_lossy().into_owned(),
            Value(name) => {
                let mut command = Command::new(&name);
                command.args(parser.raw_args()?);
                let name = name.to_string_lossy().into_owned();
                return Ok(Some(Start {
                    directory,
                    command,
                    name,
                }));
            }
            other => return Err(other.unexpected().into()),
        }
    }
    Err(UsageError::new("no program is named"))
}

/// What a system has mounted when its programs run. The reference kernel has the most of it always; where there is no such file system, programs do without.
fn set_up() {
    if std::process::id() != 1 {
        return;
    }
    for (kind, place) in [
        (c"devtmpfs", c"/dev"),
        (c"devpts", c"/dev/pts"),
        (c"tmpfs", c"/dev/shm"),
        (c"tmpfs", c"/tmp"),
    ] {
        // SAFETY: the pointer is to a NUL-terminated string.
        let _ignored = unsafe { libc::mkdir(place.as_ptr(), 0o755) };
        let _ignored = machine::mount(kind, place);
    }
    for (target, link) in [
        ("/proc/self/fd", "/dev/fd"),
        ("/proc/self/fd/0", "/dev/stdin"),
        ("/proc/self/fd/1", "/dev/stdout"),
        ("/proc/self/fd/2", "/dev/stderr"),
    ] {
        let _ignored = symlink(target, link);
    }
    let _ignored = loop_back();
}

/// Brings the loopback interface up, for programs that talk to themselves.
fn loop_back() -> io::Result<()> {
    // SAFETY: all zeroes are a request for no interface.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[..2].copy_from_slice(&[b'l', b'o'].map(u8::cast_signed));
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    // SAFETY: the request is a whole `ifreq`, as this command reads it.
    machine::done(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &request) })
}

/// Runs the program to its end. It has a process group of its own: what it sends to its group does not come here. It reads nothing, as nobody types.
fn run(mut start: Start) -> ExitCode {
    let name = &start.name;
    let failed = |what: &str, error| {
        eprintln!("start: cannot {what}: {error}");
        ExitCode::from(CANNOT_START)
    };
    set_up();
    if let Err(error) = std::env::set_current_dir(&start.directory) {
        return failed(&format!("change to {}", start.directory), error);
    }
    let command = start.command.env_clear().envs(ENVIRONMENT);
    command.stdin(Stdio::null()).process_group(0);
    let pid = match command.spawn() {
        Ok(child) => child.id().cast_signed(),
        Err(error) => return failed(&format!("start {name}"), error),
    };
    loop {
        match child::wait_for(-1, 0) {
            Ok(Some((ended, end))) if ended == pid => return status(name, end),
            // An orphan.
            Ok(_) => {}
            Err(error) => return failed(&format!("wait for {name}"), error),
        }
    }
}

fn status(name: &str, end: End) -> ExitCode {
    match end {
        End::Exited(status) => ExitCode::from(status as u8),
        End::Killed(signal) => {
            // The lab reads this.
            eprintln!("start: {name} was killed by signal {signal}");
            ExitCode::from(KILLED.wrapping_add(signal as u8))
        }
    }
}

fn main() -> ExitCode {
    program::run("start", HELP, parse(), Ok, run)
}
