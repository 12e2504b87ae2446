//! Thread and process numbers, and the registry that finds a live thread or process by number.
//!
//! Threads and processes share one number space as on Linux: the first thread of a process has
//! the number of the process. The registry holds weak references, so it keeps nothing alive.

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::fmt;

use super::{Process, Thread};
use crate::sync::Mutex;

/// The most threads that may live at one time, in all processes together.
///
/// Run queues and timer queues reserve room for this many at boot, so that a wake-up from an
/// interrupt handler never allocates.
pub const MAX_THREADS: usize = 512;

/// The most processes, ended ones that nobody has waited for included.
const MAX_PROCESSES: usize = 256;

/// The largest number given out; the next one after it is the lowest free one again. musl keeps
/// flags in the two highest bits of a lock word that holds a thread number.
const ID_LIMIT: u32 = 1 << 22;

/// Number of a thread, unique among live threads.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Tid(u32);

/// Number of a process: that of its first thread.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Pid(u32);

impl Tid {
    /// What idle threads carry; no user thread ever has it.
    pub const IDLE: Self = Self(0);

    /// A number that user mode named, whether or not such a thread lives.
    pub const fn new(raw: u32) -> Self {
        Self(raw)
    }

    /// The bare number.
    pub const fn as_u32(self) -> u32 {
        self.0
    }
}

impl Pid {
    /// The first process; its end is the end of the machine.
    pub const INIT: Self = Self(1);

    /// A number that user mode named, whether or not such a process lives.
    pub const fn new(raw: u32) -> Self {
        Self(raw)
    }

    /// The bare number.
    pub const fn as_u32(self) -> u32 {
        self.0
    }
}

impl From<Tid> for Pid {
    fn from(tid: Tid) -> Self {
        Self(tid.0)
    }
}

impl fmt::Display for Tid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The machine already has [`MAX_THREADS`] threads, or as many processes as it may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooManyThreads;

static REGISTRY: Mutex<Registry> = Mutex::new(Registry::new());

struct Registry {
    /// `None` stands for a number that is given out while its thread is being built.
    threads: BTreeMap<Tid, Option<Weak<Thread>>>,
    processes: BTreeMap<Pid, Weak<Process>>,
    last: u32,
}

impl Registry {
    const fn new() -> Self {
        Self {
            threads: BTreeMap::new(),
            processes: BTreeMap::new(),
            last: 0,
        }
    }

    /// Bounded: at most `MAX_THREADS` numbers of living threads and processes each are skipped.
    fn free_id(&mut self) -> Tid {
        loop {
            self.last = self.last % ID_LIMIT + 1;
            let taken = self.threads.contains_key(&Tid(self.last))
                || self.processes.contains_key(&Pid(self.last));
            if !taken {
                return Tid(self.last);
            }
        }
    }
}

/// Takes a free number for the first thread of a process, see [`reserve`].
fn reserve_process() -> Result<Tid, TooManyThreads> {
    if REGISTRY.lock().processes.len() >= MAX_PROCESSES {
        return Err(TooManyThreads);
    }
    reserve()
}

/// Takes a free number. It stays taken until [`release`].
fn reserve() -> Result<Tid, TooManyThreads> {
    let mut registry = REGISTRY.lock();
    if registry.threads.len() >= MAX_THREADS {
        return Err(TooManyThreads);
    }
    let tid = registry.free_id();
    registry.threads.insert(tid, None);
    Ok(tid)
}

/// A number that goes back unless its thread comes to life.
#[derive(Debug)]
pub(super) struct ReservedTid(Option<Tid>);

impl ReservedTid {
    pub fn new() -> Result<Self, TooManyThreads> {
        Ok(Self(Some(reserve()?)))
    }

    /// For the first thread of a new process.
    pub fn for_process() -> Result<Self, TooManyThreads> {
        Ok(Self(Some(reserve_process()?)))
    }

    pub fn tid(&self) -> Tid {
        self.0.expect("not kept yet")
    }

    /// The thread lives and releases the number itself.
    pub fn keep(mut self) -> Tid {
        self.0.take().expect("kept once")
    }
}

impl Drop for ReservedTid {
    fn drop(&mut self) {
        if let Some(tid) = self.0 {
            release(tid);
        }
    }
}

/// Makes the thread findable by its number, which [`reserve`] gave out.
pub(super) fn register_thread(thread: &Arc<Thread>) {
    let known = Some(Arc::downgrade(thread));
    REGISTRY.lock().threads.insert(thread.tid(), known);
}

/// Makes the process findable by its number.
pub(super) fn register_process(process: &Arc<Process>) {
    let known = Arc::downgrade(process);
    REGISTRY.lock().processes.insert(process.pid(), known);
}

/// Gives the number of a dead thread back.
pub(super) fn release(tid: Tid) {
    REGISTRY.lock().threads.remove(&tid);
}

/// Gives the number of a process back that nobody will ask for any more.
pub(super) fn release_process(pid: Pid) {
    REGISTRY.lock().processes.remove(&pid);
}

/// The live thread with this number.
pub fn find_thread(tid: Tid) -> Option<Arc<Thread>> {
    // The lock is gone before the caller may drop the last reference to a thread.
    let entry = REGISTRY.lock().threads.get(&tid).cloned();
    entry.flatten()?.upgrade()
}

/// The process with this number, also while it is a zombie.
pub fn find_process(pid: Pid) -> Option<Arc<Process>> {
    let entry = REGISTRY.lock().processes.get(&pid).cloned();
    entry?.upgrade()
}

/// Every process that still has a number.
pub fn all_processes() -> Vec<Arc<Process>> {
    let weak: Vec<_> = REGISTRY.lock().processes.values().cloned().collect();
    weak.iter().filter_map(Weak::upgrade).collect()
}

/// Number of threads alive, for `/proc` and `sysinfo`.
pub fn thread_count() -> usize {
    REGISTRY.lock().threads.len()
}
