//! Threads and processes: making, replacing, ending and waiting for them.

use linux_raw_sys::general as linux;
use linux_raw_sys::prctl;

use super::args::{self, Args};
use super::outcome::{Outcome, all_known, done};
use super::{clock, files};
use crate::addr::USER_END;
use crate::arch::trap::TrapFrame;
use crate::errno::Errno;
use crate::task::{self, CloneRequest, Current, ExitStatus, NAME_BYTES, Pid, WaitFor, WaitOptions};
use crate::user_memory::{UserBytes, UserPtr};
use alloc::vec::Vec;

/// Flags of a thread: what must be shared, and what may be asked for besides.
const THREAD_FLAGS: u32 = linux::CLONE_VM
    | linux::CLONE_FS
    | linux::CLONE_FILES
    | linux::CLONE_SIGHAND
    | linux::CLONE_THREAD;
const THREAD_OPTIONS: u32 = linux::CLONE_DETACHED | CHILD_OPTIONS;

/// What may be asked for besides, for any child.
const CHILD_OPTIONS: u32 = linux::CLONE_SETTLS
    | linux::CLONE_PARENT_SETTID
    | linux::CLONE_CHILD_SETTID
    | linux::CLONE_CHILD_CLEARTID
    | linux::CLONE_SYSVSEM
    | linux::CLONE_UNTRACED
    | linux::CLONE_IO;

/// Flags of a child that borrows the address space until it calls `execve`, as `posix_spawn` makes.
const VFORK_FLAGS: u32 = linux::CLONE_VM | linux::CLONE_VFORK;

/// Missing in the generated constants.
const ARCH_GET_FS: u32 = 0x1003;

/// The low byte of the flags is the signal that announces the end of the child.
const EXIT_SIGNAL_MASK: u32 = 0xff;

/// Most bytes of arguments and environment together, with their terminators.
const MOST_ARGUMENT_BYTES: usize = 128 << 10;

/// Most arguments, and most environment strings.
const MOST_ARGUMENTS: usize = 4096;

pub(super) fn clone(me: &Current, a: &Args, frame: &TrapFrame) -> Outcome {
    // The high half holds flags of `clone3` only; Linux ignores it.
    let flags = a.u32(0);
    let request = CloneRequest {
        stack: a.usize(1),
        parent_tid: pointer_if(flags, linux::CLONE_PARENT_SETTID, a.ptr(2)),
        child_tid: pointer_if(flags, linux::CLONE_CHILD_SETTID, a.ptr(3)),
        clear_child_tid: pointer_if(flags, linux::CLONE_CHILD_CLEARTID, a.ptr(3)),
        tls: (flags & linux::CLONE_SETTLS != 0).then_some(a.u64(4)),
        is_unannounced: flags & EXIT_SIGNAL_MASK == 0,
    };
    if request.tls.is_some_and(|tls| tls >= USER_END as u64) {
        return Err(Errno::EPERM);
    }
    let shared = flags & !EXIT_SIGNAL_MASK;
    if shared & THREAD_FLAGS == THREAD_FLAGS && shared & !(THREAD_FLAGS | THREAD_OPTIONS) == 0 {
        return Ok(task::clone_thread(me, &request, frame)?.as_u32() as usize);
    }
    if matches!(flags & EXIT_SIGNAL_MASK, 0 | linux::SIGCHLD) {
        let made = match shared & !CHILD_OPTIONS {
            0 => Some(task::fork(me, &request, frame)?),
            linux::CLONE_VM => Some(task::clone_process(me, &request, frame)?),
            VFORK_FLAGS => Some(task::vfork(me, &request, frame)?),
            _ => None,
        };
        if let Some(pid) = made {
            return Ok(pid.as_u32() as usize);
        }
    }
    refuse_nonsense(flags)?;
    log::info!(
        "pid {} ({}): clone with flags {flags:#x} is not supported: threads share all, processes their memory at most",
        me.process().pid(),
        me.process().name()
    );
    Err(Errno::ENOSYS)
}

/// What Linux refuses, too: handlers are shared with the memory that they are in, threads with their handlers.
fn refuse_nonsense(flags: u32) -> Result<(), Errno> {
    let has = |flag| flags & flag != 0;
    let handlers_alone = has(linux::CLONE_SIGHAND) && !has(linux::CLONE_VM);
    let thread_alone = has(linux::CLONE_THREAD) && !has(linux::CLONE_SIGHAND);
    if handlers_alone || thread_alone {
        return Err(Errno::EINVAL);
    }
    Ok(())
}

fn pointer_if(flags: u32, flag: u32, pointer: UserPtr<u32>) -> Option<UserPtr<u32>> {
    (flags & flag != 0).then_some(pointer)
}

pub(super) fn vfork(me: &Current, frame: &TrapFrame) -> Outcome {
    Ok(task::vfork(me, &CloneRequest::default(), frame)?.as_u32() as usize)
}

pub(super) fn fork(me: &Current, frame: &TrapFrame) -> Outcome {
    Ok(task::fork(me, &CloneRequest::default(), frame)?.as_u32() as usize)
}

pub(super) fn execve(me: &Current, a: &Args, frame: &mut TrapFrame) -> Outcome {
    let path = files::path(me, a.ptr(0))?;
    let mut budget = MOST_ARGUMENT_BYTES;
    let argv = read_strings(a.ptr(1), &mut budget)?;
    let envp = read_strings(a.ptr(2), &mut budget)?;
    done(task::exec(me, path, argv, &envp, frame))
}

