//! Waiting for files: `poll`, `select` and their like.

use alloc::vec::Vec;
use core::mem::offset_of;

use linux_raw_sys::general as linux;
use linux_raw_sys::general::{__kernel_timespec, pollfd, timeval};

use super::args::Args;
use super::clock::{self, from_ns, to_timeval};
use super::outcome::Outcome;
use super::{io, signals};
use crate::arch::uaccess;
use crate::errno::Errno;
use crate::fs::MAX_FILES;
use crate::task::signal::{self, SignalSet};
use crate::task::{self, Current, Deadline};
use crate::user_memory::{UserBytes, UserPtr};

/// How often a waiting call looks.
const INTERVAL_NS: u64 = 1_000_000;

/// Entries of `poll` that are read, looked at and answered at once, and kept on the stack if there are no more.
const ENTRIES_AT_ONCE: usize = 32;

/// Told unasked.
const ALWAYS: u16 = (linux::POLLHUP | linux::POLLERR) as u16;

/// A descriptor, and for what it is to be ready.
#[derive(Clone, Copy)]
struct Asked {
    fd: i32,
    events: u16,
    found: u16,
}

impl Asked {
    const NOTHING: Self = Self {
        fd: -1,
        events: 0,
        found: 0,
    };

    /// By an entry of `poll`'s array: a descriptor, what is asked for, room for what is told.
    fn of(&[a, b, c, d, e, f, ..]: &[u8; size_of::<pollfd>()]) -> Self {
        Self {
            fd: i32::from_ne_bytes([a, b, c, d]),
            events: u16::from_ne_bytes([e, f]) | ALWAYS,
            found: 0,
        }
    }
}

/// Looks at all; how many are ready. The table is locked for a few descriptors at a time, and their files are not counted.
fn look(me: &Current, asked: &mut [Asked]) -> usize {
    let table = &me.process().files;
    let mut ready = 0;
    for some in asked.chunks_mut(ENTRIES_AT_ONCE) {
        let mut files = table.lock();
        for it in some.iter_mut().filter(|it| it.fd >= 0) {
            it.found = match files.look(it.fd) {
                Ok(set) if set.is_epoll() => {
                    // With a look at it a file may end, which is not for a locked table.
                    let set = set.clone();
                    drop(files);
                    let found = set.ready() & it.events;
                    drop(set);
                    files = table.lock();
                    found
                }
                Ok(file) => file.ready() & it.events,
                Err(_) => linux::POLLNVAL as u16,
            };
            ready += usize::from(it.found != 0);
        }
    }
    ready
}

/// Waits until something is ready, or the deadline. A restart would begin the timeout anew: a signal is EINTR.
fn wait(me: &Current, asked: &mut [Asked], deadline: Option<Deadline>) -> Outcome {
    until(deadline, || Ok(look(me, asked)))
}

/// Looks again and again until it finds something, or the deadline.
pub(super) fn until(deadline: Option<Deadline>, mut look: impl FnMut() -> Outcome) -> Outcome {
    loop {
        let ready = look()?;
        if ready > 0 || deadline.is_some_and(Deadline::has_passed) {
            return Ok(ready);
        }
        let next_look = Deadline::after_ns(INTERVAL_NS);
        task::sleep_until(deadline.map_or(next_look, |d| d.min(next_look)))
            .map_err(|_| Errno::EINTR)?;
    }
}

/// Runs `wait` with other signals blocked, if a set is given.
pub(super) fn with_blocked(
    me: &Current,
    set: UserPtr<u64>,
    bytes: usize,
    wait: impl FnOnce() -> Outcome,
) -> Outcome {
    let Some(set) = set.non_null() else {
        return wait();
    };
    signals::set_size_ok(bytes)?;
    let old = signal::set_blocked(me, SignalSet::from_bits(set.read()?));
    let outcome = wait();
    signal::unblock_after(me, old, outcome == Err(Errno::EINTR));
    outcome
}

/// A number of milliseconds; a negative one is for ever.
pub(super) fn timeout_ms(ms: i32) -> Option<Deadline> {
    let ms = u64::try_from(ms).ok()?;
    Some(Deadline::after_ns(ms * 1_000_000))
}

pub(super) fn poll(me: &Current, a: &Args) -> Outcome {
    poll_until(me, a, timeout_ms(a.i32(2)))
}

pub(super) fn ppoll(me: &Current, a: &Args) -> Outcome {
    let deadline = clock::timeout(a.ptr(2))?;
    with_blocked(me, a.ptr(3), a.usize(4), || poll_until(me, a, deadline))
}

