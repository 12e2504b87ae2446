//! Processes that stop and go on: SIGSTOP and its like, and SIGCONT.
//!
//! A process stops as the signal is posted, unless its threads block it: those that run leave user mode at once, those that sleep in
//! a system call go on sleeping, and stop as they come out. So nothing is interrupted that would have to be made again.

use alloc::sync::Arc;

use linux_raw_sys::general as linux;

use super::current::Current;
use super::queue::Ready;
use super::signal::{self, SigInfo, Signal};
use super::thread::work;
use super::timer::Deadline;
use super::{Pid, Process, members, sched};

/// What became of a process that has not ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JobNews {
    /// It has stopped.
    Stopped(Signal),
    /// It goes on.
    Continued,
}

impl JobNews {
    /// As `wait4` reports it.
    pub fn as_wait_status(self) -> u32 {
        match self {
            Self::Stopped(signal) => signal.number() << 8 | 0x7f,
            Self::Continued => 0xffff,
        }
    }

    /// As a `siginfo_t` reports it.
    pub fn as_code_and_status(self) -> (u32, u32) {
        match self {
            Self::Stopped(signal) => (linux::CLD_STOPPED, signal.number()),
            Self::Continued => (linux::CLD_CONTINUED, Signal::CONT.number()),
        }
    }
}

/// Whether a process is stopped, and what its parent has not been told yet.
#[derive(Default, Debug)]
pub(super) struct Job {
    is_stopped: bool,
    news: Option<JobNews>,
}

/// How long its parent waits for threads of a stopped process to leave their CPUs.
const LOOKS: usize = 200;
const LOOK_NS: u64 = 100_000;

impl Process {
    /// Is it to stop, or has it?
    pub(super) fn is_stopped(&self) -> bool {
        self.job.lock().is_stopped
    }

    /// Stops it. Not the first process, and by SIGSTOP alone where nobody could have it go on.
    pub(super) fn stop(self: &Arc<Self>, signal: Signal) {
        if self.pid() == Pid::INIT || (signal != Signal::STOP && self.is_orphaned()) {
            return;
        }
        if !self.change_job(true, JobNews::Stopped(signal)) {
            return;
        }
        for thread in self.threads() {
            thread.add_work(work::SIGNAL);
            sched::nudge(&thread);
        }
        self.tell_parent(JobNews::Stopped(signal));
    }

    /// Has it go on.
    pub(super) fn resume(self: &Arc<Self>) {
        if self.change_job(false, JobNews::Continued) {
            self.threads().iter().for_each(sched::unpark);
            self.tell_parent(JobNews::Continued);
        }
    }

    fn change_job(&self, is_stopped: bool, news: JobNews) -> bool {
        let mut job = self.job.lock();
        let is_change = job.is_stopped != is_stopped;
        if is_change {
            *job = Job {
                is_stopped,
                news: Some(news),
            };
        }
        is_change
    }

    fn tell_parent(&self, news: JobNews) {
        let Some(parent) = self.parent() else {
            return;
        };
        let action = parent.actions.lock().get(Signal::CHLD);
        if !action.wants_ends_only() {
            let info = SigInfo::from_job(self.pid().as_u32(), news);
            signal::post_to_process(&parent, info);
        }
        parent.child_events().wake_all();
    }

    /// No member of its group has a parent in another group of the session, which could look after it.
    fn is_orphaned(&self) -> bool {
        let own = self.belonging();
        let looked_after = |member: &Arc<Process>| {
            member.parent().is_some_and(|parent| {
                let there = parent.belonging();
                parent.pid() != Pid::INIT
                    && there.session == own.session
                    && there.group != own.group
            })
        };
        !members(own.group).iter().any(looked_after)
    }

    /// What the parent has not been told yet.
    pub(super) fn job_news(&self) -> Option<JobNews> {
        self.job.lock().news
    }

    /// It has been told now. False when it had been.
    pub(super) fn take_job_news(&self, news: JobNews) -> bool {
        self.job.lock().news.take_if(|it| *it == news).is_some()
    }

    /// Waits until no thread of it, which is stopped, runs in user mode any more. Bounded.
    pub(super) fn settle(&self) {
        let runs = || self.threads().iter().any(|thread| thread.is_on_cpu());
        for _ in 0..LOOKS {
            if !self.is_stopped() || !runs() {
                return;
            }
            sched::doze(Deadline::after_ns(LOOK_NS));
        }
    }
}

/// Sleeps while the process is stopped. Its end ends that, too.
pub(super) fn rest_while_stopped(me: &Current) {
    while me.process().is_stopped() && !me.is_ending() {
        sched::park_uninterrupted();
    }
}