/// Reads a null-terminated array of strings; a null array is empty.
fn read_strings(array: UserPtr<usize>, budget: &mut usize) -> Result<Vec<Vec<u8>>, Errno> {
    let mut strings = Vec::new();
    let reserved = strings.try_reserve_exact(MOST_ARGUMENTS);
    reserved.map_err(|_| Errno::ENOMEM)?;
    if array.is_null() {
        return Ok(strings);
    }
    for at in 0..MOST_ARGUMENTS {
        let string = array.element(at).read()?;
        if string == 0 {
            return Ok(strings);
        }
        let bytes = args::read_bytes_with_nul(string, *budget).map_err(|errno| match errno {
            Errno::ENAMETOOLONG => Errno::E2BIG,
            other => other,
        })?;
        *budget = budget.saturating_sub(bytes.len() + 1);
        strings.push(bytes);
    }
    Err(Errno::E2BIG)
}

pub(super) fn exit(a: &Args) -> ! {
    task::exit_thread(ExitStatus::Exited(a.u32(0) as u8))
}

pub(super) fn exit_group(a: &Args) -> ! {
    task::exit_process(ExitStatus::Exited(a.u32(0) as u8))
}

/// The options of both calls, all children being of one kind.
const WAIT_OPTIONS: u32 =
    linux::WNOHANG | linux::WCONTINUED | linux::__WALL | linux::__WCLONE | linux::__WNOTHREAD;

fn wait_options(bits: u32) -> WaitOptions {
    let has = |flag| bits & flag != 0;
    WaitOptions {
        ended: has(linux::WEXITED),
        stopped: has(linux::WSTOPPED),
        continued: has(linux::WCONTINUED),
        only_look: has(linux::WNOHANG),
        keeps: has(linux::WNOWAIT),
        of_announced: !has(linux::__WCLONE) || has(linux::__WALL),
        of_unannounced: has(linux::__WCLONE) || has(linux::__WALL),
    }
}

pub(super) fn wait4(me: &Current, a: &Args) -> Outcome {
    let options = a.u32(2);
    all_known(options, WAIT_OPTIONS | linux::WUNTRACED)?;
    let wanted = match a.i32(0) {
        pid @ 1.. => WaitFor::Child(Pid::new(pid as u32)),
        -1 => WaitFor::AnyChild,
        0 => WaitFor::Group(me.process().belonging().group),
        group => WaitFor::Group(Pid::new(group.unsigned_abs())),
    };
    let options = wait_options(options | linux::WEXITED);
    let Some((pid, news, used)) = task::wait_child(me, wanted, options)? else {
        return Ok(0);
    };
    a.ptr::<u32>(1).write_if_some(news.as_wait_status())?;
    a.ptr(3).write_if_some(clock::to_rusage(used))?;
    Ok(pid.as_u32() as usize)
}

pub(super) fn waitid(me: &Current, a: &Args) -> Outcome {
    let (kind, id, options) = (a.u32(0), a.i32(1), a.u32(3));
    let wanted_news = linux::WEXITED | linux::WSTOPPED | linux::WCONTINUED;
    all_known(options, WAIT_OPTIONS | wanted_news | linux::WNOWAIT)?;
    if options & wanted_news == 0 {
        return Err(Errno::EINVAL);
    }
    let wanted = match (kind, id) {
        (linux::P_ALL, _) => WaitFor::AnyChild,
        (linux::P_PID, 1..) => WaitFor::Child(Pid::new(id as u32)),
        (linux::P_PGID, 0) => WaitFor::Group(me.process().belonging().group),
        (linux::P_PGID, 1..) => WaitFor::Group(Pid::new(id as u32)),
        _ => return Err(Errno::EINVAL),
    };
    let found = task::wait_child(me, wanted, wait_options(options))?;
    // Number, error, code and padding; child, user, status.
    let mut info = [0u32; 7];
    if let Some((pid, news, used)) = found {
        let (code, status) = news.as_code_and_status();
        info = [linux::SIGCHLD, 0, code, 0, pid.as_u32(), 0, status];
        a.ptr(4).write_if_some(clock::to_rusage(used))?;
    }
    done(a.ptr(2).write_if_some(info))
}

pub(super) fn set_tid_address(me: &Current, a: &Args) -> Outcome {
    me.set_clear_child_tid(a.usize(0));
    Ok(me.tid().as_u32() as usize)
}

pub(super) fn arch_prctl(me: &Current, a: &Args) -> Outcome {
    match a.u32(0) {
        linux::ARCH_SET_FS if a.usize(1) < USER_END => {
            me.set_fs_base(a.u64(1));
            Ok(0)
        }
        linux::ARCH_SET_FS => Err(Errno::EPERM),
        ARCH_GET_FS => done(a.ptr(1).write(me.fs_base())),
        // The GS base is the kernel's.
        _ => Err(Errno::EINVAL),
    }
}

pub(super) fn prctl(me: &Current, a: &Args) -> Outcome {
    match a.u32(0) {
        prctl::PR_SET_NAME => {
            me.set_name(read_name(a.usize(1))?);
            Ok(0)
        }
        prctl::PR_GET_NAME => {
            done(UserBytes::new(a.usize(1), NAME_BYTES)?.copy_from(&me.name().as_bytes()))
        }
        _ => Err(Errno::EINVAL),
    }
}

/// Up to the terminator, cut if it does not come.
fn read_name(address: usize) -> Result<[u8; NAME_BYTES], Errno> {
    let mut name = [0; NAME_BYTES];
    for (at, byte) in name[..NAME_BYTES - 1].iter_mut().enumerate() {
        *byte = UserPtr::<u8>::new(address).element(at).read()?;
        if *byte == 0 {
            break;
        }
    }
    Ok(name)
}
