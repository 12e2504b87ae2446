//! A process: threads that share an address space, files and signal actions.

use alloc::string::String;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};

use linux_raw_sys::general as linux;

use super::group::Belonging;
use super::job::Job;
use super::limits::{Limit, Limits};
use super::signal::{self, Actions, SigInfo, Signal, ThreadSignals};
use super::usage::{Meter, Usage};
use super::wait::WaitQueue;
use super::{Pid, Thread, Tid, alarm, id};
use crate::errno::Errno;
use crate::fs::{self, FdTable, Inode};
use crate::mm::MemorySpace;
use crate::sync::Mutex;

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExitStatus {
    /// By `exit` or `exit_group`, with the low byte of its argument.
    Exited(u8),
    /// By a signal.
    Killed(Signal),
}

impl ExitStatus {
    /// As `wait4` reports it.
    pub fn as_wait_status(self) -> u32 {
        match self {
            Self::Exited(code) => u32::from(code) << 8,
            Self::Killed(signal) => signal.number(),
        }
    }

    /// As a `siginfo_t` reports it.
    pub fn as_code_and_status(self) -> (u32, u32) {
        match self {
            Self::Exited(code) => (linux::CLD_EXITED, u32::from(code)),
            Self::Killed(signal) => (linux::CLD_KILLED, signal.number()),
        }
    }
}

/// The threads of a process and its end.
#[derive(Debug)]
struct Members {
    threads: Vec<Arc<Thread>>,
    /// Set once: the whole process is to end with this status.
    ending: Option<ExitStatus>,
    /// Status of the thread that left last, for a process whose threads all just `exit`.
    last_left: ExitStatus,
    /// Set when no thread is left.
    ended: Option<ExitStatus>,
}

/// One process.
pub struct Process {
    pid: Pid,
    belonging: Mutex<Belonging>,
    parent: Mutex<Weak<Process>>,
    children: Mutex<Vec<Arc<Process>>>,
    /// Parents wait here for their children, and `vfork` for the child's `execve`.
    child_events: WaitQueue,
    members: Mutex<Members>,
    /// Open files; shared with nobody.
    pub(crate) files: Mutex<FdTable>,
    pub(super) actions: Mutex<Actions>,
    /// Absolute path of the program.
    exe: Mutex<Arc<str>>,
    working_directory: Mutex<Arc<Inode>>,
    /// Its end is announced by SIGCHLD.
    is_announced: AtomicBool,
    /// What it has kept of the rights that the superuser may give up. Nothing here asks for them.
    capabilities: AtomicU64,
    /// The child has its own address space, or is gone: its `vfork` parent may go on.
    released_space: Mutex<bool>,
    /// Signals for whichever thread stops blocking them first.
    pub(super) shared_signals: Mutex<ThreadSignals>,
    pub(super) job: Mutex<Job>,
    /// For others that look into it.
    space: Mutex<Weak<MemorySpace>>,
    limits: Mutex<Limits>,
    /// Rights that new files do not get.
    umask: AtomicU32,
    /// Kept for programs that ask; it changes nothing.
    nice: AtomicI32,
    /// What threads have used that are gone, and children that have been waited for.
    past: Meter,
    past_children: Meter,
}

/// Rights that new files do not get unless a process says otherwise.
const UMASK: u32 = 0o022;

/// The process is ending and takes no new thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ending;

impl Process {
    /// A process without threads, which nobody finds yet; `parent` is `None` for the first one.
    pub(super) fn new(
        tid: Tid,
        parent: Option<&Arc<Process>>,
        exe: Arc<str>,
        files: FdTable,
        actions: Actions,
    ) -> Arc<Self> {
        let pid = tid.into();
        let belonging = parent.map_or(Belonging::alone(pid), |parent| parent.belonging());
        let directory = parent.map_or_else(fs::root, |parent| parent.working_directory());
        let capabilities = parent.map_or(u64::MAX, |parent| parent.capabilities());
        let limits = parent.map_or_else(Limits::new, |parent| *parent.limits.lock());
        let umask = parent.map_or(UMASK, |parent| parent.umask());
        let nice = parent.map_or(0, |parent| parent.nice());
        Arc::new(Self {
            pid,
            belonging: Mutex::new(belonging),
            parent: Mutex::new(parent.map_or_else(Weak::new, Arc::downgrade)),
            children: Mutex::new(Vec::new()),
            child_events: WaitQueue::new(),
            members: Mutex::new(Members {
                threads: Vec::new(),
                ending: None,
                last_left: ExitStatus::Exited(0),
                ended: None,
            }),
            files: Mutex::new(files),
            actions: Mutex::new(actions),
            exe: Mutex::new(exe),
            working_directory: Mutex::new(directory),
            is_announced: AtomicBool::new(true),
            capabilities: AtomicU64::new(capabilities),
            released_space: Mutex::new(parent.is_none()),
            shared_signals: Mutex::new(ThreadSignals::new()),
            job: Mutex::new(Job::default()),
            space: Mutex::new(Weak::new()),
            limits: Mutex::new(limits),
            umask: AtomicU32::new(umask),
            nice: AtomicI32::new(nice),
            past: Meter::default(),
            past_children: Meter::default(),
        })
    }

