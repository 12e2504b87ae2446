//! Pipes.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use linux_raw_sys::general as linux;

use super::file::OpenFile;
use super::node::Node;
use super::transfer::copy_in_with;
use crate::budget::{Budget, Share};
use crate::errno::Errno;
use crate::sync::{Mutex, SleepMutex};
use crate::task::signal::{self, SigInfo, Signal};
use crate::task::{self, WaitQueue};
use crate::user_memory::UserBytes;

/// Bytes that a pipe holds, as on Linux.
const CAPACITY_BYTES: usize = 64 << 10;

/// So many, or less, are moved by way of the stack: the heap has one lock for all CPUs.
const SHORT_BYTES: usize = 64;

/// Bytes moved at a time. So many are written whole.
const PIECE_BYTES: usize = linux::PIPE_BUF as usize;

#[derive(Debug)]
struct State {
    bytes: VecDeque<u8>,
    reader_open: bool,
    writer_open: bool,
}

/// Most pipes at one time: they hold a quarter of the kernel heap at most.
static BUDGET: Budget<MOST_PIPES> = Budget::full();
const MOST_PIPES: usize = 96;

/// What both ends share.
#[derive(Debug)]
struct Pipe {
    _share: Share<MOST_PIPES>,
    /// Held by who reads.
    reading: SleepMutex<()>,
    state: Mutex<State>,
    changed: WaitQueue,
}

/// The end to read from. Dropping it closes it.
pub(super) struct PipeReader(Arc<Pipe>);

/// The end to write to. Dropping it closes it.
pub(super) struct PipeWriter(Arc<Pipe>);

/// A new pipe: its reading and its writing end.
///
/// # Errors
/// ENFILE when there are too many pipes or open files, ENOMEM when the kernel heap is too full.
pub fn new_pipe(nonblocking: bool) -> Result<(Arc<OpenFile>, Arc<OpenFile>), Errno> {
    let share = BUDGET.take(1).ok_or(Errno::ENFILE)?;
    let mut bytes = VecDeque::new();
    // All of it now: a full heap is refused here, and never found out while writing.
    bytes
        .try_reserve_exact(CAPACITY_BYTES)
        .map_err(|_| Errno::ENOMEM)?;
    let state = State {
        bytes,
        reader_open: true,
        writer_open: true,
    };
    let pipe = Arc::new(Pipe {
        _share: share,
        reading: SleepMutex::new(()),
        state: Mutex::new(state),
        changed: WaitQueue::new(),
    });
    let reader = OpenFile::new(Node::PipeReader(PipeReader(pipe.clone())), linux::O_RDONLY)?;
    let writer = OpenFile::new(Node::PipeWriter(PipeWriter(pipe)), linux::O_WRONLY)?;
    reader.set_nonblocking(nonblocking);
    writer.set_nonblocking(nonblocking);
    Ok((reader, writer))
}

impl PipeReader {
    /// Reads what is there; waits for the first byte unless `nonblocking`. 0 at the end.
    pub fn read(&self, to: UserBytes, nonblocking: bool) -> Result<usize, Errno> {
        if to.len == 0 {
            return Ok(0);
        }
        // Preemption is off under the lock: no allocation there.
        with_piece(to.len, |piece| {
            loop {
                match (self.read_now(to, piece)?, nonblocking) {
                    (Some(count), _) => return Ok(count),
                    (None, true) => return Err(Errno::EAGAIN),
                    // Another reader may be quicker.
                    (None, false) => {
                        let has_changed = || self.look(&mut []);
                        self.0.changed.wait_until(None, has_changed)?;
                    }
                }
            }
        })
    }

    /// Reads what is there, without another reader in between; `None` when there is nothing yet. What cannot be copied stays
    /// in the pipe.
    fn read_now(&self, to: UserBytes, piece: &mut [u8]) -> Result<Option<usize>, Errno> {
        let _turn = self.0.reading.lock();
        let mut done = 0;
        while done < to.len {
            let rest = to.skip(done);
            let count = match (self.look(piece), done) {
                (None, 0) => return Ok(None),
                (None | Some(0), _) => break,
                (Some(count), _) => count.min(rest.len),
            };
            match rest.copy_from(&piece[..count]) {
                Ok(()) => self.take(count),
                Err(errno) if done == 0 => return Err(errno),
                Err(_) => break,
            }
            done += count;
        }
        Ok(Some(done))
    }

