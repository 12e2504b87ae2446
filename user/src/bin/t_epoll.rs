//! Files that tell of time and of other files: `timerfd` and `epoll`.

use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use shootdown_user::checks::{self, expect};
use shootdown_user::child::{Child, End};
use shootdown_user::machine;
use shootdown_user::timespec::{in_ns, timespec};

const MS: i64 = 1_000_000;

fn owned(fd: i32) -> io::Result<OwnedFd> {
    match fd {
        // SAFETY: the kernel has just made it, for nobody else.
        0.. => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

fn new_timer(clock: i32, flags: i32) -> io::Result<OwnedFd> {
    // SAFETY: takes numbers.
    owned(unsafe { libc::timerfd_create(clock, flags) })
}

/// What it was: until it is due, and the period.
fn set(timer: RawFd, flags: i32, first_ns: i64, period_ns: i64) -> io::Result<(i64, i64)> {
    let new = libc::itimerspec {
        it_interval: timespec(period_ns),
        it_value: timespec(first_ns),
    };
    let mut old = new;
    // SAFETY: two valid settings.
    machine::done(unsafe { libc::timerfd_settime(timer, flags, &new, &mut old) })?;
    Ok((in_ns(old.it_value), in_ns(old.it_interval)))
}

fn left(timer: RawFd) -> io::Result<i64> {
    let mut now = libc::itimerspec {
        it_interval: timespec(0),
        it_value: timespec(0),
    };
    // SAFETY: room for a setting.
    machine::done(unsafe { libc::timerfd_gettime(timer, &mut now) })?;
    Ok(in_ns(now.it_value))
}

fn read(timer: RawFd) -> io::Result<u64> {
    let mut count = 0u64;
    // SAFETY: room for a number.
    match unsafe { libc::read(timer, (&raw mut count).cast(), 8) } {
        8 => Ok(count),
        _ => Err(io::Error::last_os_error()),
    }
}

fn now_ns(clock: i32) -> i64 {
    let mut now = timespec(0);
    // SAFETY: room for a time.
    machine::done(unsafe { libc::clock_gettime(clock, &mut now) }).unwrap();
    in_ns(now)
}

fn timers_are_read_when_due() {
    for clock in [libc::CLOCK_MONOTONIC, libc::CLOCK_REALTIME] {
        let file = new_timer(clock, 0).unwrap();
        let timer = file.as_raw_fd();
        for is_absolute in [false, true] {
            let start = now_ns(clock);
            let flags = i32::from(is_absolute) * libc::TFD_TIMER_ABSTIME;
            let first = if is_absolute { start } else { 0 } + 15 * MS;
            assert_eq!(set(timer, flags, first, 0).unwrap(), (0, 0));
            assert!((1..=15 * MS).contains(&left(timer).unwrap()));
            assert_eq!(read(timer).unwrap(), 1);
            assert!(now_ns(clock) - start >= 15 * MS);
            assert_eq!(left(timer).unwrap(), 0);
        }
        set(timer, 0, 1, 2 * MS).unwrap();
        thread::sleep(Duration::from_millis(21));
        assert!(read(timer).unwrap() >= 10);
        assert!(read(timer).unwrap() >= 1);
        let (left, period) = set(timer, 0, 0, 0).unwrap();
        assert!((1..=2 * MS).contains(&left) && period == 2 * MS);
    }
}

fn readers_learn_of_changes() {
    let file = new_timer(libc::CLOCK_MONOTONIC, 0).unwrap();
    let timer = file.as_raw_fd();
    thread::scope(|scope| {
        let reader = scope.spawn(|| read(timer).unwrap());
        thread::sleep(Duration::from_millis(5));
        set(timer, 0, 1 << 50, 0).unwrap();
        thread::sleep(Duration::from_millis(5));
        set(timer, 0, 5 * MS, 0).unwrap();
        assert_eq!(reader.join().unwrap(), 1);
    });
}

fn timers_refuse_nonsense() {
    expect(libc::EINVAL, new_timer(77, 0));
    expect(libc::EINVAL, new_timer(libc::CLOCK_MONOTONIC, 1));
    let file = new_timer(libc::CLOCK_MONOTONIC, libc::TFD_NONBLOCK).unwrap();
    let timer = file.as_raw_fd();
    expect(libc::EAGAIN, read(timer));
    expect(libc::EINVAL, set(timer, 0, -1, 0));
    expect(libc::EINVAL, set(timer, 8, 1, 0));
    expect(libc::EINVAL, set(1, 0, 1, 0));
    expect(libc::EBADF, left(9999));
    let mut short = [0u8; 7];
    // SAFETY: room for so many bytes.
    let got = unsafe { libc::read(timer, short.as_mut_ptr().cast(), 7) };
    assert_eq!((got, checks::errno()), (-1, libc::EINVAL));
    set(timer, 0, 1, 0).unwrap();
    thread::sleep(Duration::from_millis(1));
    assert_eq!(read(timer).unwrap(), 1);
}

fn new_set() -> OwnedFd {
    // SAFETY: takes a number.
    owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) }).unwrap()
}

