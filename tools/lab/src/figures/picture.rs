//! [`Picture`]: a drawing of the documents that a bench makes.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::record::{lab, run};
use crate::failure::{Doing, Failure, Outcome};
use crate::place;

/// A file of `docs/pictures`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Picture {
    /// Words behind `./lab`, before the directory into which the bench draws.
    command: String,
    /// Where it is kept, from the root of the checkout.
    file: PathBuf,
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
        run(lab(&self.command)?.arg(folder.path()))?;
        std::fs::read(folder.path().join(name))
            .doing(format!("read what  ./lab {}  drew", self.command))
    }
}
