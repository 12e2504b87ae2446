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
use crate::exec::error::ExecError;
use crate::exec::{self, Arguments, Script, UserEntry};
use crate::fs::{self, Path, record_locks};
use crate::mm::{MemoryFile, MemorySpace, SpaceUse};
use crate::zerocopy;

/// How often the last thread looks whether the others have gone.
const LOOK_NS: u64 = 1_000_000;

/// Most scripts that run one another, as on Linux.
const MOST_SCRIPTS: usize = 4;

/// Replaces the program of the current process. On success `frame` enters the new one; on failure
/// nothing has changed.
pub fn exec(
    me: &Current,
    path: Path,
    argv: Vec<Vec<u8>>,
    envp: &[Vec<u8>],
    frame: &mut TrapFrame,
) -> Result<(), Errno> {
    let program = Program::find(path, argv)?;
    let space = MemorySpace::new()?;
    let entry = program.load(&space, envp)?;
    let path = program.path;
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

/// A program to be run.
pub(super) struct Program {
    /// Its absolute path.
    pub path: String,
    file: Arc<MemoryFile>,
    argv: Vec<Vec<u8>>,
}

impl Program {
    /// The one at that path, or the one that runs the script there.
    ///
    /// # Errors
    /// EACCES, ENOENT and what else a walk may end with; ELOOP for scripts that run scripts without end.
    pub fn find(mut path: Path, mut argv: Vec<Vec<u8>>) -> Result<Self, Errno> {
        for _ in 0..=MOST_SCRIPTS {
            let (absolute, file) = fs::executable(&path)?;
            let Some(script) = Script::of(&file) else {
                return Ok(Self {
                    path: absolute,
                    file,
                    argv,
                });
            };
            let mut words = Vec::new();
            let room = words.try_reserve_exact(argv.len() + 2);
            room.map_err(|_| Errno::ENOMEM)?;
            words.push(script.interpreter.clone().into_bytes());
            words.extend(script.argument.map(String::into_bytes));
            words.push(path.text().into());
            words.extend(argv.into_iter().skip(1));
            argv = words;
            path = path.relative(script.interpreter);
        }
        Err(Errno::ELOOP)
    }

    /// Maps it into `space`.
    pub fn load(
        &self,
        space: &MemorySpace,
        envp: &[impl AsRef<[u8]>],
    ) -> Result<UserEntry, ExecError> {
        let arguments = Arguments {
            argv: &self.argv,
            envp,
            random: start::random_seed(),
        };
        exec::load(space, &self.file, arguments, |path| {
            Ok(fs::executable(&Path::absolute(path))?.1)
        })
    }
}

/// Ends all other threads and waits until they have gone.
fn end_other_threads(me: &Current) -> Result<(), Errno> {
    while me.process().thread_count() > 1 {
        // Again each time: one of them may have made another meanwhile.
        for thread in me.process().threads() {
            if thread.tid() != me.tid() {
                thread.add_work(work::EXIT);
                sched::unpark(&thread);
                sched::nudge(&thread);
            }
        }
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
    let pid = me.process().pid();
    closing
        .iter()
        .for_each(|file| record_locks::closed(file, pid));
    drop(closing);
    {
        let mut actions = me.process().actions.lock();
        *actions = actions.after_exec();
    }
    me.set_name(ThreadName::of_path(&path).as_bytes());
    me.process().set_exe(Arc::from(path));
    me.process().set_announced(true);
}

fn reset_thread(me: &Current, frame: &mut TrapFrame, entry: UserEntry) {
    me.clear_child_tid.store(0, Ordering::Relaxed);
    me.lose_home();
    me.signals.lock().alt_stack = AltStack::DISABLED;
    me.set_fs_base(0);
    fpu::restore(&FpuState::initial());
    *frame = TrapFrame::user(entry.rip, entry.rsp);
}