fn control(set: &OwnedFd, how: i32, fd: RawFd, events: i32, data: u64) -> io::Result<()> {
    let mut event = libc::epoll_event {
        events: events as u32,
        u64: data,
    };
    // SAFETY: a valid event.
    machine::done(unsafe { libc::epoll_ctl(set.as_raw_fd(), how, fd, &mut event) })
}

/// What is told, in the order of the data.
fn wait(set: &OwnedFd, most: usize, ms: i32) -> io::Result<Vec<(u64, u32)>> {
    let mut events = vec![libc::epoll_event { events: 0, u64: 0 }; most.max(1)];
    // SAFETY: room for so many.
    let count = unsafe { libc::epoll_wait(set.as_raw_fd(), events.as_mut_ptr(), most as i32, ms) };
    let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
    let mut told: Vec<_> = events[..count]
        .iter()
        .map(|it| (it.u64, it.events))
        .collect();
    told.sort_unstable();
    Ok(told)
}

const ADD: i32 = libc::EPOLL_CTL_ADD;
const MODIFY: i32 = libc::EPOLL_CTL_MOD;
const DELETE: i32 = libc::EPOLL_CTL_DEL;
const IN: i32 = libc::EPOLLIN;
const OUT: i32 = libc::EPOLLOUT;

fn sets_tell_what_is_ready() {
    let set = new_set();
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    let (r, w) = (reader.as_raw_fd(), writer.as_raw_fd());
    control(&set, ADD, r, IN, u64::MAX).unwrap();
    control(&set, ADD, w, OUT, 2).unwrap();
    assert_eq!(wait(&set, 8, -1).unwrap(), [(2, OUT as u32)]);
    writer.write_all(b"xy").unwrap();
    let both = [(2, OUT as u32), (u64::MAX, IN as u32)];
    // As long as it is so.
    assert_eq!(wait(&set, 8, -1).unwrap(), both);
    assert_eq!(wait(&set, 8, 0).unwrap(), both);
    assert_eq!(wait(&set, 1, 0).unwrap().len(), 1);
    control(&set, MODIFY, w, 0, 2).unwrap();
    assert_eq!(wait(&set, 8, 0).unwrap(), [both[1]]);
    control(&set, MODIFY, r, IN | libc::EPOLLONESHOT, 3).unwrap();
    assert_eq!(wait(&set, 8, 0).unwrap(), [(3, IN as u32)]);
    assert_eq!(wait(&set, 8, 0).unwrap(), []);
    control(&set, MODIFY, r, IN, 4).unwrap();
    assert_eq!(wait(&set, 8, 0).unwrap(), [(4, IN as u32)]);
    reader.read_exact(&mut [0; 2]).unwrap();
    let start = Instant::now();
    assert_eq!(wait(&set, 8, 20).unwrap(), []);
    assert!(start.elapsed() >= Duration::from_millis(20));
    // The other end is gone, which is told unasked.
    control(&set, MODIFY, r, 0, 5).unwrap();
    drop(writer);
    assert_eq!(wait(&set, 8, -1).unwrap(), [(5, libc::EPOLLHUP as u32)]);
    // So is this one, and a member no more.
    drop(reader);
    assert_eq!(wait(&set, 8, 0).unwrap(), []);
}

fn edges_are_told_as_they_come() {
    let set = new_set();
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    control(&set, ADD, reader.as_raw_fd(), IN | libc::EPOLLET, 1).unwrap();
    for _ in 0..50 {
        writer.write_all(b"x").unwrap();
        assert_eq!(wait(&set, 8, 1000).unwrap(), [(1, IN as u32)]);
        if !machine::is_reference_kernel() {
            // It is told again there, after a while.
            assert_eq!(wait(&set, 8, 0).unwrap(), [], "it is no new one");
        }
        reader.read_exact(&mut [0]).unwrap();
    }
}

