//! [`Inode`]: what a name in the tree leads to.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use super::attributes::{Attributes, Kind};
use super::device::Device;
use super::pseudo::Pseudo;
use crate::budget::{Budget, Share};
use crate::errno::Errno;
use crate::mm::{MemoryFile, heap};
use crate::sync::Mutex;
use crate::task;
use crate::time;

/// Most inodes at one time: each takes kernel heap that programs could ask for without end.
const MOST_INODES: usize = 32_768;

/// Longest name, as on Linux.
pub(super) const NAME_MAX: usize = 255;

/// Longest path, also with the links that are followed.
pub(super) const PATH_MAX: usize = 4096;

/// Most names listed under one lock.
const LISTED_NAMES: usize = 64;

/// The place of the first name in a listing: two more come before it.
pub(super) const FIRST_PLACE: u64 = 2;

static INODES: Budget<MOST_INODES> = Budget::full();

/// What a name in the tree leads to, and files without a name. It lives as long as a name or an open file refers to it.
#[derive(Debug)]
pub struct Inode {
    _share: Share<MOST_INODES>,
    number: u64,
    permissions: AtomicU32,
    /// Names in the tree; 1 for a directory.
    names: AtomicU32,
    /// Since the epoch.
    modified_ns: AtomicU64,
    /// Some process has, or had, a record lock of it. Until then no close has to look for any.
    pub(super) had_records: AtomicBool,
    pub(super) what: What,
}

/// What it is.
#[derive(Debug)]
pub(super) enum What {
    Directory(Directory),
    Regular(Regular),
    /// To that path.
    Link(Arc<str>),
    /// To the program of the process that follows it.
    ProgramLink,
    Device(Device),
    Pseudo(Pseudo),
}

impl Inode {
    /// Nothing leads to it yet.
    ///
    /// # Errors
    /// ENOSPC when there are too many, or the kernel has hardly any memory left for them.
    pub(super) fn new(what: What, permissions: u32) -> Result<Arc<Self>, Errno> {
        Self::of_time(what, permissions, time::realtime_ns())
    }

    /// The same, modified at that time.
    pub(super) fn of_time(what: What, permissions: u32, at_ns: u64) -> Result<Arc<Self>, Errno> {
        static LAST: AtomicU64 = AtomicU64::new(0);
        if heap::is_tight() {
            return Err(Errno::ENOSPC);
        }
        Ok(Arc::new(Self {
            _share: INODES.take(1).ok_or(Errno::ENOSPC)?,
            number: LAST.fetch_add(1, Ordering::Relaxed) + 1,
            permissions: AtomicU32::new(permissions & 0o7777),
            names: AtomicU32::new(0),
            modified_ns: AtomicU64::new(at_ns),
            had_records: AtomicBool::new(false),
            what,
        }))
    }

    /// What `stat` says.
    pub(super) fn attributes(&self) -> Attributes {
        let (kind, size, device) = match &self.what {
            What::Directory(_) => (Kind::Directory, 0, 0),
            What::Regular(regular) => (Kind::Regular, regular.size(), 0),
            What::Link(to) => (Kind::Link, to.len() as u64, 0),
            What::ProgramLink => (Kind::Link, 0, 0),
            What::Device(device) => (Kind::Device, 0, device.number()),
            What::Pseudo(_) => (Kind::Regular, 0, 0),
        };
        Attributes {
            device,
            size,
            inode: self.number,
            names: self.names.load(Ordering::Relaxed),
            modified_ns: self.modified_ns.load(Ordering::Relaxed),
            ..Attributes::new(kind, self.permissions.load(Ordering::Relaxed))
        }
    }

    /// Changes the permissions.
    pub fn set_permissions(&self, permissions: u32) {
        self.permissions
            .store(permissions & 0o7777, Ordering::Relaxed);
    }

    /// Changes the time of the last change.
    pub fn set_modified(&self, at_ns: u64) {
        self.modified_ns.store(at_ns, Ordering::Relaxed);
    }

