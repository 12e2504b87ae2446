//! The command line.

use axstd::println;

use crate::arch;
use crate::platform::CPUS;

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
        for word in arch::command_line().split_ascii_whitespace() {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            let is_good = match (name, value) {
                ("seconds", value) => value.parse().map(|n| options.seconds = n).is_ok(),
                ("cpus", value) => value.parse() == Ok(CPUS),
                ("break", "no-flush") => options.make(Mistake::NoFlush),
                ("break", "no-poll") => options.make(Mistake::NoPoll),
                // The name of the image, which QEMU puts first for multiboot.
                _ => value.is_empty(),
            };
            if !is_good {
                println!(
                    "arceos: {word} makes no sense to this image, which was built for {CPUS} CPUs"
                );
                arch::end(false);
            }
        }
        options
    }

    fn make(&mut self, mistake: Mistake) -> bool {
        self.mistake = mistake;
        true
    }
}
