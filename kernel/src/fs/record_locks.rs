//! Record locks of files: `fcntl` with `F_SETLK` and its like. They keep nobody from reading and writing who does not ask for one.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::Ordering;

use super::file::OpenFile;
use super::inode::Inode;
use crate::errno::Errno;
use crate::sync::Mutex;
use crate::task::{Pid, WaitQueue};

/// Most locks of all processes together.
const MOST_LOCKS: usize = 4096;

/// What others may do meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lock {
    /// Lock it for reading, too.
    Shared,
    /// Nothing.
    Exclusive,
}

/// A locked range of bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The process that has locked it.
    pub owner: Pid,
    /// From its first byte to the one behind its last.
    pub bytes: Range<u64>,
    /// How.
    pub lock: Lock,
}

impl Record {
    fn conflicts_with(&self, other: &Self) -> bool {
        let is_exclusive = Lock::Exclusive == self.lock || Lock::Exclusive == other.lock;
        self.owner != other.owner && is_exclusive && self.overlaps(&other.bytes)
    }

    fn overlaps(&self, bytes: &Range<u64>) -> bool {
        self.bytes.start < bytes.end && bytes.start < self.bytes.end
    }
}

/// Those of all files, with the file: a handful.
static LOCKED: Mutex<Vec<(Arc<Inode>, Record)>> = Mutex::new(Vec::new());

/// Who waits for a range of any file.
static CHANGED: WaitQueue = WaitQueue::new();

/// A record of another process that keeps `wanted` from being locked.
pub fn conflict(inode: &Arc<Inode>, wanted: &Record) -> Option<Record> {
    conflict_in(&LOCKED.lock(), inode, wanted)
}

fn conflict_in(
    locked: &[(Arc<Inode>, Record)],
    inode: &Arc<Inode>,
    wanted: &Record,
) -> Option<Record> {
    let mut of_file = locked.iter().filter(|(of, _)| Arc::ptr_eq(of, inode));
    let found = of_file.find(|(_, record)| record.conflicts_with(wanted))?;
    Some(found.1.clone())
}

/// Locks `wanted` in place of whatever its owner has locked there; waits for others if it `may_wait`.
///
/// # Errors
/// EAGAIN, ENOLCK when there are too many, RESTART when a signal comes first.
pub fn lock(inode: &Arc<Inode>, wanted: &Record, may_wait: bool) -> Result<(), Errno> {
    let try_it = || {
        let mut locked = LOCKED.lock();
        if conflict_in(&locked, inode, wanted).is_some() {
            return None;
        }
        // One that is split becomes two.
        let has_room = locked.len() + 2 <= MOST_LOCKS && locked.try_reserve(2).is_ok();
        if has_room {
            inode.had_records.store(true, Ordering::Relaxed);
            cut(&mut locked, inode, wanted.owner, &wanted.bytes);
            locked.push((inode.clone(), wanted.clone()));
        }
        Some(if has_room { Ok(()) } else { Err(Errno::ENOLCK) })
    };
    let done = match try_it() {
        Some(done) => done,
        None if !may_wait => return Err(Errno::EAGAIN),
        None => CHANGED.wait_until(None, try_it)?,
    };
    // A lock may have become a weaker one.
    CHANGED.wake_all();
    done
}

/// Gives up what the process has locked there.
///
/// # Errors
/// ENOLCK when there are too many for the two parts that are left of one.
pub fn unlock(inode: &Arc<Inode>, owner: Pid, bytes: &Range<u64>) -> Result<(), Errno> {
    let mut locked = LOCKED.lock();
    let is_split = |(of, record): &(Arc<Inode>, Record)| {
        let Range { start, end } = record.bytes;
        let is_own = record.owner == owner && Arc::ptr_eq(of, inode);
        is_own && start < bytes.start && bytes.end < end
    };
    let has_room = locked.len() < MOST_LOCKS || !locked.iter().any(is_split);
    if !has_room || locked.try_reserve(1).is_err() {
        return Err(Errno::ENOLCK);
    }
    let had_any = cut(&mut locked, inode, owner, bytes);
    drop(locked);
    if had_any {
        CHANGED.wake_all();
    }
    Ok(())
}

/// Takes `bytes` out of what the process has locked of the file; whether it had any. There is room for one record more.
fn cut(
    locked: &mut Vec<(Arc<Inode>, Record)>,
    inode: &Arc<Inode>,
    owner: Pid,
    bytes: &Range<u64>,
) -> bool {
    let mut had_any = false;
    let mut at = 0;
    while at < locked.len() {
        let (of, record) = &locked[at];
        if record.owner != owner || !record.overlaps(bytes) || !Arc::ptr_eq(of, inode) {
            at += 1;
            continue;
        }
        had_any = true;
        let (inode, record) = locked.swap_remove(at);
        let below = record.bytes.start..bytes.start;
        let above = bytes.end..record.bytes.end;
        for bytes in [below, above] {
            if !bytes.is_empty() {
                let part = Record {
                    bytes,
                    ..record.clone()
                };
                locked.push((inode.clone(), part));
            }
        }
    }
    had_any
}

/// Gives up all that the process has locked of a file that it has closed, though it may have it open as another, too.
pub fn closed(file: &OpenFile, owner: Pid) {
    // Not behind the lock: what matters is what the process itself has locked before.
    if let Some(inode) = file.inode()
        && inode.had_records.load(Ordering::Relaxed)
    {
        // Whole records: none is split.
        let _whole = unlock(inode, owner, &(0..u64::MAX));
    }
}

/// Gives up all that the process has locked. It has ended.
pub fn release(owner: Pid) {
    let take = || {
        let mut locked = LOCKED.lock();
        let at = locked
            .iter()
            .position(|(_, record)| record.owner == owner)?;
        Some(locked.swap_remove(at))
    };
    let mut had_any = false;
    while let Some(gone) = take() {
        // Not under the lock: it may be the last reference to a file.
        drop(gone);
        had_any = true;
    }
    if had_any {
        CHANGED.wake_all();
    }
}
