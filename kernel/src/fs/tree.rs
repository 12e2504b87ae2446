//! The tree of names, in memory: at first what came with the kernel, its devices and its pseudo files.
//!
//! Everything can be changed but directories of pseudo files. Names are found under the lock of their directory; whoever changes some holds [`CHANGES`],
//! too, so that a directory that is moved or removed stays where it is meanwhile.

use alloc::string::String;
use alloc::sync::Arc;

use linux_raw_sys::general as linux;
use spin::Once;

use super::attributes::Attributes;
use super::device::DEVICES;
use super::inode::{Directory, Inode, Regular, What, pseudo_file};
use super::path::{Found, LastLink, Path};
use super::pseudo;
use crate::errno::Errno;
use crate::exec::cpio::Entry;
use crate::exec::initramfs;
use crate::mm::heap;
use crate::sync::Mutex;
use crate::task;

/// Permissions of directories that no archive says anything about.
const DIRECTORY_PERMISSIONS: u32 = 0o755;
/// Permissions of links.
const LINK_PERMISSIONS: u32 = 0o777;
const DEVICE_PERMISSIONS: u32 = 0o666;

/// Directories that are always there, and whether programs may change something in them.
const DIRECTORIES: &[(&str, bool)] = &[
    ("/dev", true),
    ("/dev/shm", true),
    ("/proc", false),
    ("/sys", false),
    ("/tmp", true),
];

static ROOT: Once<Arc<Inode>> = Once::new();

/// Held by who changes names. Leaves under it: the locks of directories.
static CHANGES: Mutex<()> = Mutex::new(());

/// The root directory.
pub fn root() -> Arc<Inode> {
    ROOT.get().expect("made at boot").clone()
}

/// Makes the tree. Called once at boot, before the first program; there is a heap.
///
/// # Errors
/// ENOSPC when too many files came with the kernel.
pub fn make() -> Result<(), Errno> {
    let root = Inode::new(
        What::Directory(Directory::new(false)),
        DIRECTORY_PERMISSIONS,
    )?;
    root.count_name(true);
    ROOT.call_once(|| root);
    for &(path, may_change) in DIRECTORIES {
        directory_at(path, !may_change)?;
    }
    for entry in initramfs::list() {
        match core::str::from_utf8(entry.name) {
            Ok(name) if !name.is_empty() => add_entry(name, &entry)?,
            _ => {}
        }
    }
    for &(path, device, _) in DEVICES {
        add(
            path,
            Inode::new(What::Device(device), DEVICE_PERMISSIONS)?,
            false,
        )?;
    }
    for (path, pseudo) in pseudo::files() {
        add(&path, pseudo_file(pseudo)?, true)?;
    }
    let program = Inode::new(What::ProgramLink, LINK_PERMISSIONS)?;
    add("/proc/self/exe", program, true)
}

/// Adds a member of the archive.
fn add_entry(name: &str, entry: &Entry<'static>) -> Result<(), Errno> {
    let text = || core::str::from_utf8(entry.data).unwrap_or_default();
    let what = match entry.mode & linux::S_IFMT {
        linux::S_IFREG => What::Regular(Regular::new(alloc::format!("/{name}"), entry.data)),
        linux::S_IFLNK => What::Link(Arc::from(text())),
        linux::S_IFDIR => {
            let directory = directory_at(name, false)?;
            directory.set_permissions(entry.mode);
            directory.set_modified(entry.modified_ns());
            return Ok(());
        }
        // The kernel has devices of its own.
        _ => return Ok(()),
    };
    add(
        name,
        Inode::of_time(what, entry.mode, entry.modified_ns())?,
        false,
    )
}

/// Gives `inode` that path, of directories that are made if they are missing.
fn add(path: &str, inode: Arc<Inode>, is_fixed: bool) -> Result<(), Errno> {
    let path = path.trim_matches('/');
    let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
    let above = directory_at(above, is_fixed)?;
    above
        .directory()
        .ok_or(Errno::ENOTDIR)?
        .put(Arc::from(name), inode)?;
    Ok(())
}

/// The directory at that path, through links; made if it is missing.
fn directory_at(path: &str, is_fixed: bool) -> Result<Arc<Inode>, Errno> {
    let path = path.trim_matches('/');
    match Path::absolute(path).find(LastLink::Follow) {
        Err(Errno::ENOENT) => {}
        other => return other,
    }
    let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
    let above = directory_at(above, is_fixed)?;
    let made = Inode::new(
        What::Directory(Directory::new(is_fixed)),
        DIRECTORY_PERMISSIONS,
    )?;
    put_directory(&above, Arc::from(name), made.clone())?;
    Ok(made)
}

/// Gives the name in `above` to a directory.
fn put_directory(above: &Arc<Inode>, name: Arc<str>, made: Arc<Inode>) -> Result<(), Errno> {
    let names = above.directory().ok_or(Errno::ENOTDIR)?;
    let directory = made.directory().ok_or(Errno::ENOTDIR)?;
    directory.set_above(Some((above, name.clone())));
    names.put(name, made.clone()).map(drop)
}

