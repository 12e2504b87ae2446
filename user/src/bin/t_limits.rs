//! Limits and rights of a process, waiting for many files, memory that is to be there, and memory of others.

#![allow(
    clippy::unnecessary_cast,
    reason = "numbers of limits have another type with musl"
)]

use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::process::ExitCode;
use std::ptr;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use shootdown_user::checks::{self, errno};
use shootdown_user::child::{Child, End, sleep_for_ever};
use shootdown_user::region::Region;
use shootdown_user::{machine, signals};

const PAGE: usize = 4096;

/// Nobody maps it.
const NOWHERE: usize = 0x2222_0000_0000;

fn call(number: i64, arguments: [usize; 6]) -> io::Result<usize> {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: what the callers pass is theirs, or refused.
    match unsafe { libc::syscall(number, a, b, c, d, e, f) } {
        -1 => Err(io::Error::last_os_error()),
        value => Ok(value as usize),
    }
}

fn limit_of(pid: i32, kind: u32, new: Option<[u64; 2]>) -> io::Result<[u64; 2]> {
    let mut old = [0; 2];
    let new = new.as_ref().map_or(0, |new| new.as_ptr() as usize);
    let old_at = (&raw mut old) as usize;
    let arguments = [pid as usize, kind as usize, new, old_at, 0, 0];
    call(libc::SYS_prlimit64, arguments).map(|_| old)
}

fn limit(kind: u32, new: Option<[u64; 2]>) -> io::Result<[u64; 2]> {
    limit_of(0, kind, new)
}

const FILES: u32 = libc::RLIMIT_NOFILE as u32;

fn limits_are_kept_and_inherited() {
    for kind in 0..16 {
        let before = limit(kind, None).unwrap();
        assert!(before[0] <= before[1]);
        let now = limit(kind, Some(before)).unwrap();
        assert_eq!(now, before, "kind {kind}");
    }
    let before = limit(libc::RLIMIT_STACK as u32, Some([1 << 20, 64 << 20])).unwrap();
    let child = Child::start(|| {
        let kept = limit(libc::RLIMIT_STACK as u32, None).unwrap() == [1 << 20, 64 << 20];
        i32::from(!kept)
    });
    assert_eq!(child.unwrap().wait().unwrap(), End::Exited(0));
    // Root may raise the hard limit again.
    limit(libc::RLIMIT_STACK as u32, Some(before)).unwrap();
    checks::expect(libc::EINVAL, limit(16, None));
    checks::expect(libc::EINVAL, limit(FILES, Some([2, 1])));
    checks::expect(libc::ESRCH, limit_of(1 << 21, FILES, None));
    let child = Child::start(|| sleep_for_ever()).unwrap();
    limit_of(child.pid(), libc::RLIMIT_CPU as u32, Some([1000, 2000])).unwrap();
    let told = limit_of(child.pid(), libc::RLIMIT_CPU as u32, None).unwrap();
    assert_eq!(told, [1000, 2000]);
    assert_eq!(child.kill().unwrap(), End::Killed(libc::SIGKILL));
}

fn no_more_descriptors_than_allowed() {
    let before = limit(FILES, None).unwrap();
    limit(FILES, Some([20, before[1]])).unwrap();
    let mut last = 0;
    let mut open = Vec::new();
    let error = loop {
        // SAFETY: copies a descriptor of ours.
        match unsafe { libc::dup(1) } {
            -1 => break errno(),
            fd => open.push(fd),
        }
        last = last.max(*open.last().unwrap());
    };
    assert_eq!((error, last), (libc::EMFILE, 19));
    let dup2 = call(libc::SYS_dup2, [1, 20, 0, 0, 0, 0]);
    checks::expect(libc::EBADF, dup2);
    let command = libc::F_DUPFD as usize;
    checks::expect(
        libc::EINVAL,
        call(libc::SYS_fcntl, [1, command, 20, 0, 0, 0]),
    );
    checks::expect(libc::EMFILE, std::io::pipe().map(|_| ()));
    limit(FILES, Some(before)).unwrap();
    // SAFETY: as above.
    let more = unsafe { libc::dup(1) };
    assert_eq!(more, 20);
    limit(FILES, Some([10, before[1]])).unwrap();
    // What is open stays so.
    assert_eq!(
        call(libc::SYS_fcntl, [20, libc::F_GETFD as usize, 0, 0, 0, 0]).unwrap(),
        0
    );
    limit(FILES, Some(before)).unwrap();
    open.push(more);
    // SAFETY: our own copies.
    open.into_iter()
        .for_each(|fd| assert_eq!(unsafe { libc::close(fd) }, 0));
}