    pub(super) fn is_executable(&self) -> bool {
        self.permissions.load(Ordering::Relaxed) & 0o111 != 0
    }

    pub(super) fn directory(&self) -> Option<&Directory> {
        match &self.what {
            What::Directory(directory) => Some(directory),
            _ => None,
        }
    }

    /// Where it leads to, if it is a link: for the running thread.
    pub(super) fn target(&self) -> Option<Arc<str>> {
        match &self.what {
            What::Link(to) => Some(to.clone()),
            What::ProgramLink => Some(task::current().process().exe()),
            _ => None,
        }
    }

    /// Its file, if it has bytes in memory.
    ///
    /// # Errors
    /// ENOSPC when there are too many files.
    pub(super) fn file(&self) -> Option<Result<Arc<MemoryFile>, Errno>> {
        match &self.what {
            What::Regular(regular) => Some(regular.file()),
            _ => None,
        }
    }

    /// A name more, or one less.
    pub(super) fn count_name(&self, more: bool) {
        match more {
            true => self.names.fetch_add(1, Ordering::Relaxed),
            false => self.names.fetch_sub(1, Ordering::Relaxed),
        };
    }
}

/// Bytes: at first those that came with the kernel.
#[derive(Debug)]
pub(super) struct Regular {
    path: Arc<str>,
    origin: &'static [u8],
    /// Once somebody has opened it.
    file: Mutex<Option<Arc<MemoryFile>>>,
}

impl Regular {
    /// Those bytes. The path is for people.
    pub fn new(path: impl Into<Arc<str>>, origin: &'static [u8]) -> Self {
        Self {
            path: path.into(),
            origin,
            file: Mutex::new(None),
        }
    }

    /// Its file.
    ///
    /// # Errors
    /// ENOSPC when there are too many.
    pub fn file(&self) -> Result<Arc<MemoryFile>, Errno> {
        let mut file = self.file.lock();
        // Those that came with the kernel are bounded, and there are programs among them.
        if file.is_none() && (!self.origin.is_empty() || !heap::is_tight()) {
            *file = MemoryFile::new(self.path.clone(), self.origin);
        }
        file.clone().ok_or(Errno::ENOSPC)
    }

    fn size(&self) -> u64 {
        let file = self.file.lock();
        file.as_ref()
            .map_or(self.origin.len() as u64, |file| file.size())
    }
}

/// Names, and where it is itself.
#[derive(Debug)]
pub(super) struct Directory {
    names: Mutex<Names>,
    /// The directory above and the name there; `None` for the root, and when the name is gone.
    above: Mutex<Option<(Weak<Inode>, Arc<str>)>>,
    /// Made by the kernel: programs change nothing in it.
    is_fixed: bool,
}

#[derive(Debug)]
struct Names {
    by_name: BTreeMap<Arc<str>, Named>,
    /// In the order in which they were made: who lists them goes on behind a place, whatever comes and goes meanwhile.
    by_place: BTreeMap<u64, Arc<str>>,
    next_place: u64,
    /// No name leads here any more, and none is taken in.
    is_closed: bool,
}

#[derive(Debug)]
struct Named {
    place: u64,
    inode: Arc<Inode>,
}

/// One name in a listing.
pub(super) struct Listed {
    pub place: u64,
    pub name: Arc<str>,
    pub inode: Arc<Inode>,
}

impl Directory {
    pub const fn new(is_fixed: bool) -> Self {
        Self {
            names: Mutex::new(Names {
                by_name: BTreeMap::new(),
                by_place: BTreeMap::new(),
                next_place: FIRST_PLACE,
                is_closed: false,
            }),
            above: Mutex::new(None),
            is_fixed,
        }
    }

    /// EPERM where programs may change nothing.
    pub fn may_change(&self) -> Result<(), Errno> {
        match self.is_fixed {
            true => Err(Errno::EPERM),
            false => Ok(()),
        }
    }

    pub fn get(&self, name: &str) -> Option<Arc<Inode>> {
        let names = self.names.lock();
        Some(names.by_name.get(name)?.inode.clone())
    }