    /// Its number.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Its group and its session: those of its parent at first.
    pub fn belonging(&self) -> Belonging {
        *self.belonging.lock()
    }

    pub(super) fn set_belonging(&self, belonging: Belonging) {
        *self.belonging.lock() = belonging;
    }

    /// The parent, while it lives.
    pub(super) fn parent(&self) -> Option<Arc<Process>> {
        self.parent.lock().upgrade()
    }

    /// The number of the parent; 0 when there is none.
    pub fn parent_pid(&self) -> u32 {
        self.parent().map_or(0, |parent| parent.pid.as_u32())
    }

    /// Absolute path of the program it runs.
    pub fn exe(&self) -> Arc<str> {
        self.exe.lock().clone()
    }

    pub(super) fn set_exe(&self, exe: Arc<str>) {
        *self.exe.lock() = exe;
    }

    /// Whether its end is announced by SIGCHLD; else it is waited for as what Linux calls a clone child.
    pub(super) fn is_announced(&self) -> bool {
        self.is_announced.load(Ordering::Relaxed)
    }

    pub(super) fn set_announced(&self, is_announced: bool) {
        self.is_announced.store(is_announced, Ordering::Relaxed);
    }

    /// What it has kept of the rights that the superuser may give up.
    pub fn capabilities(&self) -> u64 {
        self.capabilities.load(Ordering::Relaxed)
    }

    /// Keeps no others.
    pub fn keep_capabilities(&self, kept: u64) {
        self.capabilities.fetch_and(kept, Ordering::Relaxed);
    }

    /// Where relative paths begin.
    pub fn working_directory(&self) -> Arc<Inode> {
        self.working_directory.lock().clone()
    }

    /// Relative paths begin there from now on; it is a directory.
    pub fn set_working_directory(&self, directory: Arc<Inode>) {
        let old = core::mem::replace(&mut *self.working_directory.lock(), directory);
        drop(old);
    }

    /// Rights that new files do not get.
    pub fn umask(&self) -> u32 {
        self.umask.load(Ordering::Relaxed)
    }

    /// Changes them; those before.
    pub fn set_umask(&self, umask: u32) -> u32 {
        self.umask.swap(umask & 0o777, Ordering::Relaxed)
    }

    /// How nice it has been asked to be.
    pub fn nice(&self) -> i32 {
        self.nice.load(Ordering::Relaxed)
    }

    /// Changes that.
    pub fn set_nice(&self, nice: i32) {
        self.nice.store(nice.clamp(-20, 19), Ordering::Relaxed);
    }

    /// One of its limits.
    ///
    /// # Errors
    /// EINVAL for an unknown one.
    pub fn limit(&self, kind: u32) -> Result<Limit, Errno> {
        self.limits.lock().get(kind)
    }

    /// Changes one.
    ///
    /// # Errors
    /// See [`Limits::set`].
    pub fn set_limit(&self, kind: u32, limit: Limit) -> Result<(), Errno> {
        self.limits.lock().set(kind, limit)?;
        if kind == linux::RLIMIT_NOFILE {
            self.files.lock().set_limit(limit.now as usize);
        }
        Ok(())
    }

    /// Its address space, while it has one.
    pub(super) fn space(&self) -> Option<Arc<MemorySpace>> {
        self.space.lock().upgrade()
    }

    pub(super) fn set_space(&self, space: &Arc<MemorySpace>) {
        let before = core::mem::replace(&mut *self.space.lock(), Arc::downgrade(space));
        drop(before);
    }

    /// What it has used, its threads that are gone included.
    pub fn usage(&self) -> Usage {
        let members = self.members.lock();
        let now = members.threads.iter().map(|thread| thread.usage());
        now.sum::<Usage>() + self.past.read()
    }

    /// What its children have used that it has waited for, and theirs.
    pub fn usage_of_children(&self) -> Usage {
        self.past_children.read()
    }

    /// Both together.
    pub(super) fn usage_of_family(&self) -> Usage {
        self.usage() + self.usage_of_children()
    }

    /// The threads alive now.
    pub fn threads(&self) -> Vec<Arc<Thread>> {
        self.members.lock().threads.clone()
    }

    /// How many there are.
    pub(super) fn thread_count(&self) -> usize {
        self.members.lock().threads.len()
    }

    pub(super) fn add_thread(&self, thread: Arc<Thread>) -> Result<(), Ending> {
        let mut members = self.members.lock();
        if members.ending.is_some() {
            return Err(Ending);
        }
        members.threads.push(thread);
        Ok(())
    }

