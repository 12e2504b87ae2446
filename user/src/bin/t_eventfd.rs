//! What processes talk through: event counters, pipes, shared memory, and futexes in it.

use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::process::ExitCode;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

use shootdown_user::checks::{self, errno};
use shootdown_user::child::{Child, End};
use shootdown_user::region::Region;

/// How often two processes take turns.
const TURNS: u64 = 200;

fn event(value: u32, flags: i32) -> OwnedFd {
    // SAFETY: makes a descriptor.
    let fd = unsafe { libc::eventfd(value, flags) };
    assert!(fd >= 0, "eventfd: errno {}", errno());
    // SAFETY: just made, and nobody else's.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Reads a counter, or the error number.
fn take(event: &OwnedFd) -> Result<u64, i32> {
    let mut value = 0_u64;
    // SAFETY: as many bytes as `value` has.
    match unsafe { libc::read(event.as_raw_fd(), (&raw mut value).cast(), 8) } {
        8 => Ok(value),
        _ => Err(errno()),
    }
}

fn add(event: &OwnedFd, value: u64) -> Result<(), i32> {
    // SAFETY: as many bytes as `value` has.
    match unsafe { libc::write(event.as_raw_fd(), (&raw const value).cast(), 8) } {
        8 => Ok(()),
        _ => Err(errno()),
    }
}

fn ready(fd: RawFd) -> i16 {
    let mut entry = libc::pollfd {
        fd,
        events: libc::POLLIN | libc::POLLOUT,
        revents: 0,
    };
    // SAFETY: one entry.
    unsafe { libc::poll(&mut entry, 1, 0) };
    entry.revents
}

fn counters_add_up() {
    let event = event(3, libc::EFD_NONBLOCK);
    let fd = event.as_raw_fd();
    assert_eq!(ready(fd), libc::POLLIN | libc::POLLOUT);
    assert_eq!((add(&event, 4), take(&event)), (Ok(()), Ok(7)));
    assert_eq!(ready(fd), libc::POLLOUT);
    assert_eq!(take(&event), Err(libc::EAGAIN));
    assert_eq!(add(&event, u64::MAX), Err(libc::EINVAL));
    assert_eq!(add(&event, u64::MAX - 1), Ok(()));
    assert_eq!(ready(fd), libc::POLLIN);
    assert_eq!(add(&event, 1), Err(libc::EAGAIN));
    assert_eq!(add(&event, 0), Ok(()));
    assert_eq!(take(&event), Ok(u64::MAX - 1));
}

fn semaphores_give_one_at_a_time() {
    let event = event(2, libc::EFD_SEMAPHORE | libc::EFD_NONBLOCK);
    let taken: Vec<_> = (0..3).map(|_| take(&event)).collect();
    assert_eq!(taken, [Ok(1), Ok(1), Err(libc::EAGAIN)]);
}

fn bad_calls_are_refused() {
    // SAFETY: refused.
    let refused = unsafe { libc::eventfd(0, 0x10) };
    assert_eq!((refused, errno()), (-1, libc::EINVAL));
    let event = event(1, libc::EFD_CLOEXEC);
    let fd = event.as_raw_fd();
    // SAFETY: asks for the flags of a descriptor.
    assert_eq!(unsafe { libc::fcntl(fd, libc::F_GETFD) }, libc::FD_CLOEXEC);
    let mut bytes = [0_u8; 7];
    // SAFETY: seven bytes.
    let short = unsafe { libc::read(fd, bytes.as_mut_ptr().cast(), 7) };
    assert_eq!((short, errno()), (-1, libc::EINVAL));
    // SAFETY: seven bytes.
    let short = unsafe { libc::write(fd, bytes.as_ptr().cast(), 7) };
    assert_eq!((short, errno()), (-1, libc::EINVAL));
}

fn processes_wait_for_each_other() {
    let (ping, pong) = (event(0, 0), event(0, 0));
    let child = Child::start(|| {
        let mut sum = 0;
        for _ in 0..TURNS {
            sum += take(&ping).unwrap_or(0);
            if add(&pong, sum).is_err() {
                return 1;
            }
        }
        0
    });
    for turn in 1..=TURNS {
        add(&ping, turn).unwrap();
        assert_eq!(take(&pong), Ok(turn * (turn + 1) / 2));
    }
    assert_eq!(child.unwrap().wait().unwrap(), End::Exited(0));
}

fn writers_wait_for_room() {
    let event = event(0, 0);
    add(&event, u64::MAX - 1).unwrap();
    let child = Child::start(|| i32::from(add(&event, 5).is_err()));
    assert_eq!(take(&event), Ok(u64::MAX - 1));
    assert_eq!(child.unwrap().wait().unwrap(), End::Exited(0));
    assert_eq!(take(&event), Ok(5));
}

fn pipes_end_with_their_last_writer() {
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    let child = Child::start(|| i32::from(writer.write_all(&[b'x'; 100_000]).is_err()));
    drop(writer);
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes.len(), 100_000);
    assert_eq!(child.unwrap().wait().unwrap(), End::Exited(0));
}

