//! The `futex` call.

use linux_raw_sys::general as linux;

use super::args::Args;
use super::clock;
use super::outcome::{Outcome, done};
use super::schedule;
use crate::addr::USER_END;
use crate::errno::Errno;
use crate::task::futex::{self, BITSET_ANY, FutexKey, FutexScope};
use crate::task::{Current, Deadline};
use crate::user_memory::UserPtr;

pub(super) fn futex(a: &Args) -> Outcome {
    let flags = a.u32(1);
    let real_time = flags & linux::FUTEX_CLOCK_REALTIME != 0;
    let command = flags & !(linux::FUTEX_PRIVATE_FLAG | linux::FUTEX_CLOCK_REALTIME);
    let scope = match flags & linux::FUTEX_PRIVATE_FLAG {
        0 => FutexScope::Shared,
        _ => FutexScope::Private,
    };
    let key = || key(a.usize(0), scope);
    match command {
        linux::FUTEX_WAIT => wait(key()?, a, BITSET_ANY, clock::timeout(a.ptr(3))?),
        linux::FUTEX_WAIT_BITSET => wait(key()?, a, a.u32(5), absolute_deadline(a, real_time)?),
        linux::FUTEX_WAKE => futex::wake(key()?, at_least_one(a.i32(2)), BITSET_ANY),
        linux::FUTEX_WAKE_BITSET => futex::wake(key()?, at_least_one(a.i32(2)), a.u32(5)),
        linux::FUTEX_REQUEUE => requeue(key()?, scope, a, None),
        linux::FUTEX_CMP_REQUEUE => requeue(key()?, scope, a, Some(a.u32(5))),
        linux::FUTEX_WAKE_OP => wake_op(key()?, scope, a),
        _ => Err(Errno::ENOSYS),
    }
}

/// Changes a second word, wakes waiters of the first, and those of the second if it held what they wait for.
fn wake_op(first: FutexKey, scope: FutexScope, a: &Args) -> Outcome {
    let second = key(a.usize(4), scope)?;
    let change = Change::from_bits(a.u32(5))?;
    let before = futex::change(second, |value| change.of(value))?;
    let woken = futex::wake(first, at_least_one(a.i32(2)), BITSET_ANY)?;
    if !change.is_met(before) {
        return Ok(woken);
    }
    Ok(woken + futex::wake(second, at_least_one(a.i32(3)), BITSET_ANY)?)
}

/// What `FUTEX_WAKE_OP` is told in one word: an operation, a comparison, and 12 bits for each.
struct Change {
    operation: u32,
    operand: i32,
    comparison: u32,
    compared: i32,
}

impl Change {
    fn from_bits(bits: u32) -> Result<Self, Errno> {
        let (operation, comparison) = (bits >> 28 & 7, bits >> 24 & 15);
        let signed = |bits: u32| (bits << 20) as i32 >> 20;
        let is_shift = bits >> 28 & linux::FUTEX_OP_OPARG_SHIFT != 0;
        let operand = signed(bits >> 12);
        if operation > linux::FUTEX_OP_XOR || comparison > linux::FUTEX_OP_CMP_GE {
            return Err(Errno::ENOSYS);
        }
        Ok(Self {
            operation,
            operand: if is_shift {
                1 << (operand & 31)
            } else {
                operand
            },
            comparison,
            compared: signed(bits),
        })
    }

    fn of(&self, value: u32) -> u32 {
        let operand = self.operand as u32;
        match self.operation {
            linux::FUTEX_OP_SET => operand,
            linux::FUTEX_OP_ADD => value.wrapping_add(operand),
            linux::FUTEX_OP_OR => value | operand,
            linux::FUTEX_OP_ANDN => value & !operand,
            _ => value ^ operand,
        }
    }

    fn is_met(&self, value: u32) -> bool {
        let order = (value as i32).cmp(&self.compared);
        match self.comparison {
            linux::FUTEX_OP_CMP_EQ => order.is_eq(),
            linux::FUTEX_OP_CMP_NE => order.is_ne(),
            linux::FUTEX_OP_CMP_LT => order.is_lt(),
            linux::FUTEX_OP_CMP_LE => order.is_le(),
            linux::FUTEX_OP_CMP_GT => order.is_gt(),
            _ => order.is_ge(),
        }
    }
}

/// The three words of a `struct robust_list_head`.
const ROBUST_HEAD_BYTES: usize = 24;

pub(super) fn set_robust_list(me: &Current, a: &Args) -> Outcome {
    if a.usize(1) != ROBUST_HEAD_BYTES {
        return Err(Errno::EINVAL);
    }
    me.set_robust_list(a.usize(0));
    Ok(0)
}

pub(super) fn get_robust_list(me: &Current, a: &Args) -> Outcome {
    let thread = schedule::target(me, a.u32(0))?;
    a.ptr(2).write(ROBUST_HEAD_BYTES)?;
    done(a.ptr(1).write(thread.robust_list()))
}

/// The futex at an address. Shared memory must be there: EFAULT if not, as on Linux, also for a wake.
fn key(address: usize, scope: FutexScope) -> Result<FutexKey, Errno> {
    let key = FutexKey::current(address, scope)?;
    if address >= USER_END {
        return Err(Errno::EFAULT);
    }
    if scope == FutexScope::Shared {
        UserPtr::<u32>::new(address).read()?;
    }
    Ok(key)
}

/// Linux wakes one waiter even when asked for none.
fn at_least_one(count: i32) -> usize {
    count.max(1) as usize
}

fn wait(key: FutexKey, a: &Args, bitset: u32, deadline: Option<Deadline>) -> Outcome {
    match futex::wait(key, a.u32(2), bitset, deadline) {
        Ok(()) => Ok(0),
        // A timed wait is not made again: its time would start anew.
        Err(Errno::RESTART) if deadline.is_some() => Err(Errno::EINTR),
        Err(errno) => Err(errno),
    }
}

fn requeue(from: FutexKey, scope: FutexScope, a: &Args, expected: Option<u32>) -> Outcome {
    let count = |raw: i32| usize::try_from(raw).map_err(|_| Errno::EINVAL);
    // The fourth argument is a second count here, not a pointer to a timeout.
    let (wake, move_most) = (count(a.i32(2))?, count(a.i32(3))?);
    let to = key(a.usize(4), scope)?;
    let (woken, moved) = futex::requeue(from, to, wake, move_most, expected)?;
    Ok(expected.map_or(woken, |_| woken + moved))
}

fn absolute_deadline(a: &Args, real_time: bool) -> Result<Option<Deadline>, Errno> {
    let at = a.ptr(3).read_if_some()?;
    at.map(|at| clock::absolute(at, real_time)).transpose()
}