fn sets_wait_for_time_and_sets_are_waited_for() {
    let set = new_set();
    let timer = new_timer(libc::CLOCK_MONOTONIC, libc::TFD_NONBLOCK).unwrap();
    control(&set, ADD, timer.as_raw_fd(), IN, 9).unwrap();
    self::set(timer.as_raw_fd(), 0, 10 * MS, 0).unwrap();
    let mut asked = libc::pollfd {
        fd: set.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one valid entry.
    assert_eq!(unsafe { libc::poll(&mut asked, 1, 0) }, 0);
    // SAFETY: as above.
    assert_eq!(unsafe { libc::poll(&mut asked, 1, -1) }, 1);
    assert_eq!(wait(&set, 8, -1).unwrap(), [(9, IN as u32)]);
    read(timer.as_raw_fd()).unwrap();
    assert_eq!(wait(&set, 8, 0).unwrap(), []);
}

fn many_are_polled_at_once() {
    let (reader, writer) = std::io::pipe().unwrap();
    let kinds = [reader.as_raw_fd(), writer.as_raw_fd(), -1, 9999];
    let entry = |at: usize| libc::pollfd {
        fd: kinds[at % 4],
        events: libc::POLLIN | libc::POLLOUT,
        revents: libc::POLLERR,
    };
    let mut asked: Vec<_> = (0..101).map(entry).collect();
    // SAFETY: one entry less than there are.
    let ready = unsafe { libc::poll(asked.as_mut_ptr(), 100, 0) };
    assert_eq!(ready, 50);
    for (at, it) in asked.iter().enumerate() {
        let told = [0, libc::POLLOUT, 0, libc::POLLNVAL][at % 4];
        let wanted = if at == 100 { libc::POLLERR } else { told };
        assert_eq!(it.revents, wanted, "{at}");
        assert_eq!((it.fd, it.events), (entry(at).fd, entry(at).events));
    }
}

fn sets_refuse_nonsense() {
    let set = new_set();
    let (reader, _writer) = std::io::pipe().unwrap();
    let fd = reader.as_raw_fd();
    // SAFETY: takes numbers.
    expect(libc::EINVAL, owned(unsafe { libc::epoll_create1(1) }));
    // SAFETY: takes a number.
    expect(libc::EINVAL, owned(unsafe { libc::epoll_create(0) }));
    expect(libc::ENOENT, control(&set, MODIFY, fd, IN, 0));
    expect(libc::ENOENT, control(&set, DELETE, fd, IN, 0));
    control(&set, ADD, fd, IN, 0).unwrap();
    expect(libc::EEXIST, control(&set, ADD, fd, IN, 0));
    expect(libc::EINVAL, control(&set, 4, fd, IN, 0));
    expect(libc::EBADF, control(&set, ADD, 9999, IN, 0));
    expect(libc::EINVAL, control(&set, ADD, set.as_raw_fd(), IN, 0));
    expect(libc::EINVAL, wait(&set, 0, 0));
    control(&set, DELETE, fd, 0, 0).unwrap();
    let own = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
    expect(libc::EPERM, control(&set, ADD, own.as_raw_fd(), IN, 0));
}

/// Members of sets outlive their files for a while, but not without end.
fn the_dead_leave_nothing() {
    checks::must_not_lose_again(4, 64, || {
        let child = Child::start(|| {
            let sets: Vec<_> = (0..50).map(|_| new_set()).collect();
            for set in &sets {
                for _ in 0..200 {
                    let (reader, _writer) = std::io::pipe().unwrap();
                    let added = control(set, ADD, reader.as_raw_fd(), IN, 0);
                    // Nothing of it is left but that.
                    let errno = checks::error_of(added);
                    assert!(matches!(errno, None | Some(libc::ENOSPC)), "{errno:?}");
                }
            }
            5
        });
        assert_eq!(child.unwrap().wait().unwrap(), End::Exited(5));
    });
}

fn main() -> ExitCode {
    checks::run(
        "t_epoll",
        &checks::named![
            timers_are_read_when_due,
            readers_learn_of_changes,
            timers_refuse_nonsense,
            sets_tell_what_is_ready,
            edges_are_told_as_they_come,
            sets_wait_for_time_and_sets_are_waited_for,
            many_are_polled_at_once,
            sets_refuse_nonsense,
            the_dead_leave_nothing,
        ],
    )
}
