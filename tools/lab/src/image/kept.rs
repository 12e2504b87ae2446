//! Images that are kept: one directory of `.lab/images` each, with the archive and the list of what is in it.

use std::cmp::Reverse;
use std::fmt;
use std::path::{Path, PathBuf};

use super::MIB;
use crate::failure::{Doing, Failure, Outcome};
use crate::initramfs::{self, Node, Tree};
use crate::machine::MEMORY_MIB;
use crate::place;

const ARCHIVE: &str = "root.cpio";
const LIST: &str = "packages.txt";
/// Where a program is looked for that is named without its directory.
const PATH: [&str; 4] = ["usr/local/bin", "usr/bin", "usr/sbin", "usr/games"];
/// How often an image is in memory: as the archive, as files, and as what programs make of them.
const COPIES: usize = 3;
/// How many programs an error names.
const MOST_NAMED: usize = 12;

/// Where an image lies, or will.
#[derive(Debug)]
pub struct Place {
    name: String,
    directory: PathBuf,
}

impl Place {
    /// That of this name.
    ///
    /// # Errors
    /// It is no name for a directory.
    pub fn of(name: &str) -> Outcome<Self> {
        let is_fit = |c: char| c.is_ascii_alphanumeric() || "+-._".contains(c);
        if name.is_empty() || name.starts_with(['.', '-']) || !name.chars().all(is_fit) {
            return Err(Failure::input(
                format!("{name:?} is no name for an image"),
                "take letters, digits and + - . _ in the middle",
            ));
        }
        Ok(Self {
            name: name.to_owned(),
            directory: place::keep("images")?.join(name),
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it has the packages of this list.
    pub fn holds(&self, list: &str) -> bool {
        let kept = std::fs::read_to_string(self.directory.join(LIST));
        kept.is_ok_and(|kept| kept == list) && self.archive().is_file()
    }

    /// Keeps an image there. The list comes last: with it the image is whole.
    ///
    /// # Errors
    /// It could not be written.
    pub fn keep(&self, archive: &[u8], list: &str) -> Outcome<()> {
        let keep = || {
            std::fs::create_dir_all(&self.directory)?;
            replace(&self.directory, ARCHIVE, archive)?;
            replace(&self.directory, LIST, list.as_bytes())
        };
        keep().doing(format!("keep the image in {}", self.directory.display()))
    }

    fn archive(&self) -> PathBuf {
        self.directory.join(ARCHIVE)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ".lab/images/{}/{ARCHIVE}", self.name)
    }
}

/// Whoever reads the file meanwhile sees the old one or the new one.
fn replace(directory: &Path, name: &str, bytes: &[u8]) -> std::io::Result<()> {
    let new = directory.join(format!("{name}.{}", std::process::id()));
    std::fs::write(&new, bytes)?;
    std::fs::rename(new, directory.join(name))
}

/// An image to boot.
#[derive(Debug)]
pub struct Image {
    name: String,
    tree: Tree,
    size_mib: u32,
}

impl Image {
    /// The image of this name.
    ///
    /// # Errors
    /// There is none.
    pub fn open(name: &str) -> Outcome<Self> {
        let place = Place::of(name)?;
        let archive = std::fs::read(place.archive()).map_err(|_| {
            Failure::input(
                format!("there is no image {name}"),
                format!("make it with  ./lab image --name {name} PACKAGE..."),
            )
        })?;
        let tree = initramfs::read(&archive).doing(format!("read the image in {place}"))?;
        Ok(Self {
            name: name.to_owned(),
            tree,
            size_mib: archive.len().div_ceil(MIB) as u32,
        })
    }

    /// Its files.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// The memory in which a machine unpacks it, and works with it.
    pub fn memory_mib(&self) -> u32 {
        MEMORY_MIB + COPIES as u32 * self.size_mib
    }

    /// The path of a program in it, which may be named without its directory.
    ///
    /// # Errors
    /// It has none of this name.
    pub fn program(&self, word: &str) -> Outcome<String> {
        let found = match word.contains('/') {
            true => Some(word.to_owned()).filter(|path| path.starts_with('/') && self.runs(path)),
            false => {
                let mut paths = PATH.iter().map(|directory| format!("/{directory}/{word}"));
                paths.find(|path| self.runs(path))
            }
        };
        found.ok_or_else(|| {
            Failure::input(
                format!("the image {} has no program {word}", self.name),
                format!("it has {}", self.programs_like(word)),
            )
        })
    }

    fn runs(&self, path: &str) -> bool {
        let node = self.tree.find(path).map(|(_, node)| node);
        matches!(node, Some(Node::File { mode, .. }) if mode & 0o111 != 0)
    }

    /// Some of its programs, those first whose names begin as this one's.
    fn programs_like(&self, word: &str) -> String {
        let is_on_path = |path: &&str| {
            let directory = path.rsplit_once('/').map(|(directory, _)| directory);
            directory.is_some_and(|directory| PATH.contains(&directory)) && self.runs(path)
        };
        let paths = self.tree.nodes().map(|(path, _)| path).filter(is_on_path);
        let mut names: Vec<String> = paths.map(|path| format!("/{path}")).collect();
        let wanted = word.rsplit('/').next().unwrap_or(word);
        names.sort_by_key(|path| {
            let name = path.rsplit('/').next().unwrap_or(path);
            let same = name.chars().zip(wanted.chars());
            Reverse(same.take_while(|(a, b)| a == b).count())
        });
        let all = names.len();
        names.truncate(MOST_NAMED);
        let more = match all - names.len() {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        match all {
            0 => "none".to_owned(),
            _ => names.join(", ") + &more,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image() -> Image {
        let mut tree = Tree::default();
        let mut put = |path: &str, node| tree.put(path, node).unwrap();
        let file = |mode| Node::File { mode, data: vec![] };
        put("bin", Node::Link("usr/bin".into()));
        put("usr/bin/python3.11", file(0o755));
        put("usr/bin/python3", Node::Link("python3.11".into()));
        put("usr/bin/data", file(0o644));
        put("usr/lib/tool", file(0o755));
        put("usr/sbin/a", file(0o755));
        Image {
            name: "i".into(),
            tree,
            size_mib: 10,
        }
    }

    #[test]
    fn programs_are_found_by_path_or_name() {
        let image = image();
        let program = |word: &str| image.program(word).ok();
        assert_eq!(program("python3").as_deref(), Some("/usr/bin/python3"));
        assert_eq!(program("/bin/python3").as_deref(), Some("/bin/python3"));
        assert_eq!(program("/usr/lib/tool").as_deref(), Some("/usr/lib/tool"));
        for word in ["data", "tool", "usr/lib/tool", "/usr/bin", "/none"] {
            assert_eq!(program(word), None, "{word}");
        }
        let text = image.program("perl").unwrap_err().to_string();
        let expected = "the image i has no program perl: it has /usr/bin/python3, /usr/bin/python3.11, /usr/sbin/a";
        assert_eq!(text, expected);
    }

    #[test]
    fn names_stay_below_the_directory_of_images() {
        for name in ["", "..", "a/b", "-x", ".hidden", "a b"] {
            assert!(Place::of(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn memory_grows_with_the_image() {
        assert_eq!(image().memory_mib(), MEMORY_MIB + 30);
    }
}
