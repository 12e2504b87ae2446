//! A file system in memory, without what does not matter at boot: owners and times.

use std::collections::BTreeMap;

/// What Linux allows on one way.
const MOST_LINKS: usize = 40;
/// The mode of directories that nobody described.
const USUAL: u32 = 0o755;

/// What a name stands for. Modes are permission bits only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// A directory.
    Directory { mode: u32 },
    /// A regular file.
    File { mode: u32, data: Vec<u8> },
    /// A symbolic link, and where it leads.
    Link(String),
    /// A character device, and its major and minor number.
    Device { mode: u32, number: (u32, u32) },
}

/// Why something cannot stand where it was to.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misplaced {
    #[error("the links to {0} go round in a circle")]
    Circle(String),
    #[error("{0} would be below something that is no directory")]
    BelowFile(String),
    #[error("{0} is a directory already")]
    OnDirectory(String),
    #[error("there is no {0}, for which another name was to be made")]
    Missing(String),
}

/// Whether a link at the end of a path is followed, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LastLink {
    Follow,
    Keep,
}

/// Files by their paths, which have no slash at either end, in order: directories stand before what is in them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tree(BTreeMap<String, Node>);

impl Tree {
    /// All paths with what they stand for, sorted.
    pub fn nodes(&self) -> impl Iterator<Item = (&str, &Node)> {
        self.0.iter().map(|(path, node)| (path.as_str(), node))
    }

    /// Puts something at `path`, where links in the tree lead: with a link `bin` to `usr/bin`, `bin/sh` becomes `usr/bin/sh`. Directories on the way
    /// are made. A directory that is there stays as it is; a file replaces what was there, as a later member of an archive does.
    ///
    /// # Errors
    /// It cannot stand there.
    pub fn put(&mut self, path: &str, node: Node) -> Result<(), Misplaced> {
        let is_directory = matches!(node, Node::Directory { .. });
        let last = match is_directory {
            true => LastLink::Follow,
            false => LastLink::Keep,
        };
        let place = self.resolve(path, last)?;
        self.make_directories_above(&place)?;
        match self.0.get(&place) {
            Some(Node::Directory { .. }) if is_directory => return Ok(()),
            Some(Node::Directory { .. }) => return Err(Misplaced::OnDirectory(place)),
            Some(_) if is_directory => return Err(Misplaced::BelowFile(place)),
            _ if place.is_empty() => return Ok(()),
            _ => {}
        }
        self.0.insert(place, node);
        Ok(())
    }

    /// Gives what is at `there` a second name, of its own: a copy.
    ///
    /// # Errors
    /// Nothing is there, or it cannot stand at `path`.
    pub fn copy(&mut self, there: &str, path: &str) -> Result<(), Misplaced> {
        let place = self.resolve(there, LastLink::Keep)?;
        let node = self.0.get(&place).cloned();
        self.put(path, node.ok_or(Misplaced::Missing(place))?)
    }

    /// Where `path` leads in the end, and what is there; none if nothing is.
    pub fn find(&self, path: &str) -> Option<(String, &Node)> {
        let place = self.resolve(path, LastLink::Follow).ok()?;
        let node = self.0.get(&place)?;
        Some((place, node))
    }

    /// The path behind all links. What is missing is taken as it stands.
    fn resolve(&self, path: &str, last: LastLink) -> Result<String, Misplaced> {
        let mut ahead: Vec<&str> = names(path).rev().collect();
        let mut at = String::new();
        let mut links = 0;
        while let Some(name) = ahead.pop() {
            if name == ".." {
                at.truncate(at.rfind('/').unwrap_or(0));
                continue;
            }
            let above = at.len();
            if above > 0 {
                at.push('/');
            }
            at.push_str(name);
            if ahead.is_empty() && last == LastLink::Keep {
                break;
            }
            if let Some(Node::Link(target)) = self.0.get(&at) {
                links += 1;
                if links > MOST_LINKS {
                    return Err(Misplaced::Circle(path.to_owned()));
                }
                at.truncate(if target.starts_with('/') { 0 } else { above });
                ahead.extend(names(target).rev());
            }
        }
        Ok(at)
    }

    fn make_directories_above(&mut self, place: &str) -> Result<(), Misplaced> {
        for (end, _) in place.match_indices('/') {
            let above = self.0.entry(place[..end].to_owned());
            let node = above.or_insert(Node::Directory { mode: USUAL });
            if !matches!(node, Node::Directory { .. }) {
                return Err(Misplaced::BelowFile(place.to_owned()));
            }
        }
        Ok(())
    }
}

fn names(path: &str) -> impl DoubleEndedIterator<Item = &str> {
    path.split('/')
        .filter(|name| !name.is_empty() && *name != ".")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> Node {
        let data = text.into();
        Node::File { mode: 0o644, data }
    }

    fn tree(nodes: &[(&str, Node)]) -> Tree {
        let mut tree = Tree::default();
        for (path, node) in nodes {
            tree.put(path, node.clone()).unwrap();
        }
        tree
    }

    fn paths(tree: &Tree) -> Vec<&str> {
        tree.nodes().map(|(path, _)| path).collect()
    }

    #[test]
    fn files_land_where_links_lead() {
        let link = |target: &str| Node::Link(target.into());
        let tree = tree(&[
            ("lib", link("usr/lib")),
            ("./lib/", Node::Directory { mode: 0o755 }),
            ("./lib/x/libc.so", file("c")),
            ("usr/lib64/ld.so", link("/lib/x/../x/libc.so")),
        ]);
        let expected = [
            "lib",
            "usr",
            "usr/lib",
            "usr/lib/x",
            "usr/lib/x/libc.so",
            "usr/lib64",
            "usr/lib64/ld.so",
        ];
        assert_eq!(paths(&tree), expected);
        let (place, node) = tree.find("/usr/lib64/ld.so").unwrap();
        assert_eq!((place.as_str(), node), ("usr/lib/x/libc.so", &file("c")));
        assert_eq!(tree.find("/usr/lib64/none"), None);
    }

    #[test]
    fn links_in_a_circle_are_refused() {
        let mut tree = tree(&[("a", Node::Link("b".into())), ("b", Node::Link("a".into()))]);
        let refused = tree.put("a/x", file(""));
        assert_eq!(refused, Err(Misplaced::Circle("a/x".into())));
        assert_eq!(tree.find("a"), None);
    }

    #[test]
    fn files_do_not_stand_on_directories_nor_below_files() {
        let mut tree = tree(&[("d/f", file("1")), ("d/f", file("2"))]);
        assert_eq!(tree.find("d/f").unwrap().1, &file("2"));
        let refused = tree.put("d/f/g", file(""));
        assert_eq!(refused, Err(Misplaced::BelowFile("d/f/g".into())));
        let refused = tree.put("d", file(""));
        assert_eq!(refused, Err(Misplaced::OnDirectory("d".into())));
    }

    #[test]
    fn hard_links_are_copies() {
        let mut tree = tree(&[("bin/a", file("x"))]);
        tree.copy("./bin/a", "bin/b").unwrap();
        assert_eq!(tree.find("bin/b").unwrap().1, &file("x"));
        let missing = tree.copy("bin/c", "bin/d");
        assert_eq!(missing, Err(Misplaced::Missing("bin/c".into())));
    }
}
