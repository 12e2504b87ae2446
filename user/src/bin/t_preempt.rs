//! Is kernel code preempted? An urgent thread runs while another one of the same CPU is inside one long system call.
//!
//! Nothing is timed: what counts is how often the urgent thread ran between the beginning of a call and its end.

use std::ffi::c_void;
use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Says what is wrong.
type Checked = Result<(), String>;
/// A check with its name.
type Check = (&'static str, fn() -> Checked);

/// Bytes of the one call: many slices, and many wake-ups, long.
const LONG_BYTES: usize = 128 << 20;
/// Between two wake-ups.
const PERIOD: Duration = Duration::from_millis(1);
/// Far fewer than there should be.
const LEAST_WAKE_UPS: u64 = 3;
/// One call with so many is enough: a host may not run the machine's timer for longer than a call takes.
const TRIES: u32 = 5;
const PRIORITY: i32 = 40;

static WAKE_UPS: AtomicU64 = AtomicU64::new(0);
static ENOUGH: AtomicBool = AtomicBool::new(false);

fn main() -> ExitCode {
    let checks: [Check; 2] = [
        ("long_calls_are_preempted", long_calls_are_preempted),
        ("turns_are_taken_inside_calls", turns_are_taken_inside_calls),
    ];
    for (name, check) in checks {
        if let Err(why) = check() {
            println!("t_preempt: FAILED: {name}: {why}");
            return ExitCode::FAILURE;
        }
        println!("t_preempt: {name} ok");
    }
    println!("t_preempt: OK");
    ExitCode::SUCCESS
}

/// A `SCHED_FIFO` thread that sleeps most of the time gets the CPU back in the middle of a call.
fn long_calls_are_preempted() -> Checked {
    let memory = Memory::new()?;
    let zero = File::open("/dev/zero").map_err(|why| why.to_string())?;
    let urgent = std::thread::spawn(|| {
        pin_to_first_cpu()?;
        become_urgent()?;
        while !ENOUGH.load(Ordering::Relaxed) {
            std::thread::sleep(PERIOD);
            WAKE_UPS.fetch_add(1, Ordering::Relaxed);
        }
        Checked::Ok(())
    });
    pin_to_first_cpu()?;
    while WAKE_UPS.load(Ordering::Relaxed) == 0 && !urgent.is_finished() {
        std::thread::yield_now();
    }
    let mut found = Ok(0);
    for _ in 0..TRIES {
        if matches!(found, Ok(count) if count < LEAST_WAKE_UPS) {
            found = wake_ups_in_one_call(&zero, &memory);
        }
    }
    ENOUGH.store(true, Ordering::Relaxed);
    urgent.join().map_err(|_| "the urgent thread panicked")??;
    match found? {
        LEAST_WAKE_UPS.. => Ok(()),
        few => Err(format!(
            "{few} wake-ups during a call of {LONG_BYTES} bytes, the last of {TRIES} calls"
        )),
    }
}

/// How often the urgent thread runs while this one is in one system call.
fn wake_ups_in_one_call(zero: &File, memory: &Memory) -> Result<u64, String> {
    let before = WAKE_UPS.load(Ordering::Relaxed);
    // SAFETY: the memory is mapped, writable, this long, and used by nobody else.
    let count = unsafe { libc::read(zero.as_raw_fd(), memory.0, LONG_BYTES) };
    let during = WAKE_UPS.load(Ordering::Relaxed) - before;
    match count == LONG_BYTES as isize {
        true => Ok(during),
        false => Err(format!("one call read {count} bytes")),
    }
}

/// Two normal threads of one CPU: one in long calls, the other counts. Both get on.
fn turns_are_taken_inside_calls() -> Checked {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    static DONE: AtomicBool = AtomicBool::new(false);
    let counter = std::thread::spawn(|| {
        pin_to_first_cpu()?;
        while !DONE.load(Ordering::Relaxed) {
            COUNT.fetch_add(1, Ordering::Relaxed);
        }
        Checked::Ok(())
    });
    pin_to_first_cpu()?;
    while COUNT.load(Ordering::Relaxed) == 0 && !counter.is_finished() {
        std::thread::yield_now();
    }
    let memory = Memory::new()?;
    let mut zero = File::open("/dev/zero").map_err(|why| why.to_string())?;
    let before = COUNT.load(Ordering::Relaxed);
    let read = zero.read(memory.bytes()).map_err(|why| why.to_string())?;
    let during = COUNT.load(Ordering::Relaxed) - before;
    DONE.store(true, Ordering::Relaxed);
    counter
        .join()
        .map_err(|_| "the counting thread panicked")??;
    if read != LONG_BYTES || during == 0 {
        return Err(format!("{read} bytes read, {during} turns of the other"));
    }
    Ok(())
}

/// Pages that are there already: a call that fills them takes no fault and no lock, where a kernel might look for others.
struct Memory(*mut c_void);

impl Memory {
    fn new() -> Result<Self, String> {
        // SAFETY: a new mapping, nothing is replaced.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                LONG_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(format!("mmap: {}", std::io::Error::last_os_error()));
        }
        // SAFETY: just mapped, this long, and nobody else's.
        unsafe { at.cast::<u8>().write_bytes(1, LONG_BYTES) };
        Ok(Self(at))
    }

    #[expect(clippy::mut_from_ref, reason = "called once for each mapping")]
    fn bytes(&self) -> &mut [u8] {
        // SAFETY: mapped, written, this long, and borrowed once.
        unsafe { std::slice::from_raw_parts_mut(self.0.cast(), LONG_BYTES) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, and not used any more.
        unsafe { libc::munmap(self.0, LONG_BYTES) };
    }
}

fn pin_to_first_cpu() -> Checked {
    let bits: u64 = 1;
    // SAFETY: reads one word.
    let status = unsafe { libc::sched_setaffinity(0, size_of::<u64>(), (&raw const bits).cast()) };
    ok(status, "sched_setaffinity")
}

fn become_urgent() -> Checked {
    let priority = PRIORITY;
    // Directly: some C libraries have a function of that name that only fails.
    // SAFETY: reads one integer.
    let status = unsafe {
        libc::syscall(
            libc::SYS_sched_setscheduler,
            0,
            libc::SCHED_FIFO,
            &raw const priority,
        )
    };
    ok(status as i32, "sched_setscheduler")
}

fn ok(status: i32, what: &str) -> Checked {
    if status == 0 {
        Ok(())
    } else {
        Err(format!("{what}: {}", std::io::Error::last_os_error()))
    }
}
