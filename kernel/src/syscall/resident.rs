//! Memory that is to be there, and memory of other processes.

use alloc::vec::Vec;

use linux_raw_sys::general as linux;
use linux_raw_sys::general::iovec;

use super::args::Args;
use super::outcome::{Outcome, all_known, done};
use crate::addr::PAGE_BYTES;
use crate::arch::uaccess;
use crate::errno::Errno;
use crate::mm::{FaultAccess, FaultError, MapError, MemorySpace, UserRange};
use crate::task::{self, Current, Pid};
use crate::user_memory::{UserBytes, UserPtr};
use alloc::sync::Arc;

fn space() -> Result<Arc<MemorySpace>, Errno> {
    task::current_space().ok_or(Errno::ENOMEM)
}

/// Has the pages there, one after the other. The end of the process ends that.
pub(super) fn bring_in(
    me: &Current,
    space: &MemorySpace,
    range: UserRange,
    write: bool,
) -> Result<(), FaultError> {
    let access = FaultAccess {
        write,
        exec: false,
        user: true,
        present: false,
    };
    for page in range.pages() {
        if me.is_ending() {
            break;
        }
        if !space.is_granted(page, access) {
            space.fault(page, access)?;
        }
    }
    Ok(())
}

pub(super) fn mlock(me: &Current, a: &Args, flags: u32) -> Outcome {
    all_known(flags, linux::MLOCK_ONFAULT)?;
    let space = space()?;
    if a.usize(1) == 0 {
        return Ok(0);
    }
    let range = space.mapped(a.usize(0), a.usize(1))?;
    if flags & linux::MLOCK_ONFAULT != 0 {
        return Ok(0);
    }
    match bring_in(me, &space, range, false) {
        Err(FaultError::OutOfMemory) => Err(Errno::EAGAIN),
        Err(_) => Err(Errno::ENOMEM),
        Ok(()) => Ok(0),
    }
}

pub(super) fn munlock(a: &Args) -> Outcome {
    match a.usize(1) {
        0 => Ok(0),
        len => done(space()?.mapped(a.usize(0), len)),
    }
}

/// Pages stay once they are there; those that are not come at the first access.
pub(super) fn mlockall(a: &Args) -> Outcome {
    let flags = a.u32(0);
    all_known(
        flags,
        linux::MCL_CURRENT | linux::MCL_FUTURE | linux::MCL_ONFAULT,
    )?;
    match flags {
        0 | linux::MCL_ONFAULT => Err(Errno::EINVAL),
        _ => Ok(0),
    }
}

pub(super) fn mincore(a: &Args) -> Outcome {
    const CHUNK_PAGES: usize = 512;
    let (mut at, len) = (a.usize(0), a.usize(1));
    if !at.is_multiple_of(PAGE_BYTES) {
        return Err(Errno::EINVAL);
    }
    let mut left = len.div_ceil(PAGE_BYTES);
    let mut out = a.usize(2);
    let (space, mut pages) = (space()?, [0; CHUNK_PAGES]);
    while left > 0 {
        let chunk = left.min(CHUNK_PAGES);
        let known = space.resident(at, &mut pages[..chunk]);
        known.map_err(|error| match error {
            MapError::Invalid => Errno::EINVAL,
            _ => Errno::ENOMEM,
        })?;
        UserBytes::new(out, chunk)?.copy_from(&pages[..chunk])?;
        at += chunk * PAGE_BYTES;
        out += chunk;
        left -= chunk;
    }
    Ok(0)
}

/// Most pieces on either side.
const MOST_PIECES: usize = 1024;

/// Most bytes that go through the kernel in one piece.
const CHUNK_BYTES: usize = 8 << 10;

/// Bytes here and there, in the order of two lists of pieces.
struct Pieces {
    list: UserPtr<iovec>,
    count: usize,
    next: usize,
    left: UserBytes,
}

impl Pieces {
    fn new(list: UserPtr<iovec>, count: usize) -> Result<Self, Errno> {
        if count > MOST_PIECES {
            return Err(Errno::EINVAL);
        }
        let left = UserBytes::new(0, 0)?;
        Ok(Self {
            list,
            count,
            next: 0,
            left,
        })
    }

    /// What comes next; nothing at the end.
    fn look(&mut self) -> Result<UserBytes, Errno> {
        while self.left.len == 0 && self.next < self.count {
            let piece = self.list.element(self.next).read()?;
            self.left = UserBytes::new(piece.iov_base as usize, piece.iov_len as usize)?;
            self.next += 1;
        }
        Ok(self.left)
    }
}

/// `process_vm_readv`, or `process_vm_writev` if it `writes`.
pub(super) fn process_vm(me: &Current, a: &Args, writes: bool) -> Outcome {
    if a.u64(5) != 0 {
        return Err(Errno::EINVAL);
    }
    let mut own = Pieces::new(a.ptr(1), a.usize(2))?;
    let mut theirs = Pieces::new(a.ptr(3), a.usize(4))?;
    let process = task::find_process(Pid::new(a.u32(0))).ok_or(Errno::ESRCH)?;
    let mut buffer = Vec::new();
    let reserved = buffer.try_reserve_exact(CHUNK_BYTES);
    reserved.map_err(|_| Errno::ENOMEM)?;
    buffer.resize(CHUNK_BYTES, 0);
    let mut moved = 0;
    let result = loop {
        let (here, there) = match (own.look(), theirs.look()) {
            (Ok(here), Ok(there)) => (here, there),
            (Err(errno), _) | (_, Err(errno)) => break Err(errno),
        };
        // No further than the page: what is there is moved.
        let rest_of_page = PAGE_BYTES - there.address % PAGE_BYTES;
        let len = here.len.min(there.len).min(CHUNK_BYTES).min(rest_of_page);
        if len == 0 || me.is_ending() {
            break Ok(());
        }
        let buffer = &mut buffer[..len];
        let copied = match writes {
            true => here.copy_to(buffer).and_then(|()| {
                task::in_space_of(me, &process, || {
                    uaccess::copy_to_user(there.address, buffer)
                })?
                .map_err(Errno::from)
            }),
            false => task::in_space_of(me, &process, || {
                uaccess::copy_from_user(buffer, there.address)
            })
            .and_then(|copied| copied.map_err(Errno::from))
            .and_then(|()| here.copy_from(buffer)),
        };
        if let Err(errno) = copied {
            break Err(errno);
        }
        own.left = here.skip(len);
        theirs.left = there.skip(len);
        moved += len;
    };
    match result {
        Err(errno) if moved == 0 => Err(errno),
        _ => Ok(moved),
    }
}