    /// Copies the first bytes, as many as `piece` has room for; how many. `None` when there are none yet.
    fn look(&self, piece: &mut [u8]) -> Option<usize> {
        let state = self.0.state.lock();
        let count = state.bytes.len().min(piece.len());
        // No loop over bytes.
        let (front, back) = state.bytes.as_slices();
        let (front, back) = match front.get(..count) {
            Some(front) => (front, &back[..0]),
            None => (front, &back[..count - front.len()]),
        };
        piece[..front.len()].copy_from_slice(front);
        piece[front.len()..count].copy_from_slice(back);
        (!state.bytes.is_empty() || !state.writer_open).then_some(count)
    }

    /// Takes away what [`look`](Self::look) has found.
    fn take(&self, count: usize) {
        self.0.state.lock().bytes.drain(..count);
        self.0.changed.wake_all();
    }

    /// As `poll` tells it.
    pub fn ready(&self) -> u32 {
        let state = self.0.state.lock();
        let readable = if state.bytes.is_empty() {
            0
        } else {
            linux::POLLIN
        };
        readable | if state.writer_open { 0 } else { linux::POLLHUP }
    }
}

impl PipeWriter {
    /// Writes everything, waiting for room, or what fits when `nonblocking`. At most `PIPE_BUF` bytes are written whole:
    /// no other's come in between, and when there is no room for all of them there is none.
    ///
    /// # Errors
    /// EPIPE, and SIGPIPE, when nobody can read it any more; EAGAIN, EFAULT, ENOMEM.
    pub fn write(&self, from: UserBytes, nonblocking: bool) -> Result<usize, Errno> {
        let least = match from.len {
            ..=PIECE_BYTES => from.len,
            _ => 1,
        };
        with_piece(from.len, |buffer| {
            copy_in_with(buffer, from, |piece| self.put(piece, least, nonblocking))
        })
    }

    /// The same from several places, which have `PIPE_BUF` bytes at most together.
    pub fn write_together(&self, from: &[UserBytes], nonblocking: bool) -> Result<usize, Errno> {
        let len = from.iter().map(|part| part.len).sum();
        with_piece(len, |bytes| {
            let mut rest = &mut *bytes;
            for part in from {
                let (there, behind) = rest.split_at_mut(part.len);
                part.copy_to(there)?;
                rest = behind;
            }
            match len {
                0 => Ok(0),
                _ => self.put(bytes, len, nonblocking),
            }
        })
    }

    /// Writes a part of the piece, and not less than `least` bytes.
    fn put(&self, piece: &[u8], least: usize, nonblocking: bool) -> Result<usize, Errno> {
        let put = || {
            let mut state = self.0.state.lock();
            if !state.reader_open {
                return Some(Err(Errno::EPIPE));
            }
            let room = CAPACITY_BYTES - state.bytes.len();
            if room < least {
                return None;
            }
            let part = &piece[..piece.len().min(room)];
            state.bytes.extend(part);
            Some(Ok(part.len()))
        };
        let outcome = match (put(), nonblocking) {
            (Some(outcome), _) => outcome,
            (None, true) => return Err(Errno::EAGAIN),
            (None, false) => self.0.changed.wait_until(None, put)?,
        };
        if outcome == Err(Errno::EPIPE) {
            let me = task::current();
            let pid = me.process().pid().as_u32();
            signal::post_to_thread(&me.to_arc(), SigInfo::from_kill(Signal::PIPE, pid));
        }
        self.0.changed.wake_all();
        outcome
    }

    /// As `poll` tells it.
    pub fn ready(&self) -> u32 {
        let state = self.0.state.lock();
        // As on Linux: room for what is written whole.
        let has_room = CAPACITY_BYTES - state.bytes.len() >= PIECE_BYTES;
        match (state.reader_open, has_room) {
            (false, _) => linux::POLLERR,
            (true, true) => linux::POLLOUT,
            (true, false) => 0,
        }
    }
}

/// Calls `work` with room for so many bytes, or for as many as are moved at a time.
fn with_piece<T>(
    bytes: usize,
    work: impl FnOnce(&mut [u8]) -> Result<T, Errno>,
) -> Result<T, Errno> {
    if bytes <= SHORT_BYTES {
        return work(&mut [0; SHORT_BYTES][..bytes]);
    }
    let bytes = bytes.min(PIECE_BYTES);
    let mut piece = Vec::new();
    piece.try_reserve_exact(bytes).map_err(|_| Errno::ENOMEM)?;
    piece.resize(bytes, 0);
    work(&mut piece)
}

impl Drop for PipeReader {
    fn drop(&mut self) {
        self.0.state.lock().reader_open = false;
        self.0.changed.wake_all();
    }
}

impl Drop for PipeWriter {
    fn drop(&mut self) {
        self.0.state.lock().writer_open = false;
        self.0.changed.wake_all();
    }
}

impl fmt::Debug for PipeReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PipeReader")
    }
}

impl fmt::Debug for PipeWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PipeWriter")
    }
}
