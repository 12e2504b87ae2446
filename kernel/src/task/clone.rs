//! New threads, and children: copies of the process, or borrowers of its address space until they call `execve`.

use alloc::sync::Arc;

use super::affinity::Affinity;
use super::exit::end_process;
use super::id::{self, MAX_THREADS, ReservedTid, TooManyThreads};
use super::process::{Ending, ExitStatus};
use super::signal::{Signal, ThreadSignals};
use super::stack::KernelStack;
use super::thread::NewThread;
use super::{Current, Pid, Process, Thread, Tid, sched, start};
use crate::arch::fpu::{self, FpuState};
use crate::arch::top::region_of;
use crate::arch::trap::TrapFrame;
use crate::errno::Errno;
use crate::mm::place::is_of_stacks;
use crate::mm::{MemorySpace, SpaceUse};
use crate::user_memory::UserPtr;

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
    /// The end of the child is announced by no signal, and it is waited for as what Linux calls a clone child.
    pub is_unannounced: bool,
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

/// Makes a thread of the same process and starts it.
pub fn clone_thread(me: &Current, request: &CloneRequest, frame: &TrapFrame) -> Result<Tid, Errno> {
    let reserved = ReservedTid::new()?;
    let process = me.process().clone();
    let kin = Kin {
        tid: reserved.tid(),
        process: process.clone(),
        space: current_space()?,
        signals: me.signals.lock().for_thread(),
    };
    kin.space.track();
    let thread = child_of(me, kin, request, frame)?;
    tell_parent(request, reserved.tid());
    process.add_thread(thread.clone())?;
    id::register_thread(&thread);
    let tid = reserved.keep();
    sched::start(thread);
    Ok(tid)
}

/// Makes a child process that runs in the same address space, starts it, and waits until it has
/// called `execve` or ended.
pub fn vfork(me: &Current, request: &CloneRequest, frame: &TrapFrame) -> Result<Pid, Errno> {
    let (pid, child) = start_child(me, current_space()?, request, frame)?;
    wait_for_release(me, me.process(), &child);
    Ok(pid)
}

/// Makes a child process that runs in the same address space, and starts it.
///
/// # Errors
/// As [`fork`].
pub fn clone_process(
    me: &Current,
    request: &CloneRequest,
    frame: &TrapFrame,
) -> Result<Pid, Errno> {
    Ok(start_child(me, current_space()?, request, frame)?.0)
}

/// Makes a child process with a copy of the address space, and starts it.
///
/// # Errors
/// EAGAIN when there are too many processes or threads, ENOMEM without memory; nothing is left of the child then.
pub fn fork(me: &Current, request: &CloneRequest, frame: &TrapFrame) -> Result<Pid, Errno> {
    let space = current_space()?.fork()?;
    Ok(start_child(me, space, request, frame)?.0)
}

fn start_child(
    me: &Current,
    space: Arc<MemorySpace>,
    request: &CloneRequest,
    frame: &TrapFrame,
) -> Result<(Pid, Arc<Process>), Errno> {
    let parent = me.process();
    let reserved = ReservedTid::for_process()?;
    let files = parent.files.lock().clone();
    let actions = parent.actions.lock().clone();
    let process = Process::new(reserved.tid(), Some(parent), parent.exe(), files, actions);
    process.set_space(&space);
    process.set_announced(!request.is_unannounced);
    let kin = Kin {
        tid: reserved.tid(),
        process: process.clone(),
        space,
        signals: me.signals.lock().for_process(),
    };
    let thread = child_of(me, kin, request, frame)?;
    tell_parent(request, reserved.tid());
    process.add_thread(thread.clone())?;
    id::register_process(&process);
    id::register_thread(&thread);
    let pid = Pid::from(reserved.keep());
    parent.add_child(process.clone());
    sched::start(thread);
    Ok((pid, process))
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

/// What a child has that not every other child of the same thread has.
struct Kin {
    tid: Tid,
    process: Arc<Process>,
    space: Arc<MemorySpace>,
    signals: ThreadSignals,
}

fn current_space() -> Result<Arc<MemorySpace>, Errno> {
    super::current_space().ok_or(Errno::ENOMEM)
}

fn child_of(
    me: &Current,
    kin: Kin,
    request: &CloneRequest,
    frame: &TrapFrame,
) -> Result<Arc<Thread>, Errno> {
    let stack = KernelStack::new().ok_or(Errno::ENOMEM)?;
    let mut entry = *frame;
    entry.rax = 0;
    if request.stack != 0 {
        entry.rsp = request.stack as u64;
    }
    let mut registers = FpuState::initial();
    fpu::save(&mut registers);
    let thread = start::new_thread(NewThread {
        tid: kin.tid,
        process: kin.process,
        stack,
        space: SpaceUse::new(kin.space),
        entry,
        fpu: registers,
        fs_base: request.tls.unwrap_or_else(|| me.fs_base()),
        affinity: Affinity::copy_of(&me.affinity),
        scheduling: me.scheduling().of_child(),
        signals: kin.signals,
        name: me.name().as_bytes(),
        own_tid: request.child_tid,
    });
    if let Some(home) = home_of(me, request) {
        thread.set_home(home);
    }
    if let Some(pointer) = request.clear_child_tid {
        thread.set_clear_child_tid(pointer.address());
    }
    Ok(thread)
}

/// The region of the child's stack, if that is nobody else's: libraries map it in the parent.
fn home_of(me: &Current, request: &CloneRequest) -> Option<usize> {
    let region = region_of(request.stack.checked_sub(1)?);
    (is_of_stacks(region) && Some(region) != me.home()).then_some(region)
}

/// Puts the child's number where the parent wants it. As on Linux, nobody is told when that is nowhere; the child sees to
/// its own copy, which may be in other memory.
fn tell_parent(request: &CloneRequest, tid: Tid) {
    if let Some(pointer) = request.parent_tid {
        let _nowhere = pointer.write(tid.as_u32());
    }
}
