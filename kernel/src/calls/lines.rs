//! Where the lines of a run go: to the console, or into memory for the program that asked.

use alloc::string::String;
use core::fmt::{self, Write};

use crate::console::print;
use crate::errno::Errno;
use crate::sync::SleepMutex;

/// The lines of a run that a program asked for; None for the console.
static KEPT: SleepMutex<Option<String>> = SleepMutex::new(None);

/// From now on lines are kept.
pub(super) fn keep() {
    KEPT.lock().get_or_insert_default();
}

/// Adds a line. Context: a thread.
pub(super) fn add(line: fmt::Arguments<'_>) {
    match &mut *KEPT.lock() {
        // A string takes everything.
        Some(text) => drop(writeln!(text, "{line}")),
        None => print(format_args!("{line}\n")),
    }
}

/// The lines that are kept, none before a run.
///
/// # Errors
/// ENOMEM when the kernel heap cannot hold them twice.
pub fn lines() -> Result<String, Errno> {
    let kept = KEPT.lock();
    let kept = kept.as_deref().unwrap_or_default();
    let mut text = String::new();
    text.try_reserve_exact(kept.len())
        .map_err(|_| Errno::ENOMEM)?;
    text.push_str(kept);
    Ok(text)
}
