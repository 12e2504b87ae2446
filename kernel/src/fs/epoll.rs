//! Sets of files that are waited for together: `epoll`.
//!
//! There are no queues behind files: whoever waits looks, as in `poll`. So an edge cannot be seen if what was ready is used up and ready anew
//! between two looks; where edges are asked for, what stays ready is told again after a while, which such programs can bear.

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use linux_raw_sys::general as linux;

use super::file::OpenFile;
use super::node::Node;
use crate::budget::{Budget, Share};
use crate::errno::Errno;
use crate::sync::Mutex;
use crate::time;

/// Most files of one set, so many descriptors may a process have.
const MOST: usize = super::MAX_FILES;

/// Most members of all sets together: one outlives its file until the set is changed.
const MOST_IN_ALL: usize = 4096;

static MEMBERS: Budget<MOST_IN_ALL> = Budget::full();

/// How long until what is ready is told again of which edges are asked.
const EDGE_NS: u64 = 1_000_000;

/// Told unasked.
const ALWAYS: u32 = linux::POLLERR | linux::POLLHUP;

/// What a member asks for beside events.
const OPTIONS: u32 =
    linux::EPOLLET | linux::EPOLLONESHOT | linux::EPOLLWAKEUP | linux::EPOLLEXCLUSIVE;

/// What is asked of a file, or told of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EpollEvent {
    /// Bits.
    pub events: u32,
    /// The program's own.
    pub data: u64,
}

#[derive(Debug)]
struct Member {
    _share: Share<MOST_IN_ALL>,
    file: Weak<OpenFile>,
    asked: EpollEvent,
    /// What was told last, and when, where edges are asked for.
    told: (u32, u64),
    /// Told once, and not to be told again until it is asked anew.
    is_spent: bool,
}

impl Member {
    fn new(file: &Arc<OpenFile>, asked: EpollEvent) -> Result<Self, Errno> {
        Ok(Self {
            _share: MEMBERS.take(1).ok_or(Errno::ENOSPC)?,
            file: Arc::downgrade(file),
            asked,
            told: (0, 0),
            is_spent: false,
        })
    }

    /// It is asked this from now on.
    fn ask(&mut self, asked: EpollEvent) {
        self.asked = asked;
        self.told = (0, 0);
        self.is_spent = false;
    }

    /// What is to be told of a file that is ready for that.
    fn news(&mut self, ready: u32) -> Option<EpollEvent> {
        let EpollEvent { events, data } = self.asked;
        let found = ready & (events & !OPTIONS | ALWAYS);
        let (before, at_ns) = self.told;
        if events & linux::EPOLLET != 0 {
            let is_new = found & !before != 0 || time::now_ns() >= at_ns + EDGE_NS;
            if found == 0 || !is_new {
                self.told.0 = before & found;
                return None;
            }
            self.told = (found, time::now_ns());
        }
        if found == 0 || self.is_spent {
            return None;
        }
        self.is_spent = events & linux::EPOLLONESHOT != 0;
        Some(EpollEvent {
            events: found,
            data,
        })
    }
}

/// A set, by descriptor and file: a number may come to mean another file.
#[derive(Default, Debug)]
pub(super) struct Epoll {
    members: Mutex<BTreeMap<(i32, usize), Member>>,
}

/// A new, empty set.
///
/// # Errors
/// ENFILE when there are too many open files.
pub fn new_epoll() -> Result<Arc<OpenFile>, Errno> {
    OpenFile::new(Node::Epoll(Epoll::default()), linux::O_RDWR)
}

impl OpenFile {
    fn epoll(&self) -> Result<&Epoll, Errno> {
        match &self.node {
            Node::Epoll(epoll) => Ok(epoll),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Adds a file to the set that this is, changes what is asked of it, or takes it out (`EPOLL_CTL_*`).
    ///
    /// # Errors
    /// EINVAL for what is no set, and for a set in a set; EPERM for a file that is always ready; EEXIST, ENOENT; ENOSPC when there are too many.
    pub fn control(
        &self,
        how: u32,
        fd: i32,
        file: &Arc<Self>,
        asked: EpollEvent,
    ) -> Result<(), Errno> {
        let epoll = self.epoll()?;
        match &file.node {
            // No circles: sets are not looked through from within a set.
            Node::Epoll(_) => return Err(Errno::EINVAL),
            Node::Memory(_) | Node::Stored(_) | Node::Directory => {
                return Err(Errno::EPERM);
            }
            _ => {}
        }
        let key = (fd, Arc::as_ptr(file).addr());
        let mut members = epoll.members.lock();
        members.retain(|_, member| member.file.strong_count() > 0);
        let is_there = members.contains_key(&key);
        match (how, is_there) {
            (linux::EPOLL_CTL_ADD, true) => Err(Errno::EEXIST),
            (linux::EPOLL_CTL_ADD, false) if members.len() >= MOST => Err(Errno::ENOSPC),
            (linux::EPOLL_CTL_ADD, false) => {
                members.insert(key, Member::new(file, asked)?);
                Ok(())
            }
            (linux::EPOLL_CTL_MOD, true) => {
                if let Some(member) = members.get_mut(&key) {
                    member.ask(asked);
                }
                Ok(())
            }
            (linux::EPOLL_CTL_DEL, true) => {
                members.remove(&key);
                Ok(())
            }
            (linux::EPOLL_CTL_MOD | linux::EPOLL_CTL_DEL, false) => Err(Errno::ENOENT),
            _ => Err(Errno::EINVAL),
        }
    }

    /// What is to be told of the members of the set now, as much as there is room for.
    ///
    /// # Errors
    /// EINVAL for what is no set.
    pub fn take_events(&self, found: &mut Vec<EpollEvent>, most: usize) -> Result<(), Errno> {
        let epoll = self.epoll()?;
        // Let go of without the lock: the last reference to a file may wake others.
        let mut files = Vec::new();
        let mut members = epoll.members.lock();
        for member in members.values_mut() {
            if found.len() >= most {
                break;
            }
            let Some(file) = member.file.upgrade() else {
                continue;
            };
            let news = member.news(u32::from(file.ready()));
            found.extend(news);
            files.push(file);
        }
        drop(members);
        Ok(())
    }

    /// Whether a member of the set is ready; nothing is taken.
    pub(super) fn has_events(&self) -> bool {
        let Ok(epoll) = self.epoll() else {
            return false;
        };
        let mut files = Vec::new();
        let members = epoll.members.lock();
        let is_ready = members.values().any(|member| {
            let Some(file) = member.file.upgrade() else {
                return false;
            };
            let ready = u32::from(file.ready());
            files.push(file);
            !member.is_spent && ready & (member.asked.events | ALWAYS) != 0
        });
        drop(members);
        is_ready
    }
}
