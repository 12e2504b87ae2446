//! What ends a command early, and the exit code that goes with it.

use std::fmt::Display;
use std::process::ExitCode;

/// The result of everything that can end a command.
pub type Outcome<T> = Result<T, Failure>;

/// Why a command ended early. Every message is one clear line; what follows it is evidence.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The caller has to change something: names the cause and the remedy. Exit code 2.
    #[error("{cause}: {remedy}")]
    Input {
        /// What is wrong.
        cause: String,
        /// What to do about it.
        remedy: String,
    },
    /// The caller has not said what to do: this text says what there is. Exit code 2.
    #[error("{0}")]
    Usage(String),
    /// The work was started and went wrong. Exit code 1.
    #[error("{0}")]
    Work(String),
    /// The machine under a program that `run` started broke. Exit code 125.
    #[error("{0}")]
    Machine(String),
}

impl Failure {
    /// A mistake of the caller, with its remedy.
    pub fn input(cause: impl Display, remedy: impl Display) -> Self {
        Self::Input {
            cause: cause.to_string(),
            remedy: remedy.to_string(),
        }
    }

    /// Work that went wrong.
    pub fn work(message: impl Display) -> Self {
        Self::Work(message.to_string())
    }

    /// The exit code of the whole command.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Input { .. } | Self::Usage(_) => ExitCode::from(2),
            Self::Work(_) => ExitCode::from(1),
            Self::Machine(_) => ExitCode::from(125),
        }
    }
}

/// What an error message shows of a long output: at most so many lines, the last ones, which say most.
pub fn last_lines<'a>(lines: impl IntoIterator<Item = &'a str>, most: usize) -> Vec<&'a str> {
    let mut lines: Vec<&str> = lines.into_iter().collect();
    lines.drain(..lines.len().saturating_sub(most));
    lines
}

/// Turns an error of the file system into a [`Failure::Work`] that says what was tried.
pub trait Doing<T> {
    /// Adds what was being done to the error.
    fn doing(self, what: impl Display) -> Outcome<T>;
}

impl<T, E: Display> Doing<T> for Result<T, E> {
    fn doing(self, what: impl Display) -> Outcome<T> {
        self.map_err(|error| Failure::Work(format!("cannot {what}: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_failure_names_cause_and_remedy_on_one_line() {
        let text = Failure::input("no QEMU", "install it").to_string();
        assert_eq!(text, "no QEMU: install it");
    }
}