type Set = [u64; 16];

fn set_of(fds: &[RawFd]) -> Set {
    let mut set = [0; 16];
    fds.iter()
        .for_each(|fd| set[*fd as usize / 64] |= 1 << (fd % 64));
    set
}

fn select(
    count: i32,
    sets: [Option<&mut Set>; 3],
    wait: Option<&mut [i64; 2]>,
) -> io::Result<usize> {
    let [read, write, except] = sets.map(|set| set.map_or(0, |set| set.as_mut_ptr() as usize));
    let wait = wait.map_or(0, |wait| wait.as_mut_ptr() as usize);
    call(
        libc::SYS_select,
        [count as usize, read, write, except, wait, 0],
    )
}

fn selects_find_what_is_ready() {
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    let (r, w) = (reader.as_raw_fd(), writer.as_raw_fd());
    let count = r.max(w) + 1;
    let (mut reading, mut writing) = (set_of(&[r]), set_of(&[w]));
    let found = select(count, [Some(&mut reading), Some(&mut writing), None], None).unwrap();
    assert_eq!((found, reading, writing), (1, set_of(&[]), set_of(&[w])));
    writer.write_all(b"x").unwrap();
    let (mut reading, mut writing, mut other) = (set_of(&[r]), set_of(&[w]), set_of(&[r]));
    let sets = [Some(&mut reading), Some(&mut writing), Some(&mut other)];
    assert_eq!(select(count, sets, None).unwrap(), 2);
    assert_eq!(
        (reading, writing, other),
        (set_of(&[r]), set_of(&[w]), set_of(&[]))
    );
    reader.read_exact(&mut [0]).unwrap();
    // Nothing comes: all of the time goes by.
    let (mut reading, mut left, start) = (set_of(&[r]), [0, 20_000], Instant::now());
    let found = select(count, [Some(&mut reading), None, None], Some(&mut left)).unwrap();
    assert!(start.elapsed() >= Duration::from_millis(20));
    assert_eq!((found, reading, left), (0, set_of(&[]), [0, 0]));
    // What is left is told.
    let (mut writing, mut left) = (set_of(&[w]), [1000, 0]);
    assert_eq!(
        select(count, [None, Some(&mut writing), None], Some(&mut left)).unwrap(),
        1
    );
    assert!((990..1001).contains(&left[0]));
    // The end of a pipe can be read.
    drop(writer);
    let mut reading = set_of(&[r]);
    assert_eq!(
        select(count, [Some(&mut reading), None, None], None).unwrap(),
        1
    );
    let mut closed = set_of(&[w]);
    checks::expect(
        libc::EBADF,
        select(count, [Some(&mut closed), None, None], None),
    );
    checks::expect(libc::EINVAL, select(-1, [None, None, None], None));
    checks::expect(
        libc::EINVAL,
        select(0, [None, None, None], Some(&mut [0, -1])),
    );
    let bad = call(libc::SYS_select, [1, NOWHERE, 0, 0, 0, 0]);
    checks::expect(libc::EFAULT, bad);
    assert_eq!(
        select(0, [None, None, None], Some(&mut [0, 1000])).unwrap(),
        0
    );
}

extern "C" fn nothing(_: i32) {}

/// A signal that is blocked but in the wait ends it, and its handler runs once the wait is over.
fn waits_let_signals_in() {
    let handler = nothing as extern "C" fn(i32) as libc::sighandler_t;
    // SAFETY: 1. the handler does nothing.
    unsafe { signals::handle(libc::SIGUSR1, handler, libc::SA_RESTART) }.unwrap();
    let block = 1u64 << (libc::SIGUSR1 - 1);
    let how = libc::SIG_BLOCK as usize;
    let at = |word: &u64| ptr::from_ref(word) as usize;
    call(libc::SYS_rt_sigprocmask, [how, at(&block), 0, 8, 0, 0]).unwrap();
    signals::send_self(libc::SIGUSR1).unwrap();
    let none = 0u64;
    let set_and_size = [at(&none), 8];
    let pointer = set_and_size.as_ptr() as usize;
    let (mut now, time) = (0u64, [100i64, 0]);
    let ended = call(
        libc::SYS_pselect6,
        [0, 0, 0, 0, time.as_ptr() as usize, pointer],
    );
    checks::expect(libc::EINTR, ended);
    assert!((90..=100).contains(&time[0]));
    call(
        libc::SYS_rt_sigprocmask,
        [0, 0, &raw mut now as usize, 8, 0, 0],
    )
    .unwrap();
    assert_eq!(now & block, block, "it is blocked again");
    let how = libc::SIG_UNBLOCK as usize;
    call(libc::SYS_rt_sigprocmask, [how, at(&block), 0, 8, 0, 0]).unwrap();
    let short = [0i64, 1_000_000];
    let ended = call(libc::SYS_pselect6, [0, 0, 0, 0, short.as_ptr() as usize, 0]);
    assert_eq!(ended.unwrap(), 0);
}

