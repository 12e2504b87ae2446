//! Small helpers for command lines: bounded numbers, comma-separated lists, one-line errors.

use std::ffi::OsString;
use std::fmt;
use std::ops::RangeInclusive;
use std::process::ExitCode;
use std::str::FromStr;

use lexopt::Arg::{Long, Short};

use crate::machine;

/// The exit status for a command line that makes no sense.
pub const USAGE_STATUS: u8 = 2;

/// What is wrong with a command line, in one line that names cause and remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageError(String);

impl UsageError {
    /// An error that says `message`.
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }

    /// There is no option `name`.
    pub fn unknown(name: &str) -> Self {
        Self(format!("there is no option {name}"))
    }

    /// Prints the line for `program` and returns the exit code for it.
    pub fn report(&self, program: &str) -> ExitCode {
        eprintln!("{program}: {self}; try --help");
        ExitCode::from(USAGE_STATUS)
    }
}

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

impl From<lexopt::Error> for UsageError {
    fn from(error: lexopt::Error) -> Self {
        Self(error.to_string())
    }
}

/// What reads the value of an option.
pub type Value<'a> = &'a mut dyn FnMut() -> Result<String, UsageError>;

/// Reads a whole command line; `false` means that help was asked for. Each option is handed to `set` by its name, with the
/// dashes.
pub fn read<I>(
    arguments: I,
    mut set: impl FnMut(&str, Value<'_>) -> Result<(), UsageError>,
) -> Result<bool, UsageError>
where
    I: IntoIterator<Item: Into<OsString>>,
{
    let mut parser = lexopt::Parser::from_args(arguments);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("help") | Short('h') => return Ok(false),
            Long(name) => {
                let name = format!("--{name}");
                set(&name, &mut || text(&mut parser))?;
            }
            other => return Err(other.unexpected().into()),
        }
    }
    Ok(true)
}

fn text(parser: &mut lexopt::Parser) -> Result<String, UsageError> {
    let value = parser.value()?;
    value
        .into_string()
        .map_err(|raw| UsageError(format!("{raw:?} is not UTF-8 text")))
}

/// The CPUs that this process may run on.
pub fn cpus() -> Result<Vec<usize>, UsageError> {
    machine::allowed_cpus()
        .map_err(|error| UsageError(format!("cannot tell which CPUs there are: {error}")))
}

/// Reads a number that must lie in `range`.
pub fn number<T>(option: &str, text: &str, range: RangeInclusive<T>) -> Result<T, UsageError>
where
    T: FromStr + PartialOrd + fmt::Display,
{
    match text.trim().parse() {
        Ok(value) if range.contains(&value) => Ok(value),
        _ => Err(UsageError(format!(
            "{option} wants a number from {} to {}, not {text:?}",
            range.start(),
            range.end()
        ))),
    }
}

/// Reads a comma-separated list of numbers, each in `range` and none twice.
pub fn numbers(
    option: &str,
    text: &str,
    range: RangeInclusive<u64>,
) -> Result<Vec<usize>, UsageError> {
    let mut values = Vec::new();
    for part in text.split(',') {
        let value = number(option, part, range.clone())? as usize;
        if values.contains(&value) {
            return Err(UsageError(format!("{option} names {value} twice")));
        }
        values.push(value);
    }
    Ok(values)
}

/// Reads a comma-separated list of names, none empty and none twice.
pub fn names(option: &str, text: &str) -> Result<Vec<String>, UsageError> {
    let mut values: Vec<String> = Vec::new();
    for part in text.split(',') {
        let name = part.trim();
        if name.is_empty() {
            return Err(UsageError(format!(
                "{option} has an empty name in {text:?}"
            )));
        }
        if values.iter().any(|value| value == name) {
            return Err(UsageError(format!("{option} names {name} twice")));
        }
        values.push(name.to_owned());
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_keeps_its_order() {
        assert_eq!(numbers("--pages", "32,1,8", 1..=64), Ok(vec![32, 1, 8]));
        let expected = vec!["best".to_owned(), "before".to_owned()];
        assert_eq!(names("--policies", "best,before"), Ok(expected));
    }

    #[test]
    fn an_error_names_the_option_and_the_bounds() {
        let error = numbers("--pages", "1,x", 1..=64).unwrap_err();
        let message = error.to_string();
        assert_eq!(message, "--pages wants a number from 1 to 64, not \"x\"");
    }

    #[test]
    fn fractions_have_bounds_too() {
        assert_eq!(number("--alpha", "1.25", 1.0..=2.0), Ok(1.25));
        for bad in ["0.9", "2.1", "NaN", "inf", "", "x"] {
            let number = number("--alpha", bad, 1.0..=2.0).is_err();
            assert!(number, "{bad:?} was accepted");
        }
    }

    #[test]
    fn numbers_out_of_range_empty_and_repeated_are_refused() {
        for bad in ["0", "65", "", "1,", "-1", "1,1"] {
            let numbers = numbers("--pages", bad, 1..=64).is_err();
            assert!(numbers, "{bad:?} was accepted");
        }
        for bad in ["", "a,,b", "a,a"] {
            assert!(names("--policies", bad).is_err(), "{bad:?} was accepted");
        }
    }
}
