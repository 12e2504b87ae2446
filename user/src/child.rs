//! Forked children of the programs that test processes.

use std::io;

use crate::machine;

/// How a child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// With this exit status.
    Exited(i32),
    /// By this signal.
    Killed(i32),
}

/// A forked child that has not been waited for.
#[derive(Debug)]
#[must_use = "a child that nobody waits for stays a zombie"]
pub struct Child {
    pid: libc::pid_t,
}

impl Child {
    /// Forks a child that does `work` and ends with the status that it returns.
    ///
    /// In a process with several threads, `work` must do without locks and memory allocation: another thread may have
    /// been inside either at the fork.
    pub fn start(work: impl FnOnce() -> i32) -> io::Result<Self> {
        // SAFETY: the child does `work` only, which the caller has made fit for that.
        match unsafe { libc::fork() } {
            0 => end(work()),
            pid if pid > 0 => Ok(Self { pid }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The child's number.
    pub fn pid(&self) -> libc::pid_t {
        self.pid
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: i32) -> io::Result<()> {
        // SAFETY: the child has not been waited for, so the number is nobody else's.
        machine::done(unsafe { libc::kill(self.pid, signal) })
    }

    /// Ends it, if it has not ended yet.
    pub fn kill(self) -> io::Result<End> {
        self.signal(libc::SIGKILL)?;
        self.wait()
    }

    /// Waits for its end.
    pub fn wait(self) -> io::Result<End> {
        match wait_for(self.pid, 0)? {
            Some((_, end)) => Ok(end),
            None => Err(io::Error::other("wait4 waited for nothing")),
        }
    }
}

/// Waits for `pid`, or for any child if it is -1; `None` if `options` has `WNOHANG` and none has ended.
pub fn wait_for(pid: libc::pid_t, options: i32) -> io::Result<Option<(libc::pid_t, End)>> {
    let mut status = 0;
    loop {
        // SAFETY: `status` is an integer of our own.
        match unsafe { libc::waitpid(pid, &mut status, options) } {
            0 => return Ok(None),
            ended if ended > 0 => return Ok(Some((ended, decode(status)))),
            _ => {}
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Ends this process at once, without what a program does at its end: that is for the first process to do.
pub fn end(status: i32) -> ! {
    // SAFETY: ends the process; nothing of it is used afterwards.
    unsafe { libc::_exit(status) }
}

/// Sleeps until a signal ends this process.
pub fn sleep_for_ever() -> ! {
    loop {
        // SAFETY: sleeps until a signal.
        unsafe { libc::pause() };
    }
}

fn decode(status: i32) -> End {
    if libc::WIFSIGNALED(status) {
        End::Killed(libc::WTERMSIG(status))
    } else {
        End::Exited(libc::WEXITSTATUS(status))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_told_apart() {
        assert_eq!(Child::start(|| 7).unwrap().wait().unwrap(), End::Exited(7));
        let sleeper = Child::start(|| sleep_for_ever()).unwrap();
        assert!(sleeper.pid() > 0);
        assert_eq!(wait_for(sleeper.pid(), libc::WNOHANG).unwrap(), None);
        assert_eq!(sleeper.kill().unwrap(), End::Killed(libc::SIGKILL));
    }
}