    /// Gives the name to `inode`; what had it before.
    ///
    /// # Errors
    /// ENOENT in a directory that was removed, ENOSPC where the kernel has hardly any memory left for new names.
    pub fn put(&self, name: Arc<str>, inode: Arc<Inode>) -> Result<Option<Arc<Inode>>, Errno> {
        inode.count_name(true);
        let mut names = self.names.lock();
        let names = &mut *names;
        if names.is_closed {
            inode.count_name(false);
            return Err(Errno::ENOENT);
        }
        if let Some(named) = names.by_name.get_mut(&name) {
            let old = core::mem::replace(&mut named.inode, inode);
            old.count_name(false);
            return Ok(Some(old));
        }
        if heap::is_tight() {
            inode.count_name(false);
            return Err(Errno::ENOSPC);
        }
        let place = names.next_place;
        names.next_place += 1;
        names.by_place.insert(place, name.clone());
        names.by_name.insert(name, Named { place, inode });
        Ok(None)
    }

    /// Takes the name away; what had it.
    pub fn take(&self, name: &str) -> Option<Arc<Inode>> {
        let mut names = self.names.lock();
        let named = names.by_name.remove(name)?;
        names.by_place.remove(&named.place);
        named.inode.count_name(false);
        Some(named.inode)
    }

    /// ENOENT if it takes in no more names.
    pub fn is_open(&self) -> Result<(), Errno> {
        match self.names.lock().is_closed {
            true => Err(Errno::ENOENT),
            false => Ok(()),
        }
    }

    /// Takes in no more names, if there are none.
    ///
    /// # Errors
    /// ENOTEMPTY.
    pub fn close(&self) -> Result<(), Errno> {
        let mut names = self.names.lock();
        if !names.by_name.is_empty() {
            return Err(Errno::ENOTEMPTY);
        }
        names.is_closed = true;
        Ok(())
    }

    /// Some names from a place on; none behind the last.
    pub fn listed_from(&self, place: u64) -> Vec<Listed> {
        let mut found = Vec::with_capacity(LISTED_NAMES);
        let names = self.names.lock();
        let range = names.by_place.range(place..).take(LISTED_NAMES);
        found.extend(range.filter_map(|(place, name)| {
            Some(Listed {
                place: *place,
                name: name.clone(),
                inode: names.by_name.get(name)?.inode.clone(),
            })
        }));
        found
    }

    /// The directory above; `None` for the root.
    pub fn above(&self) -> Option<Arc<Inode>> {
        let above = self.above.lock();
        above.as_ref()?.0.upgrade()
    }

    /// It has this name there from now on.
    pub fn set_above(&self, above: Option<(&Arc<Inode>, Arc<str>)>) {
        *self.above.lock() = above.map(|(inode, name)| (Arc::downgrade(inode), name));
    }

    /// The path from the root.
    ///
    /// # Errors
    /// ENOENT if no name leads here any more, ENAMETOOLONG if it is no path that programs can use.
    pub fn path(&self) -> Result<String, Errno> {
        if self.names.lock().is_closed {
            return Err(Errno::ENOENT);
        }
        let step = |directory: &Self| {
            let above = directory.above.lock();
            let (inode, name) = above.as_ref()?;
            Some((inode.upgrade()?, name.clone()))
        };
        let mut parts = Vec::new();
        let mut len = 1;
        let mut next = step(self);
        while let Some((inode, name)) = next {
            len += 1 + name.len();
            if len > PATH_MAX {
                return Err(Errno::ENAMETOOLONG);
            }
            parts.push(name);
            next = inode.directory().and_then(step);
        }
        let mut path = String::new();
        for part in parts.iter().rev() {
            path.push('/');
            path.push_str(part);
        }
        if path.is_empty() {
            path.push('/');
        }
        Ok(path)
    }
}

/// A pseudo file in the tree.
pub(super) fn pseudo_file(pseudo: Pseudo) -> Result<Arc<Inode>, Errno> {
    Inode::new(What::Pseudo(pseudo), pseudo.permissions())
}
