//! Takes everything there is of one thing until it is refused, in a child; afterwards the machine
//! must have it all again.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use std::{io, ptr};

use shootdown_user::machine::{self, free_kib, is_reference_kernel};

const PAGE: usize = 4096;
const RIGHTS: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;

/// Takes until refused; says how much it got.
type Hog = fn() -> u64;

/// What is taken. A limit keeps it from taking down a real Linux.
const HOGS: &[(&str, Hog)] = &[
    ("threads", threads),
    ("children", children),
    ("descriptors", descriptors),
    ("pipe-bytes", pipe_bytes),
    ("areas", areas),
    ("address-space", address_space),
    ("memory", memory),
    ("futexes", futexes),
];

fn threads() -> u64 {
    let mut count = 0;
    while count < 2000
        && thread::Builder::new()
            .stack_size(PAGE * 4)
            .spawn(|| thread::sleep(Duration::MAX))
            .is_ok()
    {
        count += 1;
    }
    count
}

fn children() -> u64 {
    let mut live = Vec::new();
    while live.len() < 300 {
        let exe = std::env::current_exe().unwrap();
        match Command::new(exe).arg("sleep").stdout(Stdio::null()).spawn() {
            Ok(child) => live.push(child),
            Err(_) => break,
        }
    }
    let count = live.len() as u64;
    for mut child in live {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    count
}

fn descriptors() -> u64 {
    let mut files = Vec::new();
    while files.len() < 5000 {
        match std::fs::File::open("/dev/null") {
            Ok(file) => files.push(file),
            Err(_) => break,
        }
    }
    files.len() as u64
}

fn pipe_bytes() -> u64 {
    let mut pipes = Vec::new();
    let mut bytes = 0;
    while pipes.len() < 200
        && let Ok((reader, writer)) = io::pipe()
    {
        use std::os::fd::AsRawFd;
        let fd = writer.as_raw_fd();
        // SAFETY: the descriptor is open.
        unsafe { libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK) };
        let chunk = [1u8; PAGE];
        // SAFETY: the buffer has that size.
        while let written @ 1.. = unsafe { libc::write(fd, chunk.as_ptr().cast(), PAGE) } {
            bytes += written as u64;
        }
        pipes.push((reader, writer));
    }
    bytes
}

fn map(pages: usize, rights: libc::c_int) -> Option<*mut u8> {
    let at = machine::map(0, pages * PAGE, rights, libc::MAP_NORESERVE).ok()?;
    Some(ptr::with_exposed_provenance_mut(at))
}

/// Every other page with other rights, so that areas cannot merge.
fn areas() -> u64 {
    let mut count = 0;
    while count < 12_000
        && let Some(at) = map(2, RIGHTS)
    {
        // SAFETY: the first page of the mapping just made.
        if unsafe { libc::mprotect(at.cast(), PAGE, libc::PROT_READ) } != 0 {
            break;
        }
        count += 2;
    }
    count
}

fn address_space() -> u64 {
    let mut count = 0;
    while count < 100_000 && map(1 << 20, libc::PROT_NONE).is_some() {
        count += 1;
    }
    count
}

/// Touches page after page; ends by being killed or refused.
fn memory() -> u64 {
    let most_pages = 2 << 30 >> 12;
    if !is_reference_kernel() {
        return 0;
    }
    for count in 0..most_pages {
        let Some(at) = map(1, RIGHTS) else {
            return count;
        };
        // SAFETY: the mapping just made.
        unsafe { at.write_volatile(1) };
    }
    most_pages
}

fn futexes() -> u64 {
    static WORD: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    for at in 0..100 {
        thread::spawn(move || {
            let timeout = libc::timespec {
                tv_sec: 0,
                tv_nsec: 1_000_000 * at,
            };
            // SAFETY: waits on a static word.
            unsafe { libc::syscall(libc::SYS_futex, &WORD, libc::FUTEX_WAIT, 0, &timeout) };
        });
    }
    // Leaves while some still wait.
    thread::sleep(Duration::from_millis(50));
    100
}

/// All hogs but that of memory together; some are refused what others have, and abort.
fn everything_at_once() {
    let exe = std::env::current_exe().unwrap();
    let hogs = HOGS
        .iter()
        .filter(|(name, _)| *name != "memory")
        .cycle()
        .take(28);
    let children: Vec<_> = hogs
        .filter_map(|(name, _)| {
            Command::new(&exe)
                .arg(name)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .ok()
        })
        .collect();
    println!("t_hog: {} at once", children.len());
    for mut child in children {
        child.wait().unwrap();
    }
}

fn main() -> ExitCode {
    if let Some(what) = std::env::args().nth(1) {
        if what == "sleep" {
            thread::sleep(Duration::MAX);
        }
        let (_, hog) = HOGS
            .iter()
            .find(|(name, _)| *name == what)
            .expect("a known name");
        println!("t_hog: {what}: took {}", hog());
        return ExitCode::SUCCESS;
    }
    machine::prepare();
    let ours = is_reference_kernel();
    let before = free_kib().unwrap();
    for round in 0..2 {
        for (name, _) in HOGS {
            let start = Instant::now();
            let status = Command::new(std::env::current_exe().unwrap())
                .arg(name)
                .status()
                .unwrap();
            let fine = status.success() || status.signal() == Some(libc::SIGKILL);
            assert!(fine, "{name}: {status}");
            thread::sleep(Duration::from_millis(20));
            let lost = before.saturating_sub(free_kib().unwrap());
            println!(
                "t_hog: {name}: {status}, {} ms, {lost} KiB fewer free",
                start.elapsed().as_millis()
            );
            let is_kept = !ours || round == 0 || lost < 1024;
            assert!(is_kept, "{name} leaks {lost} KiB");
        }
    }
    everything_at_once();
    println!("t_hog: OK");
    ExitCode::SUCCESS
}
