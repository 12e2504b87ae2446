//! A tree as a newc cpio archive, and back. The same tree becomes the same bytes.

use std::io::{self, Write};

use cpio::newc::{Builder, Reader, trailer};

use super::tree::{Node, Tree};

const KIND: u32 = 0o170_000;
const DIRECTORY: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_000;
const DEVICE: u32 = 0o020_000;

/// The archive of a tree.
///
/// # Errors
/// A file is larger than such an archive can hold.
pub fn write(tree: &Tree) -> io::Result<Vec<u8>> {
    let mut archive = Vec::new();
    for (inode, (path, node)) in (1..).zip(tree.nodes()) {
        let (mode, links, number, data) = match node {
            Node::Directory { mode } => (DIRECTORY | mode, 2, (0, 0), &[][..]),
            Node::File { mode, data } => (FILE | mode, 1, (0, 0), &data[..]),
            Node::Link(target) => (LINK | 0o777, 1, (0, 0), target.as_bytes()),
            Node::Device { mode, number } => (DEVICE | mode, 1, *number, &[][..]),
        };
        let size = u32::try_from(data.len()).map_err(|_| {
            io::Error::other(format!("{path} is larger than a cpio archive can hold"))
        })?;
        let entry = Builder::new(path).ino(inode).mode(mode).nlink(links);
        let entry = entry.rdev_major(number.0).rdev_minor(number.1);
        let mut entry = entry.write(&mut archive, size);
        entry.write_all(data)?;
        entry.finish()?;
    }
    trailer(&mut archive)?;
    Ok(archive)
}

/// The tree of an archive that [`write`](fn@write) made.
///
/// # Errors
/// It made it not.
pub fn read(archive: &[u8]) -> io::Result<Tree> {
    let (mut left, mut tree) = (archive, Tree::default());
    loop {
        let reader = Reader::new(left)?;
        let entry = reader.entry();
        if entry.is_trailer() {
            return Ok(tree);
        }
        let (path, mode) = (entry.name().to_owned(), entry.mode() & 0o7777);
        let number = (entry.rdev_major(), entry.rdev_minor());
        let kind = entry.mode() & KIND;
        let mut data = Vec::with_capacity(left.len().min(entry.file_size() as usize));
        left = reader.to_writer(&mut data)?;
        let node = match kind {
            DIRECTORY => Node::Directory { mode },
            FILE => Node::File { mode, data },
            LINK => Node::Link(String::from_utf8(data).map_err(io::Error::other)?),
            DEVICE => Node::Device { mode, number },
            _ => return Err(io::Error::other(format!("{path} is of an unknown kind"))),
        };
        tree.put(&path, node).map_err(io::Error::other)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> Tree {
        let mut tree = Tree::default();
        let mut put = |path: &str, node| tree.put(path, node).unwrap();
        put("bin", Node::Link("usr/bin".into()));
        let data = b"#!".to_vec();
        put("bin/su", Node::File { mode: 0o4755, data });
        put("tmp", Node::Directory { mode: 0o1777 });
        let number = (1, 3);
        put(
            "dev/null",
            Node::Device {
                mode: 0o666,
                number,
            },
        );
        tree
    }

    #[test]
    fn a_tree_comes_back_as_it_went_in() {
        let archive = write(&tree()).unwrap();
        assert_eq!(&archive[..6], b"070701");
        assert_eq!(archive.len() % 4, 0);
        assert_eq!(read(&archive).unwrap(), tree());
        assert_eq!(write(&read(&archive).unwrap()).unwrap(), archive);
    }

    #[test]
    fn half_an_archive_is_refused() {
        let archive = write(&tree()).unwrap();
        for length in [0, 5, 200, archive.len() - 124] {
            assert!(read(&archive[..length]).is_err(), "{length}");
        }
    }
}
