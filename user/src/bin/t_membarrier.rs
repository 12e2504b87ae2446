//! `membarrier`: of two threads that each announce themselves and look for the other one, one does without a barrier, because the other has the kernel issue it there. Each finds
//! the other, always. A system call takes longer than stores wait for others, so that alone might pass without any barrier there: the interrupts are counted, too.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, compiler_fence};
use std::thread;
use std::time::{Duration, Instant};

use shootdown_user::counters::{self, CounterSource};
use shootdown_user::{checks, machine};

const QUERY: u32 = 0;
const MEMORY: u32 = 8;
const CORE: u32 = 32;
/// The command that registers for a command.
const REGISTER: u32 = 2;
const LENGTH: Duration = Duration::from_millis(600);

fn membarrier(command: u32, flags: u32) -> Result<i64, i32> {
    // SAFETY: it touches no memory of ours.
    let result = unsafe { libc::syscall(libc::SYS_membarrier, command, flags, 0) };
    match result {
        -1 => Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0)),
        answer => Ok(answer),
    }
}

/// A word alone on its lines.
#[repr(align(128))]
struct Line<T>(T);

/// Two threads that keep each other out, if each sees that the other wants in.
struct Pair {
    wants: [Line<AtomicU32>; 2],
    inside: Line<AtomicU32>,
    met: AtomicU32,
    begun: AtomicBool,
    ends: AtomicBool,
}

impl Pair {
    /// Enters if the other one does not want to, behind `barrier`; whether it has.
    fn try_enter(&self, me: usize, barrier: impl FnOnce()) -> bool {
        self.wants[me].0.store(1, Ordering::Relaxed);
        barrier();
        let enters = self.wants[1 - me].0.load(Ordering::Relaxed) == 0;
        if enters {
            if self.inside.0.swap(1, Ordering::AcqRel) != 0 {
                self.met.fetch_add(1, Ordering::Relaxed);
            }
            self.inside.0.store(0, Ordering::Release);
        }
        self.wants[me].0.store(0, Ordering::Release);
        enters
    }
}

/// How often both were inside, where the slow one has `barrier`; how often each was.
fn meet(cpus: [usize; 2], barrier: impl Fn()) -> (u32, [u32; 2]) {
    let line = || Line(AtomicU32::new(0));
    let pair = Pair {
        wants: [line(), line()],
        inside: line(),
        met: AtomicU32::new(0),
        begun: AtomicBool::new(false),
        ends: AtomicBool::new(false),
    };
    let mut entered = [0, 0];
    thread::scope(|scope| {
        let pair = &pair;
        let quick = scope.spawn(move || {
            machine::pin_to(cpus[1]).expect("one of ours");
            let mut entered = 0;
            while !pair.ends.load(Ordering::Relaxed) {
                let no_barrier = || compiler_fence(Ordering::SeqCst);
                entered += u32::from(pair.try_enter(1, no_barrier));
                pair.begun.store(true, Ordering::Relaxed);
            }
            entered
        });
        machine::pin_to(cpus[0]).expect("one of ours");
        while !pair.begun.load(Ordering::Relaxed) {
            thread::yield_now();
        }
        let begun = Instant::now();
        while begun.elapsed() < LENGTH {
            entered[0] += u32::from(pair.try_enter(0, &barrier));
        }
        pair.ends.store(true, Ordering::Relaxed);
        entered[1] = quick.join().expect("it does not panic");
    });
    (pair.met.into_inner(), entered)
}

fn main() -> ExitCode {
    machine::prepare();
    checks::fail_on_panic("t_membarrier");
    let cpus = machine::allowed_cpus().expect("some");
    let wanted = (MEMORY | CORE) * (1 + REGISTER);
    let offered = membarrier(QUERY, 0).expect("there is one");
    assert_eq!(offered as u32 & wanted, wanted, "offered: {offered:#x}");
    assert_eq!(membarrier(1 << 30, 0), Err(libc::EINVAL));
    assert_eq!(membarrier(MEMORY, 2), Err(libc::EINVAL));
    for command in [MEMORY, CORE] {
        assert_eq!(membarrier(command, 0), Err(libc::EPERM));
        assert_eq!(membarrier(command * REGISTER, 0), Ok(0));
        assert_eq!(membarrier(command, 0), Ok(0));
    }
    let [first, second, ..] = cpus[..] else {
        println!("t_membarrier: OK: one CPU, no second thread to meet");
        return ExitCode::SUCCESS;
    };
    let mut counters = CounterSource::of_this_kernel();
    for command in [MEMORY, CORE] {
        let asked = AtomicU32::new(0);
        let barrier = || {
            asked.fetch_add(1, Ordering::Relaxed);
            assert_eq!(membarrier(command, 0), Ok(0));
        };
        let before = counters::ipis_sent(&counters.read());
        let (met, [slow, quick]) = meet([first, second], barrier);
        let (sent, asked) = (
            counters::ipis_sent(&counters.read()) - before,
            asked.into_inner(),
        );
        // The other thread runs all the time; on Linux others may have its CPU.
        let least = match machine::is_reference_kernel() {
            true => u64::from(asked / 2),
            false => 0,
        };
        assert!(sent >= least, "{asked} barriers by {sent} interrupts");
        assert_eq!(met, 0, "command {command}: both inside at once");
        assert!(slow > 0 && quick > 0, "{slow} and {quick} times inside");
    }
    let (met, _) = meet([first, second], || compiler_fence(Ordering::SeqCst));
    println!("t_membarrier: OK: without a barrier both were inside {met} times");
    ExitCode::SUCCESS
}