/// A pipe, and what the calls on it tell.
struct Pipe {
    reader: OwnedFd,
    writer: OwnedFd,
}

impl Pipe {
    fn new(flags: i32) -> Self {
        let mut fds = [0; 2];
        // SAFETY: room for two descriptors.
        assert_eq!(unsafe { libc::pipe2(fds.as_mut_ptr(), flags) }, 0);
        // SAFETY: just made, and nobody else's.
        let [reader, writer] = fds.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
        Self { reader, writer }
    }

    /// How many bytes were written, or the error number.
    fn write(&self, bytes: &[u8]) -> Result<usize, i32> {
        let fd = self.writer.as_raw_fd();
        // SAFETY: as many bytes as the slice has.
        let written = unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) };
        usize::try_from(written).map_err(|_| errno())
    }

    /// The same of several pieces in one call.
    fn write_pieces(&self, pieces: &[&[u8]]) -> Result<usize, i32> {
        let pieces = pieces.iter().map(|piece| libc::iovec {
            iov_base: piece.as_ptr().cast_mut().cast(),
            iov_len: piece.len(),
        });
        let pieces: Vec<_> = pieces.collect();
        let (fd, count) = (self.writer.as_raw_fd(), pieces.len() as i32);
        // SAFETY: the pieces are slices that outlive the call, which only reads them.
        let written = unsafe { libc::writev(fd, pieces.as_ptr(), count) };
        usize::try_from(written).map_err(|_| errno())
    }

    fn read(&self, bytes: &mut [u8]) -> Result<usize, i32> {
        let fd = self.reader.as_raw_fd();
        // SAFETY: as much room as the slice has.
        let read = unsafe { libc::read(fd, bytes.as_mut_ptr().cast(), bytes.len()) };
        usize::try_from(read).map_err(|_| errno())
    }
}

/// What a pipe holds, on Linux and on the reference kernel.
const PIPE_BYTES: usize = 64 << 10;