fn residents(at: usize, pages: usize) -> io::Result<Vec<u8>> {
    let mut known = vec![0xee; pages];
    let out = known.as_mut_ptr() as usize;
    call(libc::SYS_mincore, [at, pages * PAGE, out, 0, 0, 0])?;
    Ok(known.into_iter().map(|byte| byte & 1).collect())
}

fn locked_memory_is_there() {
    const PAGES: usize = 9;
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let at = machine::map(0, PAGES * PAGE, rights, 0).unwrap();
    // SAFETY: just mapped.
    unsafe { ptr::with_exposed_provenance_mut::<u8>(at + 3 * PAGE).write_volatile(1) };
    assert_eq!(residents(at, PAGES).unwrap(), [0, 0, 0, 1, 0, 0, 0, 0, 0]);
    // Whole pages, wherever the bytes start and end.
    call(libc::SYS_mlock, [at + 5 * PAGE + 17, PAGE, 0, 0, 0, 0]).unwrap();
    assert_eq!(residents(at, PAGES).unwrap(), [0, 0, 0, 1, 0, 1, 1, 0, 0]);
    let on_fault = libc::MLOCK_ONFAULT as usize;
    call(libc::SYS_mlock2, [at, 2 * PAGE, on_fault, 0, 0, 0]).unwrap();
    assert_eq!(residents(at, PAGES).unwrap()[..2], [0, 0]);
    call(libc::SYS_mlock2, [at, 2 * PAGE, 0, 0, 0, 0]).unwrap();
    assert_eq!(residents(at, PAGES).unwrap()[..3], [1, 1, 0]);
    call(libc::SYS_munlock, [at, PAGES * PAGE, 0, 0, 0, 0]).unwrap();
    call(libc::SYS_mlock, [at, 0, 0, 0, 0, 0]).unwrap();
    checks::expect(libc::EINVAL, call(libc::SYS_mlock2, [at, PAGE, 2, 0, 0, 0]));
    // SAFETY: its own memory.
    machine::done(unsafe { libc::munmap(ptr::with_exposed_provenance_mut(at + PAGE), PAGE) })
        .unwrap();
    for number in [libc::SYS_mlock, libc::SYS_munlock] {
        checks::expect(libc::ENOMEM, call(number, [at, 3 * PAGE, 0, 0, 0, 0]));
        checks::expect(libc::ENOMEM, call(number, [NOWHERE, PAGE, 0, 0, 0, 0]));
    }
    checks::expect(libc::ENOMEM, residents(at, 2));
    checks::expect(libc::EINVAL, residents(at + 1, 1));
    checks::expect(
        libc::EFAULT,
        call(libc::SYS_mincore, [at, PAGE, 8, 0, 0, 0]),
    );
    let populate =
        |advice: i32, at| call(libc::SYS_madvise, [at, 2 * PAGE, advice as usize, 0, 0, 0]);
    assert_eq!(residents(at + 7 * PAGE, 2).unwrap(), [0, 0]);
    populate(libc::MADV_POPULATE_WRITE, at + 7 * PAGE).unwrap();
    assert_eq!(residents(at + 7 * PAGE, 2).unwrap(), [1, 1]);
    checks::expect(libc::ENOMEM, populate(libc::MADV_POPULATE_READ, at));
    checks::expect(libc::EINVAL, populate(libc::MADV_POPULATE_READ, at + 1));
    let readable = machine::map(0, 2 * PAGE, libc::PROT_READ, 0).unwrap();
    populate(libc::MADV_POPULATE_READ, readable).unwrap();
    assert_eq!(residents(readable, 2).unwrap(), [1, 1]);
    checks::expect(libc::EINVAL, populate(libc::MADV_POPULATE_WRITE, readable));
    let unreadable = machine::map(0, PAGE, libc::PROT_NONE, 0).unwrap();
    checks::expect(
        libc::ENOMEM,
        call(libc::SYS_mlock, [unreadable, PAGE, 0, 0, 0, 0]),
    );
    let current = libc::MCL_CURRENT as usize;
    call(libc::SYS_mlockall, [current, 0, 0, 0, 0, 0]).unwrap();
    call(libc::SYS_munlockall, [0; 6]).unwrap();
    checks::expect(libc::EINVAL, call(libc::SYS_mlockall, [0; 6]));
    checks::expect(libc::EINVAL, call(libc::SYS_mlockall, [8, 0, 0, 0, 0, 0]));
}

