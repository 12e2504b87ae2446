//! Every system call number with seeded garbage arguments, made by children that may die of it; the
//! kernel may not. Arguments: `[ROUNDS [SEED]]`.
//!
//! Only for virtual machines: on Linux the calls include ones that reconfigure the system.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::ptr;
use std::thread;
use std::time::{Duration, Instant};

use shootdown_user::machine;

/// Numbers from 0 to this.
const HIGHEST: i64 = 460;

/// Memory that may be gone in the end: stacks of threads on their way out, tables of files.
const MOST_LOST_KIB: u64 = 512;

/// A child that has not ended by then is asleep for good, as some calls ask for.
const PATIENCE: Duration = Duration::from_millis(400);

/// Calls left out because what they do to the machine is right: reboot and kexec.
const LEFT_OUT: &[i64] = &[
    libc::SYS_reboot,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
];

/// Some arguments point to one of these, or to zeroes.
const PATHS: [&str; 12] = [
    "/",
    ".",
    "..",
    "a",
    "/tmp/a",
    "/tmp/a/b",
    "../tmp/c",
    "/proc/self/comm",
    "/proc/self",
    "/dev/zero",
    "/boot",
    "/tmp/",
];
/// Where they begin.
const PLACE_BYTES: usize = 32;

fn argument(random: &mut fastrand::Rng, own: usize) -> usize {
    match random.u8(0..12) {
        0 => 0,
        1 => random.usize(..),
        2 => usize::MAX - random.usize(..4096),
        3 => 0xffff_8000_0000_0000 + random.usize(..1 << 30),
        4 => 0x7fff_ffff_f000 - random.usize(..64),
        5 => 0x8000_0000_0000_0000,
        6 => own + random.usize(..4096),
        7 => (own + random.usize(..4096)) & !(PLACE_BYTES - 1),
        8 => 1 << random.u32(..64),
        9 => random.usize(..8),
        10 => random.usize(..4096),
        _ => (random.u32(..) as i32) as usize,
    }
}

/// The child's side: some calls, then an end.
fn torment(seed: u64, numbers: std::ops::RangeInclusive<i64>) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut memory = vec![0u8; 16384];
    for place in memory.chunks_exact_mut(PLACE_BYTES).step_by(2) {
        let path = PATHS[random.usize(..PATHS.len())].as_bytes();
        place[..path.len()].copy_from_slice(path);
    }
    for number in numbers {
        if LEFT_OUT.contains(&number) {
            continue;
        }
        for _ in 0..4 {
            let [a, b, c, d, e, f] =
                [(); 6].map(|()| argument(&mut random, memory.as_ptr() as usize));
            // SAFETY: none. This process may lose its memory, threads or life here; that is the test.
            unsafe { libc::syscall(number, a, b, c, d, e, f) };
        }
    }
}

fn wait(mut child: Child) -> Option<ExitStatus> {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        thread::sleep(Duration::from_millis(2));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    None
}

/// Ends what children have left, if all others are their doing.
fn end_descendants() {
    if std::process::id() != 1 {
        return;
    }
    // SAFETY: others are the children's doing.
    unsafe { libc::kill(-1, libc::SIGKILL) };
    let options = libc::WNOHANG | libc::__WALL;
    // SAFETY: forgets an ended process, and writes nothing.
    while unsafe { libc::waitpid(-1, ptr::null_mut(), options) } > 0 {}
}

fn spawn(seed: u64, from: i64, to: i64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([seed.to_string(), from.to_string(), to.to_string()].map(|s| format!("child={s}")))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// What is in the directories to which children may have added something.
fn names() -> BTreeSet<PathBuf> {
    let of = |directory| fs::read_dir(directory).into_iter().flatten().flatten();
    let entries = ["/", "/tmp", "/boot"].into_iter().flat_map(of);
    entries.map(|entry| entry.path()).collect()
}

/// With what the first processes keep.
fn free_kib() -> u64 {
    let _dropped = fs::write("/proc/sys/vm/drop_caches", "1");
    machine::free_kib().unwrap_or(0)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let child = arguments
        .iter()
        .filter_map(|a| a.strip_prefix("child=")?.parse().ok());
    let child: Vec<i64> = child.collect();
    if let [seed, from, to] = child[..] {
        torment(seed as u64, from..=to);
        return ExitCode::SUCCESS;
    }
    machine::prepare();
    let argument = |at: usize| arguments.get(at)?.parse().ok();
    let number = |at, default| argument(at).unwrap_or(default);
    let (rounds, first_seed) = (number(0, 2), number(1, 1));
    let (mut ended, mut killed, mut slept) = (0, 0, 0);
    let (names, free) = (names(), free_kib());
    for seed in first_seed..first_seed + rounds {
        for from in (0..=HIGHEST).step_by(4) {
            match wait(spawn(seed, from, (from + 3).min(HIGHEST))) {
                Some(status) if status.signal().is_some() => killed += 1,
                Some(_) => ended += 1,
                None => slept += 1,
            }
            end_descendants();
        }
        println!("t_badptr: seed {seed}: {ended} ended, {killed} died, {slept} slept so far");
    }
    // The machine still works.
    let sum = |n: u64| thread::spawn(move || n).join().unwrap();
    assert_eq!((0..8).map(sum).sum::<u64>(), 28);
    // And has all of its memory again, once what the children have made is gone.
    for new in self::names().difference(&names) {
        let _gone = fs::remove_dir_all(new).or_else(|_| fs::remove_file(new));
    }
    let lost = free.saturating_sub(free_kib());
    assert!(lost < MOST_LOST_KIB, "{lost} KiB are gone");
    println!("t_badptr: {lost} KiB less free than before");
    println!("t_badptr: OK");
    ExitCode::SUCCESS
}
