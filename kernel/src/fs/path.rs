//! [`Path`]: a path as a program names it, and the walk along it.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;

use super::file::OpenFile;
use super::inode::{Inode, NAME_MAX, PATH_MAX};
use super::tree;
use crate::errno::Errno;
use crate::task::Process;

/// Most links that one walk follows, as on Linux.
const MOST_LINKS: usize = 40;

/// A path, and the directory from which it is walked if it does not begin at the root.
#[derive(Clone, Debug)]
pub struct Path {
    base: Arc<Inode>,
    text: String,
}

/// What a walk does with a link at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastLink {
    /// It goes on.
    Follow,
    /// It ends there, unless a slash follows the link.
    Stay,
    /// It ends there: the name is what is meant.
    Name,
}

/// Where a walk has ended.
#[derive(Debug)]
pub(super) struct Found {
    /// The last directory on the way, and the name there; empty if the path ends with `.`, `..` or the root.
    pub directory: Arc<Inode>,
    pub name: Arc<str>,
    /// What has the name, if anything has.
    pub inode: Option<Arc<Inode>>,
    /// A slash follows the name: only a directory will do.
    pub is_directory_meant: bool,
}

impl Path {
    /// From the working directory of the process.
    pub fn new(process: &Process, text: impl Into<String>) -> Self {
        Self {
            base: process.working_directory(),
            text: text.into(),
        }
    }

    /// From an open directory, which does not matter if the path begins at the root.
    ///
    /// # Errors
    /// ENOTDIR.
    pub fn from_directory(directory: &OpenFile, text: impl Into<String>) -> Result<Self, Errno> {
        let base = directory.directory().ok_or(Errno::ENOTDIR)?.clone();
        let text = text.into();
        Ok(Self { base, text })
    }

    /// As it was named.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Another one from the same directory.
    pub fn relative(&self, text: impl Into<String>) -> Self {
        Self {
            base: self.base.clone(),
            text: text.into(),
        }
    }

    /// From the root.
    pub fn absolute(text: impl Into<String>) -> Self {
        Self {
            base: tree::root(),
            text: text.into(),
        }
    }

    /// What it leads to.
    ///
    /// # Errors
    /// ENOENT, ENOTDIR, ENAMETOOLONG, ELOOP.
    pub(super) fn find(&self, last: LastLink) -> Result<Arc<Inode>, Errno> {
        self.walk(last)?.inode.ok_or(Errno::ENOENT)
    }

    /// Follows it to its end, where there need not be anything.
    ///
    /// # Errors
    /// As [`find`](Self::find), the first for what is missing on the way.
    pub(super) fn walk(&self, last: LastLink) -> Result<Found, Errno> {
        let mut text = Cow::Borrowed(&*self.text);
        let mut walked = 0;
        let mut at = self.start(&text);
        let mut links = 0;
        loop {
            let rest = text[walked..].trim_start_matches('/');
            let (name, tail) = rest.split_once('/').unwrap_or((rest, ""));
            let behind = text.len() - tail.len();
            let directory = at.directory().ok_or(Errno::ENOTDIR)?;
            let is_last = tail.bytes().all(|byte| byte == b'/');
            if matches!(name, "" | "." | "..") {
                if name == ".." {
                    at = directory.above().unwrap_or(at);
                }
                if is_last {
                    return Ok(Found::at_end(at));
                }
                walked = behind;
                continue;
            }
            if name.len() > NAME_MAX {
                return Err(Errno::ENAMETOOLONG);
            }
            let inode = directory.get(name).or_else(|| tree::own_process(&at, name));
            let is_directory_meant = is_last && rest.len() > name.len();
            let goes_on = !is_last
                || match last {
                    LastLink::Follow => true,
                    LastLink::Stay => is_directory_meant,
                    LastLink::Name => false,
                };
            if let Some(target) = inode
                .as_ref()
                .and_then(|inode| inode.target())
                .filter(|_| goes_on)
            {
                links += 1;
                if links > MOST_LINKS {
                    return Err(Errno::ELOOP);
                }
                if target.starts_with('/') {
                    at = tree::root();
                }
                text = Cow::Owned(format!("{target}{}", &rest[name.len()..]));
                walked = 0;
                if text.len() > PATH_MAX {
                    return Err(Errno::ENAMETOOLONG);
                }
                continue;
            }
            if is_last {
                let is_other = inode
                    .as_ref()
                    .is_some_and(|inode| inode.directory().is_none());
                if is_directory_meant && is_other {
                    return Err(Errno::ENOTDIR);
                }
                return Ok(Found {
                    name: Arc::from(name),
                    directory: at,
                    inode,
                    is_directory_meant,
                });
            }
            at = inode.ok_or(Errno::ENOENT)?;
            walked = behind;
        }
    }

    fn start(&self, text: &str) -> Arc<Inode> {
        match text.starts_with('/') {
            true => tree::root(),
            false => self.base.clone(),
        }
    }

    /// The path from the root to what it leads to, whose last name may be new. Links are not followed at the end.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub(super) fn from_root(found: &Found) -> Result<String, Errno> {
        let directory = found.directory.directory().ok_or(Errno::ENOTDIR)?.path()?;
        Ok(match (&*directory, &*found.name) {
            (_, "") => directory,
            ("/", name) => format!("/{name}"),
            (_, name) => format!("{directory}/{name}"),
        })
    }
}

impl Found {
    /// A directory without a name of its own in the path.
    fn at_end(inode: Arc<Inode>) -> Self {
        Self {
            directory: inode.clone(),
            name: Arc::from(""),
            inode: Some(inode),
            is_directory_meant: true,
        }
    }

    /// The directory for a new name.
    ///
    /// # Errors
    /// EEXIST if something has it, ENOENT where programs may change nothing, as on Linux.
    pub fn for_new_name(&self) -> Result<&Arc<Inode>, Errno> {
        if self.inode.is_some() {
            return Err(Errno::EEXIST);
        }
        let directory = self.directory.directory().ok_or(Errno::ENOTDIR)?;
        directory.may_change().map_err(|_| Errno::ENOENT)?;
        Ok(&self.directory)
    }
}