fn visit(number: i64, pid: i32, own: &[[usize; 2]], theirs: &[[usize; 2]]) -> io::Result<usize> {
    let (own_at, their_at) = (own.as_ptr() as usize, theirs.as_ptr() as usize);
    let arguments = [pid as usize, own_at, own.len(), their_at, theirs.len(), 0];
    call(number, arguments)
}

/// Both ways, across pages that are not there yet, and as far as the other's memory goes.
fn others_memory_is_reached() {
    const PAGES: usize = 4;
    let (read, write) = (libc::SYS_process_vm_readv, libc::SYS_process_vm_writev);
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let at = machine::map(0, PAGES * PAGE, rights, 0).unwrap();
    // SAFETY: just mapped.
    let bytes = unsafe {
        std::slice::from_raw_parts_mut(ptr::with_exposed_provenance_mut::<u8>(at), 2 * PAGE)
    };
    (0..2 * PAGE).for_each(|i| bytes[i] = i as u8);
    let flag = Region::shared(1).unwrap();
    let child = Child::start(|| {
        while flag.word(0, 0).load(Relaxed) == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        // SAFETY: its own copy, which the parent has written to.
        let last = unsafe { ptr::with_exposed_provenance::<u8>(at + 3 * PAGE - 1).read_volatile() };
        i32::from(last)
    })
    .unwrap();
    let pid = child.pid();
    bytes.fill(0);
    let mut copy = vec![0u8; 3 * PAGE];
    let here = copy.as_mut_ptr() as usize;
    let moved = visit(
        read,
        pid,
        &[[here, 100], [here + 100, 3 * PAGE - 100]],
        &[[at, 3 * PAGE]],
    );
    assert_eq!(moved.unwrap(), 3 * PAGE);
    assert!(
        (0..2 * PAGE).all(|i| copy[i] == i as u8),
        "the child's, not ours"
    );
    assert!(copy[2 * PAGE..].iter().all(|byte| *byte == 0));
    copy.fill(77);
    let moved = visit(
        write,
        pid,
        &[[here, 3 * PAGE]],
        &[[at + 1, PAGE], [at + PAGE + 1, 2 * PAGE - 1]],
    );
    assert_eq!(moved.unwrap(), 3 * PAGE - 1);
    assert!(bytes.iter().all(|byte| *byte == 0), "our own stays");
    let partly = visit(
        read,
        pid,
        &[[here, 3 * PAGE]],
        &[[at, PAGE], [NOWHERE, PAGE]],
    );
    assert_eq!(partly.unwrap(), PAGE);
    checks::expect(
        libc::EFAULT,
        visit(read, pid, &[[here, 8]], &[[NOWHERE, 8]]),
    );
    checks::expect(libc::EFAULT, visit(write, pid, &[[NOWHERE, 8]], &[[at, 8]]));
    checks::expect(libc::ESRCH, visit(read, 1 << 21, &[[here, 8]], &[[at, 8]]));
    assert_eq!(visit(read, pid, &[], &[[at, 8]]).unwrap(), 0);
    let own = std::process::id() as i32;
    assert_eq!(visit(read, own, &[[here, 8]], &[[at, 8]]).unwrap(), 8);
    flag.word(0, 0).store(1, Relaxed);
    assert_eq!(child.wait().unwrap(), End::Exited(77));
}

