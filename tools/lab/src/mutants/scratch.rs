//! The copy of the workspace in which mistakes are made.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::failure::{Doing, Failure, Outcome};
use crate::place;

/// One change of one file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edit {
    /// Path from the root of the workspace.
    pub file: PathBuf,
    /// What is replaced; occurs exactly once.
    pub find: String,
    /// What stands there instead.
    pub replace: String,
}

impl Edit {
    /// The changed text.
    ///
    /// # Errors
    /// The edit does not apply exactly once.
    pub fn apply(&self, text: &str) -> Outcome<String> {
        match text.matches(&self.find).count() {
            1 => Ok(text.replacen(&self.find, &self.replace, 1)),
            count => Err(Failure::work(format!(
                "the edit no longer applies: its text occurs {count} times in {}, not once",
                self.file.display()
            ))),
        }
    }
}

/// What is not copied: history, results, builds.
const LEFT_OUT: [&str; 3] = [".git", ".lab", "target"];

/// The directory of the copies; one process at a time has it.
#[derive(Debug)]
pub struct Scratch {
    /// Where the copies are.
    pub path: PathBuf,
    /// Held as long as we live.
    _lock: File,
}

impl Scratch {
    /// Takes the directory.
    ///
    /// # Errors
    /// Another lab has it.
    pub fn open() -> Outcome<Self> {
        let path = place::keep("mutants")?;
        let lock = File::create(place::keep("")?.join("mutants.lock")).doing("make a lock file")?;
        if lock.try_lock().is_err() {
            return Err(Failure::input(
                "another lab is trying mutants",
                "wait until it is done",
            ));
        }
        Ok(Self { path, _lock: lock })
    }

    /// Makes copy number `number` like the checkout. Files that are the same already are left alone, so that
    /// builds that were kept stay of use.
    pub fn copy(&self, number: usize) -> Outcome<Copy> {
        let copy = Copy {
            path: self.path.join(number.to_string()),
        };
        mirror(&place::root(), &copy.tree())?;
        Ok(copy)
    }

    /// Removes the copies and their builds.
    pub fn remove(self) -> Outcome<()> {
        fs::remove_dir_all(&self.path).doing("remove the copies of the workspace")
    }
}

/// One copy of the workspace with its builds.
#[derive(Debug)]
pub struct Copy {
    /// The copy and its builds.
    pub path: PathBuf,
}

impl Copy {
    /// The root of the copied workspace.
    pub fn tree(&self) -> PathBuf {
        self.path.join("tree")
    }

    /// Makes the edits, runs `work`, and undoes them.
    ///
    /// # Errors
    /// An edit does not apply, or what `work` returns.
    pub fn with_edits<T>(&self, edits: &[Edit], work: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
        let mut undo = Undo(Vec::new());
        for edit in edits {
            let file = self.tree().join(&edit.file);
            let text = fs::read_to_string(&file).doing(format!("read {}", edit.file.display()))?;
            let changed = edit.apply(&text)?;
            fs::write(&file, changed).doing(format!("edit {}", edit.file.display()))?;
            undo.0.push((file, text));
        }
        work()
    }
}

/// What the edited files held; written back last first.
struct Undo(Vec<(PathBuf, String)>);

impl Drop for Undo {
    fn drop(&mut self) {
        for (file, text) in self.0.iter().rev() {
            // If this fails the next edit or the next copy says so.
            let _ = fs::write(file, text);
        }
    }
}

/// Makes `to` hold exactly what `from` holds.
fn mirror(from: &Path, to: &Path) -> Outcome<()> {
    fs::create_dir_all(to).doing(format!("make the directory {}", to.display()))?;
    let names = |directory: &Path| -> Outcome<Vec<OsString>> {
        let entries = fs::read_dir(directory).doing(format!("list {}", directory.display()))?;
        Ok(entries.flatten().map(|entry| entry.file_name()).collect())
    };
    let mut wanted = names(from)?;
    wanted.retain(|name| !is_left_out(from, name));
    for surplus in names(to)?.iter().filter(|name| !wanted.contains(name)) {
        let path = to.join(surplus);
        let removed = match path.is_dir() {
            true => fs::remove_dir_all(&path),
            false => fs::remove_file(&path),
        };
        removed.doing(format!("remove {}", path.display()))?;
    }
    for name in wanted {
        let (source, copy) = (from.join(&name), to.join(&name));
        match source.is_dir() {
            true => mirror(&source, &copy)?,
            false => refresh(&source, &copy)?,
        }
    }
    Ok(())
}

/// A directory that cargo or the lab fills is not part of the sources.
fn is_left_out(directory: &Path, name: &OsStr) -> bool {
    LEFT_OUT.iter().any(|left_out| name == *left_out)
        || directory.join(name).join("CACHEDIR.TAG").exists()
}

fn refresh(source: &Path, copy: &Path) -> Outcome<()> {
    let bytes = fs::read(source).doing(format!("read {}", source.display()))?;
    if fs::read(copy).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    fs::write(copy, bytes).doing(format!("write {}", copy.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mirror_holds_what_its_source_holds_and_leaves_the_same_files_alone() {
        let directory = tempfile::tempdir().unwrap();
        let (from, to) = (directory.path().join("from"), directory.path().join("to"));
        fs::create_dir_all(from.join("a/target")).unwrap();
        fs::write(from.join("a/target/built"), "x").unwrap();
        fs::write(from.join("a/same"), "1").unwrap();
        fs::write(from.join("changed"), "2").unwrap();
        mirror(&from, &to).unwrap();
        assert!(!to.join("a/target").exists());
        let written = fs::metadata(to.join("a/same")).unwrap().modified().unwrap();
        fs::write(from.join("changed"), "3").unwrap();
        fs::write(to.join("surplus"), "4").unwrap();
        mirror(&from, &to).unwrap();
        assert_eq!(fs::read_to_string(to.join("changed")).unwrap(), "3");
        assert!(!to.join("surplus").exists());
        let rewritten = fs::metadata(to.join("a/same")).unwrap().modified().unwrap();
        assert_eq!(written, rewritten);
    }
}
