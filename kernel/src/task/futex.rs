//! Futexes: sleeping until a word in user memory changes.
//!
//! The word is compared under the lock of its bucket, and a waker takes the same lock, so a change
//! followed by a wake cannot slip between compare and sleep. A page fault may sleep, which is not for lock holders: where
//! the word's page is not there, the lock is released, the page brought in, and everything tried again.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::current::{Current, current};
use super::futex_key::BUCKETS;
use super::timer::Deadline;
use super::{Thread, sched};
use crate::arch::uaccess;
use crate::errno::Errno;
use crate::sync::Mutex;

pub use super::futex_key::{FutexKey, FutexScope};

/// Matches every waiter.
pub const BITSET_ANY: u32 = u32::MAX;

/// What a thread keeps for its one futex wait.
#[derive(Debug)]
pub(super) struct FutexState {
    woken: AtomicBool,
    /// The bucket that holds the waiter, changed by requeueing under both bucket locks.
    bucket: AtomicUsize,
}

impl FutexState {
    pub const fn new() -> Self {
        Self {
            woken: AtomicBool::new(false),
            bucket: AtomicUsize::new(0),
        }
    }
}

#[derive(Debug)]
struct Waiter {
    key: FutexKey,
    bitset: u32,
    thread: Arc<Thread>,
}

/// Waiters in the order of their coming; at most one per thread, so bounded by `MAX_THREADS`.
type Bucket = Mutex<Vec<Waiter>>;

static TABLE: [Bucket; BUCKETS] = [const { Mutex::new(Vec::new()) }; BUCKETS];

/// Sleeps while the word holds `expected` until woken, the deadline, or a signal.
///
/// # Errors
/// EAGAIN when the word differs, EFAULT when it cannot be read, ETIMEDOUT, and `Errno::RESTART`
/// when a signal came first.
pub fn wait(
    key: FutexKey,
    expected: u32,
    bitset: u32,
    deadline: Option<Deadline>,
) -> Result<(), Errno> {
    if bitset == 0 {
        return Err(Errno::EINVAL);
    }
    let me = current();
    me.futex.woken.store(false, Ordering::Relaxed);
    while !enter(&me, key, expected, bitset)? {
        bring_in(&me, key)?;
    }
    let reason = loop {
        // ORDERING: pairs with the release in `wake_waiter`.
        if me.futex.woken.load(Ordering::Acquire) {
            return Ok(());
        }
        if me.is_interrupted() {
            break Errno::RESTART;
        }
        if deadline.is_some_and(Deadline::has_passed) {
            break Errno::ETIMEDOUT;
        }
        sched::park(deadline);
    };
    if withdraw(&me) { Err(reason) } else { Ok(()) }
}

/// Makes the thread a waiter if the word holds `expected`. False when the word cannot be read just now.
fn enter(me: &Current, key: FutexKey, expected: u32, bitset: u32) -> Result<bool, Errno> {
    let mut bucket = TABLE[key.bucket()].lock();
    let Some(value) = key.value_now() else {
        return Ok(false);
    };
    if value != expected {
        return Err(Errno::EAGAIN);
    }
    me.futex.bucket.store(key.bucket(), Ordering::Relaxed);
    bucket.push(Waiter {
        key,
        bitset,
        thread: me.to_arc(),
    });
    Ok(true)
}

/// Has the page of the word there, for a moment at least. Another thread may take it away again and again: a signal
/// ends that.
fn bring_in(me: &Current, key: FutexKey) -> Result<(), Errno> {
    uaccess::read_user::<u32>(key.address()).map_err(|_| Errno::EFAULT)?;
    if me.is_interrupted() {
        return Err(Errno::RESTART);
    }
    Ok(())
}

/// Takes the thread's waiter out again. False when it has been woken meanwhile.
fn withdraw(me: &Thread) -> bool {
    loop {
        let at = me.futex.bucket.load(Ordering::Relaxed);
        let mut bucket = TABLE[at].lock();
        // ORDERING: pairs with the release in `wake_waiter`.
        if me.futex.woken.load(Ordering::Acquire) {
            return false;
        }
        if let Some(i) = bucket
            .iter()
            .position(|w| core::ptr::eq(Arc::as_ptr(&w.thread), me))
        {
            let waiter = bucket.remove(i);
            drop(bucket);
            drop(waiter);
            return true;
        }
        // Requeued between the load and the lock: look in the other bucket.
    }
}