fn root_is_told_so() {
    let mut ids = [7u32; 3];
    let at = |index: usize, ids: &[u32; 3]| ids.as_ptr() as usize + 4 * index;
    for number in [libc::SYS_getresuid, libc::SYS_getresgid] {
        ids.fill(7);
        call(number, [at(0, &ids), at(1, &ids), at(2, &ids), 0, 0, 0]).unwrap();
        std::hint::black_box(&mut ids);
        assert_eq!(ids, [0; 3]);
    }
    let unchanged = usize::MAX;
    call(libc::SYS_setuid, [0; 6]).unwrap();
    call(libc::SYS_setresuid, [unchanged, 0, unchanged, 0, 0, 0]).unwrap();
    call(libc::SYS_setregid, [0, unchanged, 0, 0, 0, 0]).unwrap();
    checks::expect(
        libc::EINVAL,
        call(libc::SYS_setuid, [unchanged, 0, 0, 0, 0, 0]),
    );
    call(libc::SYS_setgroups, [0; 6]).unwrap();
    assert_eq!(call(libc::SYS_getgroups, [0; 6]).unwrap(), 0);
    let mut header = [0x2008_0522u32, 0];
    let mut sets = [[0u32; 3]; 2];
    let arguments = [
        header.as_mut_ptr() as usize,
        sets.as_mut_ptr() as usize,
        0,
        0,
        0,
        0,
    ];
    call(libc::SYS_capget, arguments).unwrap();
    assert_eq!(std::hint::black_box(&sets)[0][..2], [u32::MAX; 2]);
    call(libc::SYS_capset, arguments).unwrap();
    header[0] = 1;
    checks::expect(libc::EINVAL, call(libc::SYS_capget, arguments));
    assert_eq!(std::hint::black_box(&header)[0], 0x2008_0522);
    assert_eq!(
        call(libc::SYS_personality, [0xffff_ffff, 0, 0, 0, 0, 0]).unwrap(),
        0
    );
}

fn habits_are_inherited() {
    // SAFETY: takes a number.
    let before = unsafe { libc::umask(0o27) };
    let nice = |value: i32| call(libc::SYS_setpriority, [0, 0, value as usize, 0, 0, 0]);
    let told = || call(libc::SYS_getpriority, [0; 6]).unwrap();
    nice(5).unwrap();
    let child = Child::start(|| {
        // SAFETY: as above.
        let mask = unsafe { libc::umask(0) };
        i32::from(mask != 0o27) + 2 * i32::from(told() != 15)
    });
    assert_eq!(child.unwrap().wait().unwrap(), End::Exited(0));
    // SAFETY: as above.
    assert_eq!(unsafe { libc::umask(before) }, 0o27);
    nice(-100).unwrap();
    assert_eq!(told(), 40);
    nice(0).unwrap();
    checks::expect(
        libc::EINVAL,
        call(libc::SYS_getpriority, [3, 0, 0, 0, 0, 0]),
    );
    checks::expect(
        libc::ESRCH,
        call(libc::SYS_getpriority, [0, 1 << 21, 0, 0, 0, 0]),
    );
}

fn schedules_are_told_and_set() {
    let mut attributes = [0u32; 12];
    let at = attributes.as_mut_ptr() as usize;
    let get = |bytes| call(libc::SYS_sched_getattr, [0, at, bytes, 0, 0, 0]);
    let set = || call(libc::SYS_sched_setattr, [0, at, 0, 0, 0, 0]);
    checks::expect(libc::EINVAL, get(47));
    get(48).unwrap();
    let told = |words: &[u32; 12]| [words[0], words[1], words[5]];
    assert_eq!(told(std::hint::black_box(&attributes)), [48, 0, 0]);
    attributes = [48, libc::SCHED_FIFO as u32, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0];
    std::hint::black_box(&attributes);
    set().unwrap();
    get(48).unwrap();
    assert_eq!(told(std::hint::black_box(&attributes)), [48, 1, 7]);
    attributes = [48, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0];
    std::hint::black_box(&attributes);
    checks::expect(libc::EINVAL, set());
    attributes[5] = 0;
    std::hint::black_box(&attributes);
    set().unwrap();
    attributes[0] = 47;
    std::hint::black_box(&attributes);
    checks::expect(libc::E2BIG, set());
}

fn main() -> ExitCode {
    checks::run(
        "t_limits",
        &checks::named![
            limits_are_kept_and_inherited,
            no_more_descriptors_than_allowed,
            selects_find_what_is_ready,
            waits_let_signals_in,
            locked_memory_is_there,
            others_memory_is_reached,
            root_is_told_so,
            habits_are_inherited,
            schedules_are_told_and_set,
        ],
    )
}
