//! Temporary files of this process and of its children lie in one directory, which goes with the process: at its end, and at signals that
//! end it.

use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGPIPE, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::{emulate_default_handler, register};
use tempfile::TempDir;

use crate::failure::{Doing, Outcome};

/// What ends the process. The last comes when nobody reads its output any more, as of `./lab ... | head`.
const ENDS: [i32; 5] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE];
/// Children may still write into the directory while it is removed: it is tried so often, so far apart.
const TRIES: u32 = 5;
const BETWEEN: Duration = Duration::from_millis(20);

/// Makes the directory, which goes with what is returned, and has signals that end the process remove it first. Once a process.
///
/// # Errors
/// There is no place for temporary files.
pub fn directory() -> Outcome<TempDir> {
    let directory = tempfile::Builder::new().prefix("lab-").tempdir();
    let directory = directory.doing("make a temporary directory")?;
    let path = directory.path().to_owned();
    // It refuses if it was asked before.
    let _ = tempfile::env::override_temp_dir(&path);
    let mut signals = Signals::new(ENDS.into_iter().filter(|signal| !is_ignored(*signal)))
        .doing("listen to signals")?;
    // SAFETY: `pause` may be called by a handler of signals.
    let stop = unsafe { register(SIGPIPE, wait_for_ever) };
    stop.doing("listen to signals")?;
    std::thread::spawn(move || {
        for signal in signals.forever() {
            for _ in 0..TRIES {
                if std::fs::remove_dir_all(&path).is_ok() {
                    break;
                }
                std::thread::sleep(BETWEEN);
            }
            let _ = emulate_default_handler(signal);
        }
    });
    Ok(directory)
}

/// Whoever writes where nobody reads goes no further: the other thread ends the process.
fn wait_for_ever() {
    loop {
        // SAFETY: it waits for a signal.
        unsafe { libc::pause() };
    }
}

/// Whether whoever started this process wants it to ignore a signal, as a shell does with SIGINT for what runs in the background.
fn is_ignored(signal: i32) -> bool {
    // SAFETY: all zeroes are a value of it.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: it only reads the action, into a place of that type.
    let is_known = unsafe { libc::sigaction(signal, std::ptr::null(), &mut action) } == 0;
    is_known && action.sa_sigaction == libc::SIG_IGN
}
