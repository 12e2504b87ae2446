//! The command line.

use ostd::boot::EarlyCmdline;
use ostd::log::LevelFilter;

use crate::{cpus, machine};

/// As OSTD has it without this function each call of its own would print a line.
#[ostd::early_cmdline_parser]
const fn quietly(_: &str) -> EarlyCmdline {
    EarlyCmdline {
        log_level: LevelFilter::Warning,
        has_early_console: true,
    }
}

/// What it asks for.
#[derive(Debug)]
pub struct Options {
    /// How long the torture takes.
    pub seconds: u64,
    /// A mistake to make.
    pub mistake: Mistake,
}

/// A deliberate one, which the checks have to notice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mistake {
    /// None.
    No,
    /// CPUs that are asked to flush do not.
    NoFlush,
    /// CPUs that wait for a lock do not poll.
    NoPoll,
}

impl Options {
    /// Reads it; ends the machine where it makes no sense.
    pub fn read() -> Self {
        let mut options = Self {
            seconds: 3,
            mistake: Mistake::No,
        };
        for word in ostd::boot::boot_info()
            .kernel_cmdline
            .split_ascii_whitespace()
        {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            let is_good = match (name, value) {
                ("seconds", value) => value.parse().map(|n| options.seconds = n).is_ok(),
                ("cpus", value) => value.parse() == Ok(cpus::count()),
                ("break", "no-flush") => options.make(Mistake::NoFlush),
                ("break", "no-poll") => options.make(Mistake::NoPoll),
                // The name of the image, which QEMU puts first for multiboot.
                _ => value.is_empty(),
            };
            if !is_good {
                say!("ostd: {word} makes no sense on {} CPUs", cpus::count());
                machine::end(false);
            }
        }
        options
    }

    fn make(&mut self, mistake: Mistake) -> bool {
        self.mistake = mistake;
        true
    }
}