/// Wakes at most `count` waiters of the word whose bitset meets `bitset`. Returns how many.
pub fn wake(key: FutexKey, count: usize, bitset: u32) -> Result<usize, Errno> {
    if bitset == 0 {
        return Err(Errno::EINVAL);
    }
    let mut bucket = TABLE[key.bucket()].lock();
    Ok(wake_in(&mut bucket, key, count, bitset))
}

fn wake_in(bucket: &mut Vec<Waiter>, key: FutexKey, count: usize, bitset: u32) -> usize {
    let mut woken = 0;
    let mut at = 0;
    while woken < count && at < bucket.len() {
        if bucket[at].key == key && bucket[at].bitset & bitset != 0 {
            wake_waiter(&bucket.remove(at).thread);
            woken += 1;
        } else {
            at += 1;
        }
    }
    woken
}

fn wake_waiter(thread: &Arc<Thread>) {
    // ORDERING: publishes that the waiter has left the bucket; pairs with `wait` and `withdraw`.
    thread.futex.woken.store(true, Ordering::Release);
    sched::unpark(thread);
}

/// Changes the word, in one step, to what `new` makes of it; what it held. Whoever waits for the old value has entered before, or sees the new one.
///
/// # Errors
/// EFAULT; [`Errno::RESTART`] when others change it all the time and a signal comes.
pub fn change(key: FutexKey, new: impl Fn(u32) -> u32) -> Result<u32, Errno> {
    let me = current();
    let mut value = uaccess::read_user::<u32>(key.address()).map_err(|_| Errno::EFAULT)?;
    loop {
        let found = uaccess::compare_exchange_user(key.address(), value, new(value))?;
        if found == value {
            return Ok(value);
        }
        if me.is_interrupted() {
            return Err(Errno::RESTART);
        }
        value = found;
    }
}

/// Wakes at most `wake` waiters of `from` and moves at most `requeue` others to `to`, provided the
/// word still holds `expected` (if given). Returns how many were woken and moved.
///
/// # Errors
/// EAGAIN when the word differs, EFAULT when it cannot be read.
pub fn requeue(
    from: FutexKey,
    to: FutexKey,
    wake: usize,
    requeue: usize,
    expected: Option<u32>,
) -> Result<(usize, usize), Errno> {
    let me = current();
    loop {
        if let Some(counts) = try_requeue(from, to, (wake, requeue), expected)? {
            return Ok(counts);
        }
        bring_in(&me, from)?;
    }
}

/// Does what [`requeue`] does; `None` when the word cannot be read just now.
fn try_requeue(
    from: FutexKey,
    to: FutexKey,
    (wake, requeue): (usize, usize),
    expected: Option<u32>,
) -> Result<Option<(usize, usize)>, Errno> {
    let holds = || match expected {
        None => Ok(true),
        Some(expected) => match from.value_now() {
            Some(value) if value == expected => Ok(true),
            Some(_) => Err(Errno::EAGAIN),
            None => Ok(false),
        },
    };
    let (a, b) = (from.bucket(), to.bucket());
    if a == b {
        let mut bucket = TABLE[a].lock();
        if !holds()? {
            return Ok(None);
        }
        let woken = wake_in(&mut bucket, from, wake, BITSET_ANY);
        let moved = bucket.iter_mut().filter(|w| w.key == from).take(requeue);
        return Ok(Some((woken, moved.map(|w| w.key = to).count())));
    }
    // Two buckets are locked in the order of their index, so two requeues cannot deadlock.
    let mut low = TABLE[a.min(b)].lock();
    let mut high = TABLE[a.max(b)].lock();
    if !holds()? {
        return Ok(None);
    }
    let (source, target) = if a < b {
        (&mut low, &mut high)
    } else {
        (&mut high, &mut low)
    };
    let woken = wake_in(source, from, wake, BITSET_ANY);
    let mut moved = 0;
    let mut at = 0;
    while moved < requeue && at < source.len() {
        if source[at].key == from {
            let mut waiter = source.remove(at);
            waiter.key = to;
            waiter.thread.futex.bucket.store(b, Ordering::Relaxed);
            target.push(waiter);
            moved += 1;
        } else {
            at += 1;
        }
    }
    Ok(Some((woken, moved)))
}
