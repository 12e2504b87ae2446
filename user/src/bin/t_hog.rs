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

/// This program, to be started with an argument.
fn own(argument: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg(argument);
    command
}

fn threads() -> u64 {
    let builder = || thread::Builder::new().stack_size(PAGE * 4);
    let start = |_: &u64| builder().spawn(|| thread::sleep(Duration::MAX)).is_ok();
    (0..2000).take_while(start).count() as u64
}

fn children() -> u64 {
    let start = |_| own("sleep").stdout(Stdio::null()).spawn().ok();
    let live: Vec<_> = (0..300).map_while(start).collect();
    let count = live.len() as u64;
    for mut child in live {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    count
}

fn descriptors() -> u64 {
    let files = (0..5000).map_while(|_| std::fs::File::open("/dev/null").ok());
    files.collect::<Vec<_>>().len() as u64
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
    let take = |_: &u64| map(1 << 20, libc::PROT_NONE).is_some();
    (0..100_000).take_while(take).count() as u64
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
    let hogs = HOGS.iter().filter(|(name, _)| *name != "memory");
    let start = |&(name, _): &(&str, Hog)| {
        let mut hog = own(name);
        hog.stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()
    };
    let children: Vec<_> = hogs.cycle().take(28).filter_map(start).collect();
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
        let known = HOGS.iter().find(|(name, _)| *name == what);
        let (_, hog) = known.expect("a known name");
        println!("t_hog: {what}: took {}", hog());
        return ExitCode::SUCCESS;
    }
    machine::prepare();
    let ours = is_reference_kernel();
    let before = free_kib().unwrap();
    for round in 0..2 {
        for (name, _) in HOGS {
            let start = Instant::now();
            let status = own(name).status().unwrap();
            let fine = status.success() || status.signal() == Some(libc::SIGKILL);
            assert!(fine, "{name}: {status}");
            thread::sleep(Duration::from_millis(20));
            let lost = before.saturating_sub(free_kib().unwrap());
            let ms = start.elapsed().as_millis();
            println!("t_hog: {name}: {status}, {ms} ms, {lost} KiB fewer free");
            let is_kept = !ours || round == 0 || lost < 1024;
            assert!(is_kept, "{name} leaks {lost} KiB");
        }
    }
    everything_at_once();
    println!("t_hog: OK");
    ExitCode::SUCCESS
}
