//! [`Picture`]: a drawing of the documents that a bench makes.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use super::record::DEADLINE;
use crate::failure::{Doing, Failure, Outcome};
use crate::machine::Child;
use crate::place;

/// A file of `docs/pictures`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Picture {
    /// Words behind `./lab`, before the directory into which the bench draws.
    command: String,
    /// Where it is kept, from the root of the checkout.
    file: PathBuf,
    /// As of figures.
    #[serde(default)]
    pub takes_minutes: bool,
}

impl Picture {
    /// Draws it and keeps it.
    ///
    /// # Errors
    /// The bench fails.
    pub fn make(&self) -> Outcome<()> {
        let drawn = self.draw()?;
        std::fs::write(place::root().join(&self.file), drawn)
            .doing(format!("write {}", self.file.display()))
    }

    /// Passes if a fresh one is the same.
    ///
    /// # Errors
    /// It is not.
    pub fn check(&self) -> Outcome<()> {
        let kept = std::fs::read(place::root().join(&self.file));
        match kept.doing(format!("read {}", self.file.display()))? == self.draw()? {
            true => Ok(()),
            false => Err(Failure::work(format!(
                "{} is not what  ./lab {}  draws today: run  ./lab figures",
                self.file.display(),
                self.command
            ))),
        }
    }

    fn draw(&self) -> Outcome<Vec<u8>> {
        let folder = tempfile::tempdir().doing("make a temporary directory")?;
        let name = self
            .file
            .file_name()
            .map_or(Path::new("picture"), Path::new);
        let mut lab = Command::new(std::env::current_exe().doing("find the lab itself")?);
        lab.args(self.command.split_whitespace()).arg(folder.path());
        Child::succeed(&mut lab, DEADLINE)?;
        std::fs::read(folder.path().join(name))
            .doing(format!("read what  ./lab {}  drew", self.command))
    }
}