fn short_writes_are_whole_or_refused() {
    let pipe = Pipe::new(libc::O_NONBLOCK);
    let (bytes, mut room) = ([b'x'; 2 * PIPE_BYTES], [0; libc::PIPE_BUF]);
    assert_eq!(pipe.write(&bytes[..0]), Ok(0));
    assert_eq!(pipe.write(&bytes), Ok(PIPE_BYTES), "a longer one is cut");
    assert_eq!(pipe.write(&bytes[..1]), Err(libc::EAGAIN));
    let fd = pipe.writer.as_raw_fd();
    assert_eq!(ready(fd), 0);
    assert_eq!(pipe.read(&mut room[..100]), Ok(100));
    assert_eq!(ready(fd), 0, "no room for a write of {}", libc::PIPE_BUF);
    assert_eq!(pipe.write(&bytes[..200]), Err(libc::EAGAIN));
    assert_eq!(pipe.write(&bytes[..libc::PIPE_BUF]), Err(libc::EAGAIN));
    let halves = [&bytes[..70], &bytes[..70]];
    assert_eq!(pipe.write_pieces(&halves), Err(libc::EAGAIN));
    assert_eq!(pipe.read(&mut room[100..]), Ok(libc::PIPE_BUF - 100));
    assert_eq!(ready(fd), libc::POLLOUT);
    assert_eq!(pipe.write(&bytes[..libc::PIPE_BUF]), Ok(libc::PIPE_BUF));
    assert_eq!(ready(fd), 0);
    assert_eq!(pipe.read(&mut room), Ok(libc::PIPE_BUF));
    assert_eq!(pipe.write_pieces(&halves), Ok(140));
    // A piece of memory that cannot be read: nothing is written.
    let pipe = Pipe::new(libc::O_NONBLOCK);
    // SAFETY: the call is refused, whatever it reads.
    let nowhere = unsafe { libc::write(pipe.writer.as_raw_fd(), 8 as *const _, 600) };
    assert_eq!((nowhere, errno()), (-1, libc::EFAULT));
    assert_eq!(pipe.read(&mut room), Err(libc::EAGAIN));
}

/// Bytes that cannot be given to a reader stay where they are.
fn reads_that_fail_lose_nothing() {
    let pipe = Pipe::new(libc::O_NONBLOCK);
    let bytes: Vec<u8> = (0..6000_u16).map(|number| number as u8).collect();
    assert_eq!(pipe.write(&bytes), Ok(6000));
    // SAFETY: the call is refused, whatever it would write.
    let nowhere = unsafe { libc::read(pipe.reader.as_raw_fd(), 8 as *mut _, 6000) };
    assert_eq!((nowhere, errno()), (-1, libc::EFAULT));
    let mut room = [0; 7000];
    assert_eq!(pipe.read(&mut room), Ok(6000));
    assert!(room[..6000] == bytes);
}

/// Writers of one pipe write records, in one piece and in three; each comes out in one piece.
fn short_writes_do_not_mix() {
    const WRITERS: u8 = 4;
    const RECORDS: usize = 150;
    for record in [libc::PIPE_BUF, 3000, 513] {
        let pipe = Pipe::new(0);
        let children = (1..=WRITERS).map(|number| {
            Child::start(|| {
                let bytes = vec![number; record];
                let thirds: Vec<_> = bytes.chunks(record.div_ceil(3)).collect();
                let is_whole = |turn: usize| match turn % 2 {
                    0 => pipe.write(&bytes) == Ok(record),
                    _ => pipe.write_pieces(&thirds) == Ok(record),
                };
                i32::from(!(0..RECORDS).all(is_whole))
            })
        });
        let children: Vec<_> = children.collect();
        let Pipe { reader, writer } = pipe;
        drop(writer);
        let mut reader = std::fs::File::from(reader);
        let mut bytes = vec![0; record];
        for turn in 0..RECORDS * usize::from(WRITERS) {
            reader.read_exact(&mut bytes).unwrap();
            let is_one = bytes.iter().all(|&byte| byte == bytes[0]);
            assert!(is_one, "record {turn} of {record} bytes is mixed");
        }
        assert_eq!(reader.read(&mut bytes).unwrap(), 0);
        for child in children {
            assert_eq!(child.unwrap().wait().unwrap(), End::Exited(0));
        }
    }
}

