//! `execve`: another program in the same process.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use super::name::ThreadName;
use super::signal::AltStack;
use super::thread::work;
use super::timer::Deadline;
use super::{Current, alarm, robust, sched, start};
use crate::arch::fpu::{self, FpuState};
use crate::arch::trap::TrapFrame;
use crate::errno::Errno;
use crate::exec::{self, UserEntry};
use crate::fs;
use crate::mm::{MemorySpace, SpaceUse};
use crate::zerocopy;

/// How often the last thread looks whether the others have gone.
const LOOK_NS: u64 = 1_000_000;

/// Replaces the program of the current process. On success `frame` enters the new one; on failure
/// nothing has changed.
pub fn exec(
    me: &Current,
    path: &str,
    argv: &[Vec<u8>],
    envp: &[Vec<u8>],
    frame: &mut TrapFrame,
) -> Result<(), Errno> {
    let (path, image) = fs::executable(me.process(), path)?;
    let space = MemorySpace::new()?;
    let entry = exec::load(&space, image, argv, envp, start::random_seed())?;
    end_other_threads(me)?;
    // From here on nothing fails.
    zerocopy::leave(me);
    robust::let_go(me);
    alarm::forget_made(me.process().pid());
    enter_space(me, space);
    reset_process(me, path);
    reset_thread(me, frame, entry);
    Ok(())
}

/// Ends all other threads and waits until they have gone.
fn end_other_threads(me: &Current) -> Result<(), Errno> {
    for thread in me.process().threads() {
        if thread.tid() != me.tid() {
            thread.add_work(work::EXIT);
            sched::unpark(&thread);
            sched::nudge(&thread);
        }
    }
    while me.process().thread_count() > 1 {
        if me.is_ending() {
            return Err(Errno::EINTR);
        }
        sched::park(Some(Deadline::after_ns(LOOK_NS)));
    }
    Ok(())
}

fn enter_space(me: &Current, space: Arc<MemorySpace>) {
    me.process().set_space(&space);
    let space = SpaceUse::new(space);
    let old = me.with_context(|context| context.space.replace(space));
    sched::enter_own_space();
    // Loaded nowhere on behalf of this thread any more: if this was its last, its memory is freed here, in
    // thread context.
    drop(old);
    me.process().release_space();
}

fn reset_process(me: &Current, path: String) {
    let closing = me.process().files.lock().take_close_on_exec();
    drop(closing);
    {
        let mut actions = me.process().actions.lock();
        *actions = actions.after_exec();
    }
    me.set_name(ThreadName::of_path(&path).as_bytes());
    me.process().set_exe(Arc::from(path));
}

fn reset_thread(me: &Current, frame: &mut TrapFrame, entry: UserEntry) {
    me.clear_child_tid.store(0, Ordering::Relaxed);
    me.signals.lock().alt_stack = AltStack::DISABLED;
    me.set_fs_base(0);
    fpu::restore(&FpuState::initial());
    *frame = TrapFrame::user(entry.rip, entry.rsp);
}
