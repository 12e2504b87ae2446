//! Temporary files of this process lie in one directory, which goes with the process, however it ends but by SIGKILL.

use signal_hook::consts::TERM_SIGNALS;
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use tempfile::TempDir;

use crate::failure::{Doing, Outcome};

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
    let mut signals = Signals::new(TERM_SIGNALS).doing("listen to signals")?;
    std::thread::spawn(move || {
        for signal in signals.forever() {
            // Children may write there until they are gone: what cannot be removed stays.
            let _ = std::fs::remove_dir_all(&path);
            let _ = emulate_default_handler(signal);
        }
    });
    Ok(directory)
}