fn poll_until(me: &Current, a: &Args, deadline: Option<Deadline>) -> Outcome {
    let count = a.usize(1);
    let limit = me.process().limit(linux::RLIMIT_NOFILE)?.now;
    if count > MAX_FILES || count as u64 > limit {
        return Err(Errno::EINVAL);
    }
    let array: UserPtr<pollfd> = a.ptr(0);
    // Few are kept on the stack: the heap has one lock for all CPUs.
    let (mut few, mut many) = ([Asked::NOTHING; ENTRIES_AT_ONCE], Vec::new());
    let asked = match few.get_mut(..count) {
        Some(few) => few,
        None => {
            many.resize(count, Asked::NOTHING);
            &mut many[..]
        }
    };
    read_entries(array, asked)?;
    let ready = wait(me, asked, deadline)?;
    for (at, some) in asked.chunks(ENTRIES_AT_ONCE).enumerate() {
        let mut found = [0; ENTRIES_AT_ONCE];
        let found = &mut found[..some.len()];
        found
            .iter_mut()
            .zip(some)
            .for_each(|(found, it)| *found = it.found);
        // Nothing else of an entry: another thread may be changing it.
        let there = array.element(at * ENTRIES_AT_ONCE).address();
        let revents = there.wrapping_add(offset_of!(pollfd, revents));
        uaccess::scatter_to_user(revents, size_of::<pollfd>(), found)?;
    }
    Ok(ready)
}

/// Reads what is asked for, many at a time: to open user memory takes longer than to read an entry of it.
fn read_entries(array: UserPtr<pollfd>, asked: &mut [Asked]) -> Result<(), Errno> {
    let mut bytes = [0; ENTRIES_AT_ONCE * size_of::<pollfd>()];
    for (at, asked) in asked.chunks_mut(ENTRIES_AT_ONCE).enumerate() {
        let there = array.element(at * ENTRIES_AT_ONCE).address();
        let bytes = &mut bytes[..asked.len() * size_of::<pollfd>()];
        UserBytes::new(there, bytes.len())?.copy_to(bytes)?;
        let entries = bytes.as_chunks().0.iter().map(Asked::of);
        asked
            .iter_mut()
            .zip(entries)
            .for_each(|(it, entry)| *it = entry);
    }
    Ok(())
}

pub(super) fn select(me: &Current, a: &Args) -> Outcome {
    let left: UserPtr<timeval> = a.ptr(4);
    let span_ns = match left.read_if_some()? {
        Some(span) if span.tv_sec < 0 || span.tv_usec < 0 => return Err(Errno::EINVAL),
        Some(span) => {
            let seconds_ns = (span.tv_sec as u64).saturating_mul(1_000_000_000);
            Some(seconds_ns.saturating_add((span.tv_usec as u64).saturating_mul(1000)))
        }
        None => None,
    };
    let deadline = span_ns.map(Deadline::after_ns);
    let outcome = select_until(me, a, deadline);
    if let Some(deadline) = deadline {
        // As on Linux: nobody is told if it may not be written to.
        let _told = left.write(to_timeval(deadline.remaining_ns()));
    }
    outcome
}

pub(super) fn pselect6(me: &Current, a: &Args) -> Outcome {
    let left: UserPtr<__kernel_timespec> = a.ptr(4);
    let deadline = clock::timeout(left)?;
    let [set, bytes] = a.ptr::<[usize; 2]>(5).read_if_some()?.unwrap_or([0; 2]);
    let wait = || select_until(me, a, deadline);
    let outcome = with_blocked(me, UserPtr::new(set), bytes, wait);
    if let Some(deadline) = deadline {
        let _told = left.write(from_ns(deadline.remaining_ns()));
    }
    outcome
}

const SET_WORDS: usize = MAX_FILES / u64::BITS as usize;

/// What makes a descriptor ready in each of the three sets.
const SETS: [u32; 3] = [
    linux::POLLIN | linux::POLLHUP | linux::POLLERR,
    linux::POLLOUT | linux::POLLERR,
    linux::POLLPRI,
];

fn select_until(me: &Current, a: &Args, deadline: Option<Deadline>) -> Outcome {
    let count = usize::try_from(a.i32(0)).map_err(|_| Errno::EINVAL)?;
    // There are no others.
    let count = count.min(MAX_FILES);
    let words = count.div_ceil(u64::BITS as usize);
    let sets = [1, 2, 3].map(|at| a.ptr::<u64>(at));
    let mut bits = [[0u64; SET_WORDS]; 3];
    for (set, bits) in sets.iter().zip(&mut bits) {
        for (at, word) in bits.iter_mut().enumerate().take(words) {
            *word = set.non_null().map_or(Ok(0), |set| set.element(at).read())?;
        }
    }
    let mut asked = Vec::new();
    for fd in 0..count {
        let (word, bit) = (fd / 64, 1 << (fd % 64));
        let in_set = |set: usize| bits[set][word] & bit != 0;
        let events = (0..3).filter(|&set| in_set(set)).map(|set| SETS[set]);
        let events = events.fold(0, |all, some| all | some as u16);
        if events != 0 {
            io::file(me, fd as i32)?;
            let fd = fd as i32;
            let found = 0;
            asked.push(Asked { fd, events, found });
        }
    }
    wait(me, &mut asked, deadline)?;
    let mut ready = 0;
    for (set, wanted) in SETS.iter().enumerate() {
        let mut found = [0u64; SET_WORDS];
        for it in &asked {
            let (word, bit) = (it.fd as usize / 64, 1 << (it.fd % 64));
            if u32::from(it.found) & wanted != 0 && bits[set][word] & bit != 0 {
                found[word] |= bit;
                ready += 1;
            }
        }
        if let Some(there) = sets[set].non_null() {
            for (at, word) in found.iter().enumerate().take(words) {
                there.element(at).write(*word)?;
            }
        }
    }
    Ok(ready)
}
