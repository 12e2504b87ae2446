//! The tree of names: initramfs, devices, pseudo files, and the directories that lead to them.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use linux_raw_sys::general as linux;

use super::attributes::{Attributes, Kind};
use super::device::DEVICES;
use super::node::Node;
use super::pseudo;
use super::tmp;
use crate::errno::Errno;
use crate::exec::initramfs;
use crate::task::Process;

/// A link to the program of the reading process.
const EXE_LINK: &str = "/proc/self/exe";

/// Directories that exist without holding anything.
const EMPTY_DIRECTORIES: &[&str] = &["/", "/dev", "/proc", "/sys", tmp::DIRECTORY];

/// An absolute path without empty, `.` and `..` components; relative ones start at the root.
pub fn normalise(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

/// A path relative to a directory.
pub fn join(directory: &str, path: &str) -> String {
    format!("{directory}/{path}")
}

/// What `stat` says about the path. Links are followed.
pub fn attributes(path: &str) -> Result<Attributes, Errno> {
    let path = normalise(path);
    if path == EXE_LINK {
        return attributes(&crate::task::current().process().exe());
    }
    Ok(lookup(&path)?.attributes(&path))
}

/// What the path is. Links are not followed.
pub(super) fn lookup(path: &str) -> Result<Node, Errno> {
    if let Some(&(_, device, _)) = DEVICES.iter().find(|(name, ..)| *name == path) {
        return Ok(Node::Device(device));
    }
    if let Some(pseudo) = pseudo::find(path) {
        return Ok(Node::Pseudo(pseudo));
    }
    if let Some(file) = initramfs::find(path) {
        match file.mode & linux::S_IFMT {
            linux::S_IFREG => return Ok(Node::Static(file)),
            linux::S_IFDIR => return Ok(Node::Directory),
            _ => {}
        }
    }
    if let Some(regular) = tmp::find(path) {
        return Ok(Node::Memory(regular));
    }
    if is_directory(path) {
        return Ok(Node::Directory);
    }
    // A file in the middle of a path tells more than that the path does not exist.
    match path.rsplit_once('/') {
        Some((parent, _)) if !parent.is_empty() => match lookup(parent)? {
            Node::Directory => Err(Errno::ENOENT),
            _ => Err(Errno::ENOTDIR),
        },
        _ => Err(Errno::ENOENT),
    }
}

/// Is it always there, or does it lead to something?
fn is_directory(path: &str) -> bool {
    EMPTY_DIRECTORIES.contains(&path)
        || DEVICES.iter().any(|(name, ..)| is_below(path, name))
        || pseudo::is_directory(path)
        || initramfs::has_below(path)
}

/// Is the path one of something in the directory, or further down?
pub(super) fn is_below(directory: &str, path: &str) -> bool {
    path.strip_prefix(directory)
        .is_some_and(|rest| rest.starts_with('/'))
}

/// The target of a link: EINVAL for what is none.
pub fn read_link(process: &Process, path: &str) -> Result<String, Errno> {
    let path = normalise(path);
    if path == EXE_LINK {
        return Ok(pseudo::exe_link(process));
    }
    lookup(&path)?;
    Err(Errno::EINVAL)
}

/// Is this the link to the running program?
pub(super) fn is_exe_link(path: &str) -> bool {
    path == EXE_LINK
}

/// Names in a directory, sorted, with their kinds: those that never change, hence without the files of [`tmp`].
pub(super) fn children(directory: &str) -> BTreeMap<String, Kind> {
    let prefix = format!("{}/", directory.trim_end_matches('/'));
    let mut names = BTreeMap::new();
    let mut add = |path: &str, kind: Kind| {
        let Some(rest) = path.strip_prefix(&*prefix).filter(|rest| !rest.is_empty()) else {
            return;
        };
        match rest.split_once('/') {
            Some((first, _)) => {
                names.insert(String::from(first), Kind::Directory);
            }
            None => {
                names.entry(String::from(rest)).or_insert(kind);
            }
        }
    };
    for (path, ..) in DEVICES {
        add(path, Kind::Device);
    }
    for path in EMPTY_DIRECTORIES {
        add(path, Kind::Directory);
    }
    pseudo::paths().for_each(|path| add(&path, Kind::Regular));
    for entry in initramfs::list() {
        if let Ok(name) = core::str::from_utf8(entry.name) {
            let kind = match entry.mode & linux::S_IFMT {
                linux::S_IFDIR => Kind::Directory,
                _ => Kind::Regular,
            };
            add(&normalise(name), kind);
        }
    }
    names
}