/// The directory of the running process, if `name` is its number and `directory` has such names. Those of others are not there.
pub(super) fn own_process(directory: &Arc<Inode>, name: &str) -> Option<Arc<Inode>> {
    let number: u32 = name.parse().ok()?;
    let proc = root().directory()?.get("proc")?;
    let is_own = number == task::current().process().pid().as_u32();
    (is_own && Arc::ptr_eq(&proc, directory)).then(|| proc.directory()?.get("self"))?
}

/// What `stat` says about it.
///
/// # Errors
/// ENOENT, ENOTDIR, ENAMETOOLONG, ELOOP.
pub fn attributes(path: &Path, last: LastLink) -> Result<Attributes, Errno> {
    Ok(path.find(last)?.attributes())
}

/// What it leads to.
///
/// # Errors
/// As [`attributes`].
pub fn inode(path: &Path, last: LastLink) -> Result<Arc<Inode>, Errno> {
    path.find(last)
}

/// Where a link leads to.
///
/// # Errors
/// EINVAL for what is none, else as [`attributes`].
pub fn read_link(path: &Path) -> Result<Arc<str>, Errno> {
    path.find(LastLink::Stay)?.target().ok_or(Errno::EINVAL)
}

/// The directory there, as a working directory.
///
/// # Errors
/// ENOTDIR, else as [`attributes`].
pub fn find_directory(path: &Path) -> Result<Arc<Inode>, Errno> {
    let inode = path.find(LastLink::Follow)?;
    inode.directory().ok_or(Errno::ENOTDIR)?;
    Ok(inode)
}

/// The path of a directory.
///
/// # Errors
/// ENOENT if it was removed.
pub fn path_of(directory: &Inode) -> Result<String, Errno> {
    directory.directory().ok_or(Errno::ENOTDIR)?.path()
}

/// Gives a new file the name that the walk has ended at; the one that another was quicker to give it to.
pub(super) fn create(found: &Found, inode: Arc<Inode>) -> Result<Arc<Inode>, Errno> {
    if found.is_directory_meant {
        return Err(Errno::EISDIR);
    }
    let directory = found.for_new_name()?.directory().ok_or(Errno::ENOTDIR)?;
    let _changes = CHANGES.lock();
    if let Some(other) = directory.get(&found.name) {
        return Ok(other);
    }
    directory.put(found.name.clone(), inode.clone())?;
    Ok(inode)
}

/// Gives a new name to what is new.
fn create_new(path: &Path, inode: Arc<Inode>) -> Result<(), Errno> {
    let found = path.walk(LastLink::Name)?;
    let above = found.for_new_name()?;
    let names = above.directory().ok_or(Errno::ENOTDIR)?;
    if found.is_directory_meant && inode.directory().is_none() {
        return Err(Errno::ENOENT);
    }
    // Not dropped under the lock where it gets no name: it may be the last reference to a file.
    let _kept = inode.clone();
    let _changes = CHANGES.lock();
    if names.get(&found.name).is_some() {
        return Err(Errno::EEXIST);
    }
    match inode.directory() {
        Some(_) => put_directory(above, found.name.clone(), inode),
        None => names.put(found.name.clone(), inode).map(drop),
    }
}

/// A new directory (`mkdir`).
///
/// # Errors
/// EEXIST, ENOSPC, ENOENT among pseudo files, too, else as [`attributes`].
pub fn make_directory(path: &Path, permissions: u32) -> Result<(), Errno> {
    let directory = What::Directory(Directory::new(false));
    create_new(path, Inode::new(directory, permissions)?)
}

/// A new link to `target`, which need not be there.
///
/// # Errors
/// As [`make_directory`].
pub fn make_link(target: &str, path: &Path) -> Result<(), Errno> {
    let link = What::Link(Arc::from(target));
    create_new(path, Inode::new(link, LINK_PERMISSIONS)?)
}

/// One more name for what `from` leads to.
///
/// # Errors
/// EPERM for a directory, else as [`make_directory`].
pub fn add_name(from: &Path, last: LastLink, to: &Path) -> Result<(), Errno> {
    let inode = from.find(last)?;
    match inode.directory() {
        Some(_) => Err(Errno::EPERM),
        None => create_new(to, inode),
    }
}

/// Takes a name away, but of a directory.
///
/// # Errors
/// EISDIR, EPERM among pseudo files, else as [`attributes`].
pub fn remove(path: &Path) -> Result<(), Errno> {
    let found = path.walk(LastLink::Name)?;
    if found.name.is_empty() {
        return Err(Errno::EISDIR);
    }
    take(&found, |inode| match inode.directory() {
        Some(_) => Err(Errno::EISDIR),
        None => Ok(()),
    })
}

