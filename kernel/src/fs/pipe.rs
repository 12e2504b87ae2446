//! Pipes.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use linux_raw_sys::general as linux;

use super::file::OpenFile;
use super::node::Node;
use super::transfer::copy_in;
use crate::budget::{Budget, Share};
use crate::errno::Errno;
use crate::sync::Mutex;
use crate::task::signal::{self, SigInfo, Signal};
use crate::task::{self, WaitQueue};
use crate::user_memory::UserBytes;

/// Bytes that a pipe holds, as on Linux.
const CAPACITY_BYTES: usize = 64 << 10;

/// Bytes moved at a time.
const PIECE_BYTES: usize = 512;

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
        let piece = self.wait_for_bytes(nonblocking)?;
        let mut piece = piece(to.len);
        let mut done = 0;
        while !piece.is_empty() {
            // A fault loses this piece, as the bytes have left the pipe.
            to.skip(done).copy_from(&piece)?;
            done += piece.len();
            piece = self.take(to.len - done);
        }
        Ok(done)
    }

    /// Waits, and gives back a way to take the first piece.
    fn wait_for_bytes(
        &self,
        nonblocking: bool,
    ) -> Result<impl FnOnce(usize) -> Vec<u8> + '_, Errno> {
        let look = || {
            let state = self.0.state.lock();
            (!state.bytes.is_empty() || !state.writer_open).then_some(())
        };
        match (look(), nonblocking) {
            (Some(()), _) => {}
            (None, true) => return Err(Errno::EAGAIN),
            (None, false) => self.0.changed.wait_until(None, look)?,
        }
        Ok(|most| self.take(most))
    }

    fn take(&self, most: usize) -> Vec<u8> {
        // Preemption is off under the lock: no allocation, and no loop over bytes.
        let most = most.min(PIECE_BYTES);
        let mut piece = Vec::with_capacity(most);
        {
            let mut state = self.0.state.lock();
            let count = state.bytes.len().min(most);
            let (front, back) = state.bytes.as_slices();
            let (front, back) = match front.get(..count) {
                Some(front) => (front, &back[..0]),
                None => (front, &back[..count - front.len()]),
            };
            piece.extend_from_slice(front);
            piece.extend_from_slice(back);
            state.bytes.drain(..count);
        }
        if !piece.is_empty() {
            self.0.changed.wake_all();
        }
        piece
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
    /// Writes everything, waiting for room, or what fits when `nonblocking`.
    ///
    /// # Errors
    /// EPIPE, and SIGPIPE, when nobody can read it any more.
    pub fn write(&self, from: UserBytes, nonblocking: bool) -> Result<usize, Errno> {
        copy_in::<PIECE_BYTES>(from, |piece| self.put(piece, nonblocking))
    }

    fn put(&self, piece: &[u8], nonblocking: bool) -> Result<usize, Errno> {
        let put = || {
            let mut state = self.0.state.lock();
            if !state.reader_open {
                return Some(Err(Errno::EPIPE));
            }
            let room = CAPACITY_BYTES - state.bytes.len();
            if room == 0 {
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
        match (state.reader_open, state.bytes.len() < CAPACITY_BYTES) {
            (false, _) => linux::POLLERR,
            (true, true) => linux::POLLOUT,
            (true, false) => 0,
        }
    }
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
