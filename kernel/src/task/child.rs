//! Waiting for children.

use super::job::JobNews;
use super::process::{ExitStatus, NoSuchChild};
use super::usage::Usage;
use super::{Current, Pid, Process};
use crate::errno::Errno;

/// Which child.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitFor {
    /// Whichever is first.
    AnyChild,
    /// This one.
    Child(Pid),
    /// Whichever is first of this group.
    Group(Pid),
}

/// What a parent wants to hear.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WaitOptions {
    /// That a child has ended.
    pub ended: bool,
    /// That one has stopped.
    pub stopped: bool,
    /// That one goes on.
    pub continued: bool,
    /// Does not wait.
    pub only_look: bool,
    /// It may be told again.
    pub keeps: bool,
    /// Of children whose end is announced by a signal.
    pub of_announced: bool,
    /// Of the others.
    pub of_unannounced: bool,
}

/// What became of a child.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChildNews {
    /// It has ended.
    Ended(ExitStatus),
    /// It has stopped, or goes on.
    Job(JobNews),
}

impl ChildNews {
    /// As `wait4` reports it.
    pub fn as_wait_status(self) -> u32 {
        match self {
            Self::Ended(how) => how.as_wait_status(),
            Self::Job(news) => news.as_wait_status(),
        }
    }

    /// As a `siginfo_t` reports it.
    pub fn as_code_and_status(self) -> (u32, u32) {
        match self {
            Self::Ended(how) => how.as_code_and_status(),
            Self::Job(news) => news.as_code_and_status(),
        }
    }

    fn of(child: &Process, options: &WaitOptions) -> Option<Self> {
        if let Some(how) = child.exit_status() {
            return options.ended.then_some(Self::Ended(how));
        }
        let news = child.job_news().filter(|news| match news {
            JobNews::Stopped(_) => options.stopped,
            JobNews::Continued => options.continued,
        });
        news.map(Self::Job)
    }
}

impl From<NoSuchChild> for Errno {
    fn from(_: NoSuchChild) -> Self {
        Self::ECHILD
    }
}

/// Waits for news of a child, and tells whose, what, and what it has used. An ended child is forgotten then. `None` when there is none yet and
/// the caller does not wait.
pub fn wait_child(
    me: &Current,
    wanted: WaitFor,
    options: WaitOptions,
) -> Result<Option<(Pid, ChildNews, Usage)>, Errno> {
    let process = me.process();
    let is_wanted = |child: &Process| {
        // Who has ended can neither stop nor go on.
        let may_come = options.ended || child.exit_status().is_none();
        let is_of_kind = match child.is_announced() {
            true => options.of_announced,
            false => options.of_unannounced,
        };
        may_come
            && is_of_kind
            && match wanted {
                WaitFor::AnyChild => true,
                WaitFor::Child(pid) => child.pid() == pid,
                WaitFor::Group(group) => child.belonging().group == group,
            }
    };
    let look = || process.look_at_children(is_wanted, |child| ChildNews::of(child, &options));
    loop {
        let (child, news) = match look()? {
            None if options.only_look => return Ok(None),
            Some(found) => found,
            // Another thread may take the last child away while this one waits.
            None => process
                .child_events()
                .wait_until(None, || look().transpose())??,
        };
        if let ChildNews::Job(JobNews::Stopped(_)) = news {
            child.settle();
        }
        let is_told = options.keeps
            || match news {
                ChildNews::Ended(_) => process.reap(&child),
                ChildNews::Job(news) => child.take_job_news(news),
            };
        if is_told {
            return Ok(Some((child.pid(), news, child.usage_of_family())));
        }
        // Another thread was told of this one.
    }
}