/// Takes the name of an empty directory away.
///
/// # Errors
/// ENOTDIR, ENOTEMPTY, EBUSY for the root, EINVAL for one that ends with `.`, else as [`remove`].
pub fn remove_directory(path: &Path) -> Result<(), Errno> {
    let found = path.walk(LastLink::Name)?;
    if found.name.is_empty() {
        let is_root = Arc::ptr_eq(&found.directory, &root());
        return Err(if is_root { Errno::EBUSY } else { Errno::EINVAL });
    }
    take(&found, |inode| {
        let directory = inode.directory().ok_or(Errno::ENOTDIR)?;
        directory.may_change()?;
        directory.close()
    })
}

fn take(found: &Found, check: impl FnOnce(&Inode) -> Result<(), Errno>) -> Result<(), Errno> {
    let directory = found.directory.directory().ok_or(Errno::ENOTDIR)?;
    found.inode.as_ref().ok_or(Errno::ENOENT)?;
    directory.may_change()?;
    let gone = {
        let _changes = CHANGES.lock();
        let inode = directory.get(&found.name).ok_or(Errno::ENOENT)?;
        check(&inode)?;
        directory.take(&found.name)
    };
    // Not under the lock: it may be the last reference to a file.
    drop(gone);
    Ok(())
}

/// What a rename does with the new name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewName {
    /// It is taken from what has it.
    Replace,
    /// Nothing may have it.
    MustBeFree,
    /// What has it gets the old one.
    Exchange,
}

/// Gives what `from` leads to the name `to` instead.
///
/// # Errors
/// EINVAL for a directory into itself, EISDIR, ENOTDIR, ENOTEMPTY for what would be replaced, EBUSY, EEXIST, EPERM, else as [`attributes`].
pub fn rename(from: &Path, to: &Path, new_name: NewName) -> Result<(), Errno> {
    let (from, to) = (from.walk(LastLink::Name)?, to.walk(LastLink::Name)?);
    if from.name.is_empty() || to.name.is_empty() {
        return Err(Errno::EBUSY);
    }
    let old_names = from.directory.directory().ok_or(Errno::ENOTDIR)?;
    let new_names = to.directory.directory().ok_or(Errno::ENOTDIR)?;
    old_names.may_change()?;
    new_names.may_change()?;
    let changes = CHANGES.lock();
    let inode = old_names.get(&from.name).ok_or(Errno::ENOENT)?;
    let there = new_names.get(&to.name);
    new_names.is_open()?;
    match new_name {
        NewName::MustBeFree if there.is_some() => return Err(Errno::EEXIST),
        NewName::Exchange if there.is_none() => return Err(Errno::ENOENT),
        _ => {}
    }
    if there
        .as_ref()
        .is_some_and(|there| Arc::ptr_eq(there, &inode))
    {
        return Ok(());
    }
    if inode.directory().is_none() && to.is_directory_meant {
        return Err(Errno::ENOTDIR);
    }
    may_move(&inode, &to.directory)?;
    let is_fixed = |inode: &Inode| inode.directory().is_some_and(|it| it.may_change().is_err());
    if is_fixed(&inode) || there.as_ref().is_some_and(|there| is_fixed(there)) {
        return Err(Errno::EBUSY);
    }
    if there.is_none() && heap::is_tight() {
        return Err(Errno::ENOSPC);
    }
    let gone = match (there, new_name) {
        (Some(other), NewName::Exchange) => {
            may_move(&other, &from.directory)?;
            put(&from, other)?
        }
        (Some(other), _) => {
            match (inode.directory(), other.directory()) {
                (None, Some(_)) => return Err(Errno::EISDIR),
                (Some(_), None) => return Err(Errno::ENOTDIR),
                (Some(_), Some(other)) => other.close()?,
                (None, None) => {}
            }
            old_names.take(&from.name)
        }
        (None, _) => old_names.take(&from.name),
    };
    let replaced = put(&to, inode);
    drop(changes);
    // Not under the lock: these may be the last references to files.
    drop(gone);
    replaced.map(drop)
}

/// Gives the name that a walk has ended at to `inode`; what had it.
fn put(found: &Found, inode: Arc<Inode>) -> Result<Option<Arc<Inode>>, Errno> {
    let names = found.directory.directory().ok_or(Errno::ENOTDIR)?;
    if let Some(directory) = inode.directory() {
        directory.set_above(Some((&found.directory, found.name.clone())));
    }
    names.put(found.name.clone(), inode)
}

/// EINVAL if `inode` is a directory that leads to `directory`.
fn may_move(inode: &Arc<Inode>, directory: &Arc<Inode>) -> Result<(), Errno> {
    let mut at = Some(directory.clone());
    while let Some(here) = at {
        if Arc::ptr_eq(&here, inode) {
            return Err(Errno::EINVAL);
        }
        at = here.directory().and_then(Directory::above);
    }
    Ok(())
}
