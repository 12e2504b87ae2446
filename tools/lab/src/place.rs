//! Where things are: the checkout, and `.lab/`, which keeps consoles, images and raw results.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::SystemTime;

use crate::failure::{Doing, Outcome};
use crate::machine::answer;

/// How many console files are kept.
const CONSOLES_KEPT: usize = 64;

/// The root of the checkout: from the launcher, else from where the lab was compiled.
pub fn root() -> PathBuf {
    match std::env::var_os("SHOOTDOWN_ROOT") {
        Some(root) => PathBuf::from(root),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."),
    }
}

/// Where cargo builds.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// A directory below `.lab/`, made if need be.
pub fn keep(name: &str) -> Outcome<PathBuf> {
    let path = root().join(".lab").join(name);
    std::fs::create_dir_all(&path).doing(format!("make the directory {}", path.display()))?;
    Ok(path)
}

/// The time now as it may stand in a file name: `20260131T120000Z`.
pub fn timestamp() -> String {
    let text = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    text.chars().filter(|c| *c != '-' && *c != ':').collect()
}

/// The commit of the checkout, with `+` when tracked files differ from it, but for documents and what benches write there; `unknown` without git.
pub fn commit() -> String {
    let git = |words: &str| {
        let mut git = Command::new("git");
        answer(git.arg("-C").arg(root()).args(words.split(' ')))
    };
    match git("rev-parse --short=12 HEAD") {
        None => "unknown".into(),
        Some(id) if git("status --porcelain --untracked-files=no -- . :!docs/*.md :!docs/*.json :!docs/*.svg").is_some() => {
            format!("{id}+")
        }
        Some(id) => id,
    }
}

/// Drops the oldest console files, but none of this process's: a long run's failures name them.
pub fn prune_consoles() -> Outcome<()> {
    static SINCE: OnceLock<SystemTime> = OnceLock::new();
    let since = *SINCE.get_or_init(SystemTime::now);
    let directory = keep("consoles")?;
    let entries = std::fs::read_dir(&directory).doing("list the kept consoles")?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    files.truncate(files.len().saturating_sub(CONSOLES_KEPT));
    let is_old = |path: &&PathBuf| {
        let modified = std::fs::metadata(path).and_then(|metadata| metadata.modified());
        modified.is_ok_and(|modified| modified < since)
    };
    for file in files.iter().filter(is_old) {
        // Another lab may have removed it first; a file that stays does no harm.
        let _ = std::fs::remove_file(file);
    }
    Ok(())
}