    /// Takes a dying thread out. Returns how the process ended if it was the last one.
    pub(super) fn remove_thread(&self, tid: Tid, status: ExitStatus) -> Option<ExitStatus> {
        let mut members = self.members.lock();
        let at = members.threads.iter().position(|t| t.tid() == tid)?;
        let thread = members.threads.swap_remove(at);
        self.past.add(thread.usage());
        members.last_left = status;
        let last = members.threads.is_empty();
        let how = members.ending.unwrap_or(members.last_left);
        drop(members);
        drop(thread);
        last.then_some(how)
    }

    /// Decides that the process ends. Returns the threads to stop, or `None` when its end was
    /// decided before.
    pub(super) fn begin_exit(&self, status: ExitStatus) -> Option<Vec<Arc<Thread>>> {
        let mut members = self.members.lock();
        if members.ending.is_some() {
            return None;
        }
        members.ending = Some(status);
        Some(members.threads.clone())
    }

    /// Publishes the end to the parent. No thread is left.
    pub(super) fn finish(self: &Arc<Self>, status: ExitStatus) {
        alarm::forget_all(self.pid);
        let files = core::mem::replace(&mut *self.files.lock(), FdTable::empty());
        drop(files);
        fs::record_locks::release(self.pid);
        self.leave_children();
        self.release_space();
        self.report_end(status);
    }

    /// Gives all children to the first process.
    fn leave_children(&self) {
        let orphans = core::mem::take(&mut *self.children.lock());
        // Without it the machine is about to end.
        let Some(init) = id::find_process(Pid::INIT).filter(|init| init.pid != self.pid) else {
            return;
        };
        for orphan in orphans {
            *orphan.parent.lock() = Arc::downgrade(&init);
            orphan.set_announced(true);
            init.add_child(orphan.clone());
            // One that has ended, or does so now, may have told its old parent.
            if let Some(how) = orphan.exit_status() {
                orphan.report_end(how);
            }
        }
    }

    /// Has ended from now on, and tells the parent.
    fn report_end(self: &Arc<Self>, how: ExitStatus) {
        let Some(parent) = self.parent() else {
            self.members.lock().ended = Some(how);
            id::release_process(self.pid);
            return;
        };
        let forgotten = {
            // One step for whoever waits: a handler of the signal finds the child, who finds the child has the signal, and
            // nobody finds a child that is forgotten at once.
            let mut siblings = parent.children.lock();
            self.members.lock().ended = Some(how);
            let is_announced = self.is_announced();
            let is_forgotten =
                is_announced && parent.actions.lock().get(Signal::CHLD).forgets_children();
            let forgotten = is_forgotten
                .then(|| take_child(&mut siblings, self))
                .flatten();
            if is_announced {
                signal::post_to_process(&parent, SigInfo::from_child(self.pid.as_u32(), how));
            }
            forgotten
        };
        if forgotten.is_some() {
            id::release_process(self.pid);
        }
        parent.child_events.wake_all();
    }

    /// How it ended, if it has.
    pub(super) fn exit_status(&self) -> Option<ExitStatus> {
        self.members.lock().ended
    }

    /// The child no longer runs in its parent's address space.
    pub(super) fn release_space(&self) {
        *self.released_space.lock() = true;
        if let Some(parent) = self.parent() {
            parent.child_events.wake_all();
        }
    }

    pub(super) fn has_released_space(&self) -> bool {
        *self.released_space.lock()
    }

    pub(super) fn add_child(&self, child: Arc<Process>) {
        self.children.lock().push(child);
    }

    pub(super) fn child_events(&self) -> &WaitQueue {
        &self.child_events
    }

    /// Looks for a child that `wanted` accepts and `news` has something to tell of. `Err` when no child is accepted at all.
    pub(super) fn look_at_children<T>(
        &self,
        wanted: impl Fn(&Process) -> bool,
        news: impl Fn(&Process) -> Option<T>,
    ) -> Result<Option<(Arc<Process>, T)>, NoSuchChild> {
        let children = self.children.lock();
        let mut candidates = children.iter().filter(|child| wanted(child)).peekable();
        candidates.peek().ok_or(NoSuchChild)?;
        Ok(candidates.find_map(|child| Some((child.clone(), news(child)?))))
    }

    /// Forgets an ended child. False when another thread has done so before.
    pub(super) fn reap(&self, child: &Arc<Process>) -> bool {
        let forgotten = take_child(&mut self.children.lock(), child);
        if forgotten.is_some() {
            self.past_children.add(child.usage_of_family());
            id::release_process(child.pid);
        }
        forgotten.is_some()
    }

    /// Its name for messages: the last component of the program's path.
    pub fn name(&self) -> String {
        let exe = self.exe();
        String::from(exe.rsplit('/').next().unwrap_or(&exe))
    }
}

/// No child matches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NoSuchChild;

/// Takes a child out of its parent's list, unless somebody has.
fn take_child(children: &mut Vec<Arc<Process>>, child: &Arc<Process>) -> Option<Arc<Process>> {
    let at = children.iter().position(|c| Arc::ptr_eq(c, child))?;
    Some(children.swap_remove(at))
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").field("pid", &self.pid).finish()
    }
}
