//! Timers that are read: `timerfd`.

use alloc::sync::Arc;

use linux_raw_sys::general as linux;

use super::file::OpenFile;
use super::node::Node;
use crate::errno::Errno;
use crate::sync::Mutex;
use crate::task::{Deadline, WaitQueue};
use crate::time;
use crate::user_memory::UserBytes;

/// Bytes of a read.
const VALUE_BYTES: usize = size_of::<u64>();

/// What it is set to.
#[derive(Clone, Copy, Default, Debug)]
struct State {
    /// When it is due next, on the monotonic clock; `None` when it is not set, or was due once.
    due_ns: Option<u64>,
    period_ns: u64,
}

impl State {
    /// How often it was due, which is taken from it.
    fn take(&mut self) -> Option<u64> {
        let now_ns = time::now_ns();
        let due_ns = self.due_ns.filter(|due_ns| *due_ns <= now_ns)?;
        let more = (now_ns - due_ns).checked_div(self.period_ns).unwrap_or(0);
        let next_ns = due_ns.saturating_add((more + 1).saturating_mul(self.period_ns));
        self.due_ns = (self.period_ns > 0).then_some(next_ns);
        Some(more + 1)
    }

    /// How long until it is due, 0 for never, and its period.
    fn setting(&self) -> (u64, u64) {
        let mut now = *self;
        now.take();
        let left = |due_ns: u64| due_ns.saturating_sub(time::now_ns()).max(1);
        (now.due_ns.map_or(0, left), self.period_ns)
    }
}

/// A timer that can be read when it was due.
#[derive(Debug)]
pub(super) struct TimerFile {
    /// Its absolute times are of the real-time clock.
    is_real: bool,
    state: Mutex<State>,
    changed: WaitQueue,
}

/// A new timer, which is not set.
///
/// # Errors
/// ENFILE when there are too many open files.
pub fn new_timer(is_real: bool, nonblocking: bool) -> Result<Arc<OpenFile>, Errno> {
    let timer = TimerFile {
        is_real,
        state: Mutex::new(State::default()),
        changed: WaitQueue::new(),
    };
    let file = OpenFile::new(Node::Timer(timer), linux::O_RDONLY)?;
    file.set_nonblocking(nonblocking);
    Ok(file)
}

impl TimerFile {
    pub fn read(&self, to: UserBytes, nonblocking: bool) -> Result<usize, Errno> {
        if to.len < VALUE_BYTES {
            return Err(Errno::EINVAL);
        }
        let count = loop {
            let (count, due_ns) = {
                let mut state = self.state.lock();
                (state.take(), state.due_ns)
            };
            match count {
                Some(count) => break count,
                None if nonblocking => return Err(Errno::EAGAIN),
                None => {}
            }
            // Until it is due, or set anew.
            let is_other = || (self.state.lock().due_ns != due_ns).then_some(());
            let waited = self
                .changed
                .wait_until(due_ns.map(Deadline::at_ns), is_other);
            match waited {
                Ok(()) | Err(Errno::ETIMEDOUT) => {}
                Err(errno) => return Err(errno),
            }
        };
        to.copy_from(&count.to_ne_bytes())?;
        Ok(VALUE_BYTES)
    }

    /// As `poll` tells it.
    pub fn ready(&self) -> u32 {
        let is_due = self.state.lock().due_ns;
        match is_due.is_some_and(|due_ns| due_ns <= time::now_ns()) {
            true => linux::POLLIN,
            false => 0,
        }
    }
}

impl OpenFile {
    fn timer(&self) -> Result<&TimerFile, Errno> {
        match &self.node {
            Node::Timer(timer) => Ok(timer),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Whether absolute times of the timer that it is are of the real-time clock.
    ///
    /// # Errors
    /// EINVAL for what is no timer.
    pub fn is_real_timer(&self) -> Result<bool, Errno> {
        Ok(self.timer()?.is_real)
    }

    /// Sets the timer that it is; what it was set to: how long until it is due, and its period.
    ///
    /// # Errors
    /// EINVAL for what is no timer.
    pub fn set_timer(&self, due: Option<Deadline>, period_ns: u64) -> Result<(u64, u64), Errno> {
        let timer = self.timer()?;
        let new = State {
            due_ns: due.map(Deadline::as_ns),
            period_ns,
        };
        let old = core::mem::replace(&mut *timer.state.lock(), new);
        timer.changed.wake_all();
        Ok(old.setting())
    }

    /// What it is set to.
    ///
    /// # Errors
    /// EINVAL for what is no timer.
    pub fn timer_setting(&self) -> Result<(u64, u64), Errno> {
        Ok(self.timer()?.state.lock().setting())
    }
}
