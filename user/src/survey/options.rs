//! The command line.

use std::ffi::OsString;

use super::plan::Effort;
use crate::args::{self, UsageError};

/// What `--help` prints.
pub const HELP: &str = "\
survey: runs the measuring programs and the calls in ring 0 on the machine that it
finds, and shows their tables

usage: survey [OPTION]...
  --effort WORD     full, quick for a look, or least for a check [full]
  --commit WORD     which source the image was made from, for the record
  --help

exit status: 0 all well, 1 a bench failed or saw what it must not, 2 bad arguments
";

/// What the caller chooses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// How long it takes.
    pub effort: Effort,
    /// Which source the image was made from.
    pub commit: Option<String>,
}

impl Options {
    /// Reads the arguments after the program's name; `None` means that help was asked for.
    ///
    /// # Errors
    /// One of them makes no sense.
    pub fn parse<I>(arguments: I) -> Result<Option<Self>, UsageError>
    where
        I: IntoIterator<Item: Into<OsString>>,
    {
        let mut options = Self::default();
        let goes_on = args::read(arguments, |name, text| match name {
            "--effort" => {
                options.effort = Effort::named(&text()?)?;
                Ok(())
            }
            "--commit" => {
                options.commit = Some(text()?);
                Ok(())
            }
            _ => Err(UsageError::unknown(name)),
        })?;
        Ok(goes_on.then_some(options))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn efforts_have_names() {
        let parsed = Options::parse(["--effort=least", "--commit", "abc"]).unwrap();
        let expected = Options {
            effort: Effort::Least,
            commit: Some("abc".to_owned()),
        };
        assert_eq!(parsed, Some(expected));
        assert_eq!(Options::parse(["--help"]), Ok(None));
        for bad in [["--effort", "most"], ["--cpus", "2"]] {
            assert!(Options::parse(bad).is_err());
        }
    }
}
