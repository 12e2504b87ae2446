//! Event counters: `eventfd`.

use alloc::sync::Arc;

use linux_raw_sys::general as linux;

use super::file::OpenFile;
use super::node::Node;
use crate::errno::Errno;
use crate::sync::Mutex;
use crate::task::WaitQueue;
use crate::user_memory::UserBytes;

/// The largest value of a counter; one more would not fit.
const MOST: u64 = u64::MAX - 1;

/// Bytes of every read and write.
const VALUE_BYTES: usize = size_of::<u64>();

/// What a read takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reading {
    /// The whole value.
    All,
    /// One (`EFD_SEMAPHORE`).
    One,
}

/// A counter that writers raise, and that readers wait for.
#[derive(Debug)]
pub(super) struct Event {
    value: Mutex<u64>,
    reading: Reading,
    changed: WaitQueue,
}

/// A new counter with that value.
///
/// # Errors
/// ENFILE when there are too many open files.
pub fn new_event(value: u32, reading: Reading, nonblocking: bool) -> Result<Arc<OpenFile>, Errno> {
    let event = Event {
        value: Mutex::new(u64::from(value)),
        reading,
        changed: WaitQueue::new(),
    };
    let file = OpenFile::new(Node::Event(event), linux::O_RDWR)?;
    file.set_nonblocking(nonblocking);
    Ok(file)
}

impl Event {
    /// Takes the value or a part of it; waits until there is something unless `nonblocking`.
    ///
    /// # Errors
    /// EINVAL for less room than a value needs, EAGAIN, EFAULT (the value is lost then, as on Linux).
    pub fn read(&self, to: UserBytes, nonblocking: bool) -> Result<usize, Errno> {
        if to.len < VALUE_BYTES {
            return Err(Errno::EINVAL);
        }
        let taken = self.attempt(nonblocking, |value| {
            let taken = match self.reading {
                Reading::All => *value,
                Reading::One => (*value).min(1),
            };
            *value -= taken;
            (taken > 0).then_some(taken)
        })?;
        to.copy_from(&taken.to_ne_bytes())?;
        Ok(VALUE_BYTES)
    }

    /// Adds to the value; waits until there is room unless `nonblocking`.
    ///
    /// # Errors
    /// EINVAL for less than a value or one that no counter can take, EAGAIN, EFAULT.
    pub fn write(&self, from: UserBytes, nonblocking: bool) -> Result<usize, Errno> {
        if from.len < VALUE_BYTES {
            return Err(Errno::EINVAL);
        }
        let mut bytes = [0; VALUE_BYTES];
        from.copy_to(&mut bytes)?;
        let added = u64::from_ne_bytes(bytes);
        if added > MOST {
            return Err(Errno::EINVAL);
        }
        self.attempt(nonblocking, |value| {
            let room = MOST - *value >= added;
            *value += if room { added } else { 0 };
            room.then_some(())
        })?;
        Ok(VALUE_BYTES)
    }

    /// As `poll` tells it.
    pub fn ready(&self) -> u32 {
        let value = *self.value.lock();
        let readable = if value > 0 { linux::POLLIN } else { 0 };
        readable | if value < MOST { linux::POLLOUT } else { 0 }
    }

    /// Works on the value until that succeeds, then wakes those who wait for a change.
    fn attempt<T>(
        &self,
        nonblocking: bool,
        mut work: impl FnMut(&mut u64) -> Option<T>,
    ) -> Result<T, Errno> {
        let mut work = || work(&mut self.value.lock());
        let done = match work() {
            Some(done) => done,
            None if nonblocking => return Err(Errno::EAGAIN),
            None => self.changed.wait_until(None, work)?,
        };
        self.changed.wake_all();
        Ok(done)
    }
}
