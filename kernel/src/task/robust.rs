//! Robust futexes: locks in user memory that say so when their owner ends.
//!
//! A thread keeps a list of those it holds, in its own memory, and the kernel walks that list as the thread ends or runs another program: Linux's
//! `Documentation/locking/robust-futex-ABI.rst`. The list may be anything, so the walk has a limit and ends at the first fault.

use core::sync::atomic::Ordering;

use linux_raw_sys::general as linux;

use super::Thread;
use super::futex::{self, BITSET_ANY, FutexKey, FutexScope};
use crate::arch::uaccess::{self, Fault};

/// The lowest bit of a pointer to an entry: its lock inherits priorities, and wakes nobody here.
const INHERITS: usize = 1;

/// The owner in a lock word.
const OWNER: u32 = !(linux::FUTEX_WAITERS | linux::FUTEX_OWNER_DIED);

/// Tries to change a word that others change, too.
const TRIES: usize = 1000;

/// Lets go of what the current thread holds. With its own address space loaded, and no lock held.
pub(super) fn let_go(me: &Thread) {
    let head = me.robust_list.swap(0, Ordering::Relaxed);
    if head != 0 {
        // What is left of a list that cannot be read is left, as on Linux.
        let _rest = walk(me, head);
    }
}

fn walk(me: &Thread, head: usize) -> Result<(), Fault> {
    // The first entry, where in an entry the word is, and the entry that was just being added or taken out.
    let [first, offset, pending] = uaccess::read_user::<[usize; 3]>(head)?;
    let mut entry = first;
    for _ in 0..linux::ROBUST_LIST_LIMIT {
        if entry & !INHERITS == head {
            break;
        }
        // Whoever gets the lock may change its entry.
        let next = uaccess::read_user::<usize>(entry & !INHERITS);
        if entry & !INHERITS != pending & !INHERITS {
            let_go_of(me, entry, offset, false)?;
        }
        entry = next?;
    }
    match pending & !INHERITS {
        0 => Ok(()),
        _ => let_go_of(me, pending, offset, true),
    }
}

fn let_go_of(me: &Thread, entry: usize, offset: usize, is_pending: bool) -> Result<(), Fault> {
    let inherits = entry & INHERITS != 0;
    let word = (entry & !INHERITS).wrapping_add(offset);
    if !word.is_multiple_of(size_of::<u32>()) {
        return Err(Fault);
    }
    for _ in 0..TRIES {
        let value = uaccess::read_user::<u32>(word)?;
        if is_pending && !inherits && value == 0 {
            // It was let go of, but perhaps nobody woken.
            wake_one(word);
            return Ok(());
        }
        if value & OWNER != me.tid().as_u32() {
            return Ok(());
        }
        let orphaned = value & linux::FUTEX_WAITERS | linux::FUTEX_OWNER_DIED;
        if uaccess::compare_exchange_user(word, value, orphaned)? == value {
            if !inherits && value & linux::FUTEX_WAITERS != 0 {
                wake_one(word);
            }
            return Ok(());
        }
    }
    Ok(())
}

fn wake_one(word: usize) {
    if let Ok(key) = FutexKey::current(word, FutexScope::Shared) {
        let _woken = futex::wake(key, 1, BITSET_ANY);
    }
}
