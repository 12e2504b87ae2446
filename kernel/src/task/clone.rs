//! New threads, and children that borrow the address space until they call `execve`.

use alloc::sync::Arc;

use super::affinity::Affinity;
use super::exit::end_process;
use super::id::{self, MAX_THREADS, TooManyThreads};
use super::process::{Ending, ExitStatus};
use super::signal::Signal;
use super::stack::KernelStack;
use super::thread::NewThread;
use super::{Current, Pid, Process, Thread, Tid, sched, start};
use crate::arch::fpu::{self, FpuState};
use crate::arch::trap::TrapFrame;
use crate::errno::Errno;
use crate::mm::MemorySpace;
use crate::syscall::args::UserPtr;

const _: () = assert!(MAX_THREADS > 1);

/// What `clone` asks for besides the kind of child.
#[derive(Clone, Copy, Default, Debug)]
pub struct CloneRequest {
    /// Stack pointer of the child; 0 to use the parent's.
    pub stack: usize,
    /// The parent finds the child's number here.
    pub parent_tid: Option<UserPtr<u32>>,
    /// The child finds its number here.
    pub child_tid: Option<UserPtr<u32>>,
    /// Zeroed and woken as the child ends.
    pub clear_child_tid: Option<UserPtr<u32>>,
    /// FS base of the child; the parent's if not given.
    pub tls: Option<u64>,
}

impl From<TooManyThreads> for Errno {
    fn from(_: TooManyThreads) -> Self {
        Self::EAGAIN
    }
}

impl From<Ending> for Errno {
    fn from(_: Ending) -> Self {
        Self::EINTR
    }
}

/// A number that goes back unless its thread comes to life.
#[derive(Debug)]
pub(super) struct ReservedTid(Option<Tid>);

impl ReservedTid {
    pub fn new() -> Result<Self, TooManyThreads> {
        Ok(Self(Some(id::reserve()?)))
    }

    /// For the first thread of a new process.
    pub fn for_process() -> Result<Self, TooManyThreads> {
        Ok(Self(Some(id::reserve_process()?)))
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
            id::release(tid);
        }
    }
}

/// Makes a thread of the same process and starts it.
pub fn clone_thread(me: &Current, request: &CloneRequest, frame: &TrapFrame) -> Result<Tid, Errno> {
    let reserved = ReservedTid::new()?;
    let process = me.process().clone();
    let thread = child_of(me, reserved.tid(), process.clone(), request, frame)?;
    write_tids(request, reserved.tid())?;
    process.add_thread(thread.clone())?;
    id::register_thread(&thread);
    let tid = reserved.keep();
    sched::start(thread);
    Ok(tid)
}

/// Makes a child process that runs in the same address space, starts it, and waits until it has
/// called `execve` or ended.
pub fn vfork(me: &Current, request: &CloneRequest, frame: &TrapFrame) -> Result<Pid, Errno> {
    let parent = me.process().clone();
    let reserved = ReservedTid::for_process()?;
    let files = parent.files.lock().clone();
    let actions = parent.actions.lock().clone();
    let process = Process::new(reserved.tid(), Some(&parent), parent.exe(), files, actions);
    let thread = child_of(me, reserved.tid(), process.clone(), request, frame)?;
    write_tids(request, reserved.tid())?;
    process.add_thread(thread.clone())?;
    id::register_thread(&thread);
    let pid = Pid::from(reserved.keep());
    parent.add_child(process.clone());
    sched::start(thread);
    wait_for_release(me, &parent, &process);
    Ok(pid)
}

/// The parent must not run while the child uses its stack: only its own end cuts this short, and
/// takes the child along.
fn wait_for_release(me: &Current, parent: &Process, child: &Arc<Process>) {
    loop {
        let released = || child.has_released_space().then_some(());
        match parent.child_events().wait_until(None, released) {
            Ok(()) => return,
            Err(_) if me.is_ending() => {
                end_process(child, ExitStatus::Killed(Signal::KILL));
                return;
            }
            // A signal: it stays pending until the child has let go.
            Err(_) => super::yield_now(),
        }
    }
}

fn child_of(
    me: &Current,
    tid: Tid,
    process: Arc<Process>,
    request: &CloneRequest,
    frame: &TrapFrame,
) -> Result<Arc<Thread>, Errno> {
    let stack = KernelStack::new().ok_or(Errno::ENOMEM)?;
    let space: Arc<MemorySpace> = super::current_space().ok_or(Errno::ENOMEM)?;
    let mut entry = *frame;
    entry.rax = 0;
    if request.stack != 0 {
        entry.rsp = request.stack as u64;
    }
    let mut registers = FpuState::initial();
    fpu::save(&mut registers);
    let thread = start::new_thread(NewThread {
        tid,
        process,
        stack,
        space,
        entry,
        fpu: registers,
        fs_base: request.tls.unwrap_or_else(|| me.fs_base()),
        affinity: Affinity::copy_of(&me.affinity),
        signals: me.signals.lock().for_child(),
        name: me.name().as_bytes(),
    });
    if let Some(pointer) = request.clear_child_tid {
        thread.set_clear_child_tid(pointer.address());
    }
    Ok(thread)
}

fn write_tids(request: &CloneRequest, tid: Tid) -> Result<(), Errno> {
    for pointer in [request.parent_tid, request.child_tid]
        .into_iter()
        .flatten()
    {
        pointer.write(tid.as_u32())?;
    }
    Ok(())
}
