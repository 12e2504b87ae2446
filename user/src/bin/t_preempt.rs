//! Is kernel code preempted? An urgent thread runs while another one of the same CPU is inside one long system call.
//!
//! Nothing is timed: what counts is how often the urgent thread ran between the beginning of a call and its end.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use shootdown_user::region::{PAGE_BYTES, Region};
use shootdown_user::{checks, machine, realtime};

/// Bytes of the one call: many slices, and many wake-ups, long.
const LONG_BYTES: usize = 128 << 20;
/// Between two wake-ups.
const PERIOD: Duration = Duration::from_millis(1);
/// Far fewer than there should be.
const LEAST_WAKE_UPS: u64 = 3;
/// One call with so many is enough: a host may not run the machine's timer for longer than a call takes.
const TRIES: u32 = 5;
const PRIORITY: i32 = 40;

/// A `SCHED_FIFO` thread that sleeps most of the time gets the CPU back in the middle of a call.
fn long_calls_are_preempted() {
    let most = beside_calls(TRIES, LEAST_WAKE_UPS, |turns, is_over| {
        realtime::become_fifo(PRIORITY).unwrap();
        while !is_over.load(Relaxed) {
            thread::sleep(PERIOD);
            turns.fetch_add(1, Relaxed);
        }
    });
    assert!(
        most >= LEAST_WAKE_UPS,
        "at most {most} wake-ups during each of {TRIES} calls of {LONG_BYTES} bytes"
    );
}

/// Two normal threads of one CPU: one in long calls, the other counts. Both get on.
fn turns_are_taken_inside_calls() {
    let turns = beside_calls(1, 1, |turns, is_over| {
        while !is_over.load(Relaxed) {
            turns.fetch_add(1, Relaxed);
        }
    });
    assert!(turns > 0, "no turn of the other");
}

/// Makes up to `tries` long calls while another thread of the same CPU does `work`, until that has counted `enough` in one; what
/// it has counted at most.
fn beside_calls(tries: u32, enough: u64, work: impl Fn(&AtomicU64, &AtomicBool) + Sync) -> u64 {
    // Pages that are there already: a call that fills them takes no fault and no lock, where a kernel might look for others.
    let memory = Region::new(LONG_BYTES / PAGE_BYTES).unwrap();
    (0..memory.pages()).for_each(|page| memory.word(page, 0).store(1, Relaxed));
    let zero = File::open("/dev/zero").unwrap();
    let (turns, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let in_one_call = |_| {
        let before = turns.load(Relaxed);
        let at = memory.word(0, 0).as_ptr().cast();
        // SAFETY: the memory is mapped, writable, this long, and its words are atomics.
        let read = unsafe { libc::read(zero.as_raw_fd(), at, LONG_BYTES) };
        if read != LONG_BYTES as isize {
            checks::fail("t_preempt", &format!("one call read {read} bytes"));
        }
        turns.load(Relaxed) - before
    };
    machine::pin_to(0).unwrap();
    thread::scope(|scope| {
        // It inherits the CPU.
        let other = scope.spawn(|| work(&turns, &is_over));
        while turns.load(Relaxed) == 0 && !other.is_finished() {
            thread::yield_now();
        }
        let mut most = 0;
        for count in (0..tries).map(in_one_call) {
            most = count.max(most);
            if count >= enough {
                break;
            }
        }
        is_over.store(true, Relaxed);
        most
    })
}

fn main() -> ExitCode {
    checks::run(
        "t_preempt",
        &checks::named![long_calls_are_preempted, turns_are_taken_inside_calls],
    )
}