/// Readers that wait for one pipe: who finds it empty again waits on, and does not take that for the end.
fn readers_do_not_see_an_end_too_early() {
    const READERS: usize = 4;
    const BYTES: usize = 500;
    let (bytes, ready, counts) = (Pipe::new(0), event(0, 0), Pipe::new(0));
    let Pipe { reader, writer } = bytes;
    let children = [0; READERS].map(|_| {
        Child::start(|| {
            // SAFETY: the child's own copy of the descriptor, which it does not use again.
            unsafe { libc::close(writer.as_raw_fd()) };
            let (mut count, mut byte) = (0_u16, [0]);
            // SAFETY: one byte.
            while unsafe { libc::read(reader.as_raw_fd(), byte.as_mut_ptr().cast(), 1) } == 1 {
                count += 1;
                if add(&ready, 1).is_err() {
                    return 1;
                }
            }
            i32::from(counts.write(&count.to_ne_bytes()) != Ok(2))
        })
    });
    let mut writer = std::io::PipeWriter::from(writer);
    for _ in 0..BYTES {
        writer.write_all(b"x").unwrap();
        // It has been read, so all wait again, or soon will.
        assert_eq!(take(&ready), Ok(1));
    }
    // Time for one that has seen an end to say so.
    std::thread::sleep(Duration::from_millis(5));
    let mut count = [0; 2];
    let mut entry = libc::pollfd {
        fd: counts.reader.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one entry.
    let ended = unsafe { libc::poll(&mut entry, 1, 0) };
    assert_eq!(ended, 0, "a reader has seen an end");
    drop(writer);
    let mut total = 0;
    for child in children {
        assert_eq!(child.unwrap().wait().unwrap(), End::Exited(0));
        assert_eq!(counts.read(&mut count), Ok(2));
        total += usize::from(u16::from_ne_bytes(count));
    }
    assert_eq!(total, BYTES);
}

fn shared_memory_is_one_memory() {
    let region = Region::shared(5).unwrap();
    region.word(0, 0).store(1, Relaxed);
    let count = |from: u64| {
        for _ in 0..2000 {
            region.word(0, 0).fetch_add(1, Relaxed);
        }
        // Pages that neither has touched before the fork.
        region.word(from as usize, 3).store(from, Relaxed);
    };
    let children = [1, 2, 3].map(|number| {
        Child::start(|| {
            count(number);
            0
        })
    });
    count(4);
    for child in children {
        assert_eq!(child.unwrap().wait().unwrap(), End::Exited(0));
    }
    assert_eq!(region.word(0, 0).load(Relaxed), 8001);
    assert!((1..5).all(|page| region.word(page, 3).load(Relaxed) == page as u64));
    region.discard(5).unwrap();
    let kept = region.word(4, 3).load(Relaxed);
    assert_eq!(kept, 4, "the memory keeps what a process forgets");
}

fn futex(word: &AtomicU64, operation: i32, value: u32) -> i64 {
    let for_ever = std::ptr::null::<libc::timespec>();
    // SAFETY: the low half of a word of ours, and no timeout.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, value, for_ever) }
}

/// Waits until the word is at least `wanted`, and says who looks.
fn wait_for_value(word: &AtomicU64, wanted: u64) {
    loop {
        let value = word.load(Acquire);
        if value >= wanted {
            return;
        }
        futex(word, libc::FUTEX_WAIT, value as u32);
    }
}

fn raise(word: &AtomicU64, value: u64) {
    word.store(value, Release);
    futex(word, libc::FUTEX_WAKE, i32::MAX as u32);
}

fn futexes_work_across_processes() {
    let region = Region::shared(1).unwrap();
    let (ping, pong) = (region.word(0, 0), region.word(0, 8));
    let child = Child::start(|| {
        for turn in 1..=TURNS {
            wait_for_value(ping, turn);
            raise(pong, turn);
        }
        0
    });
    for turn in 1..=TURNS {
        raise(ping, turn);
        wait_for_value(pong, turn);
    }
    assert_eq!(child.unwrap().wait().unwrap(), End::Exited(0));
}

fn main() -> ExitCode {
    checks::run(
        "t_eventfd",
        &checks::named![
            counters_add_up,
            semaphores_give_one_at_a_time,
            bad_calls_are_refused,
            processes_wait_for_each_other,
            writers_wait_for_room,
            pipes_end_with_their_last_writer,
            short_writes_are_whole_or_refused,
            reads_that_fail_lose_nothing,
            short_writes_do_not_mix,
            readers_do_not_see_an_end_too_early,
            shared_memory_is_one_memory,
            futexes_work_across_processes,
        ],
    )
}
