//! The steps of a random program: each is one call, or accesses, whose outcome all kernels must agree about.

use std::fmt::Write as _;
use std::io;
use std::os::fd::AsRawFd;

use fastrand::Rng;

use super::arena::{self, Access, access};
use super::descriptors::{CONSTANT_BYTES, Descriptors};
use crate::region::PAGE_BYTES;

/// Most pages of the file, and of the heap.
const FILE_PAGES: usize = 16;
const HEAP_PAGES: usize = 6;
/// `ret`.
const RET: u8 = 0xc3;

/// Rights of a mapping. Where there is execute-only memory, it may not be read: that depends on the processor.
fn rights(random: &mut Rng) -> i32 {
    let read_write = libc::PROT_READ | libc::PROT_WRITE;
    match random.u8(..16) {
        0..8 => read_write,
        _ => match random.i32(0..8) {
            libc::PROT_EXEC => libc::PROT_NONE,
            // What may be written but not read depends on who asks.
            rights if rights & libc::PROT_WRITE != 0 => rights | libc::PROT_READ,
            rights => rights,
        },
    }
}

/// What a call returned: a number, or the number of an error.
fn outcome(result: i64) -> String {
    match result {
        -1 => error(&io::Error::last_os_error()),
        value => arena::name(value as usize),
    }
}

fn error(error: &io::Error) -> String {
    format!("error {}", error.raw_os_error().unwrap_or(0))
}

fn counted(result: io::Result<usize>) -> String {
    match result {
        Ok(count) => count.to_string(),
        Err(failed) => error(&failed),
    }
}

/// A system call on memory of the arena, to which Rust never refers.
fn call(number: libc::c_long, arguments: [usize; 6]) -> i64 {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: whatever the call does to the arena, no reference leads there; all callers name addresses of the arena, or
    // none of the program's.
    unsafe { libc::syscall(number, a, b, c, d, e, f) }
}

/// Maps the pages around some of the borders, which a program begins with. There are no page tables yet where nothing is.
pub fn begin(random: &mut Rng, descriptors: &Descriptors) -> String {
    let bytes = arena::PAGES * PAGE_BYTES;
    let mut text = String::new();
    for border in 0..arena::BORDERS {
        if random.u8(..3) > 0 {
            text += &map_at(random, descriptors, arena::page(border, 0), bytes);
        }
    }
    text
}

/// Makes a step; what it was and what came of it.
pub fn make(random: &mut Rng, descriptors: &Descriptors) -> io::Result<String> {
    Ok(match random.u8(..64) {
        0..11 => map(random, descriptors),
        11..14 => plain(random, "munmap", libc::SYS_munmap, |_| 0),
        14..19 => protect(random),
        19..22 => plain(random, "madvise", libc::SYS_madvise, advice(descriptors)),
        22..24 => plain(random, "msync", libc::SYS_msync, |random| random.usize(..9)),
        24..29 => remap(random, descriptors),
        29..38 => accesses(random, "store", |random| Access::Store(random.u8(..))),
        38..43 => accesses(random, "load", |_| Access::Load),
        43..45 => run(random),
        45..48 => resize(random, descriptors),
        48..50 => transfer(random, descriptors, true),
        50..53 => transfer(random, descriptors, false),
        53..55 => vectors(random, descriptors)?,
        55..57 => pipe(random, descriptors)?,
        57..59 => heap(random),
        _ => futex(random),
    })
}

fn advice(descriptors: &Descriptors) -> fn(&mut Rng) -> usize {
    // NORMAL WILLNEED COLD PAGEOUT, and none; DONTNEED.
    match descriptors.has_copies {
        true => |random| *random.choice(&[0, 3, 20, 21, 99]).unwrap_or(&0),
        false => |random| *random.choice(&[0, 3, 4, 4, 4, 20, 21, 99]).unwrap_or(&4),
    }
}

/// A call that takes an address, a length, and perhaps one thing more.
fn plain(
    random: &mut Rng,
    name: &str,
    number: libc::c_long,
    third: fn(&mut Rng) -> usize,
) -> String {
    let (address, bytes) = arena::range(random);
    let third = third(random);
    let result = outcome(call(number, [address, bytes, third, 0, 0, 0]));
    format!(
        "{name} {} {bytes:x} {third}: {result}",
        arena::name(address)
    )
}

/// Changes rights of a range without a hole: before one, Linux changes what it finds.
fn protect(random: &mut Rng) -> String {
    let (address, bytes) = arena::range(random);
    let rights = rights(random);
    let name = arena::name(address);
    let probed = call(
        libc::SYS_msync,
        [address, bytes, libc::MS_ASYNC as usize, 0, 0, 0],
    );
    if probed != 0 {
        return format!("hole {name} {bytes:x}: {}", outcome(probed));
    }
    let result = outcome(call(
        libc::SYS_mprotect,
        [address, bytes, rights as usize, 0, 0, 0],
    ));
    format!("mprotect {name} {bytes:x} {rights}: {result}")
}

/// Maps memory of every kind.
fn map(random: &mut Rng, descriptors: &Descriptors) -> String {
    let (address, bytes) = arena::range(random);
    map_at(random, descriptors, address, bytes)
}

fn map_at(random: &mut Rng, descriptors: &Descriptors, address: usize, bytes: usize) -> String {
    let fixed = match random.u8(..8) {
        0 => libc::MAP_FIXED_NOREPLACE,
        _ => libc::MAP_FIXED,
    };
    let populate = [0, 0, 0, libc::MAP_POPULATE][random.usize(..4)];
    let shared = random.usize(..FILE_PAGES);
    // Whether a copy's pages behind the end exist is nobody's business.
    let whole = (CONSTANT_BYTES.saturating_sub(bytes) / PAGE_BYTES).min(FILE_PAGES);
    let (kind, file, offset) = match random.u8(..8) {
        0..4 => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0),
        4 => (libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1, 0),
        5 if descriptors.has_copies && bytes < CONSTANT_BYTES => {
            let file = descriptors.constant.as_raw_fd();
            (libc::MAP_PRIVATE, file, random.usize(..=whole) * PAGE_BYTES)
        }
        _ => (
            libc::MAP_SHARED,
            descriptors.file.as_raw_fd(),
            shared * PAGE_BYTES,
        ),
    };
    let rights = rights(random);
    let flags = fixed | populate | kind;
    let arguments = [
        address,
        bytes,
        rights as usize,
        flags as usize,
        file as usize,
        offset,
    ];
    let result = outcome(call(libc::SYS_mmap, arguments));
    let place = arena::name(address);
    let what = match file {
        -1 if kind & libc::MAP_SHARED != 0 => "shared",
        file if file == descriptors.constant.as_raw_fd() => "constant",
        _ => "",
    };
    format!("mmap {place} {bytes:x} {rights} {flags:x} {what}{offset:x}: {result}")
}

/// Moves or resizes a page, or what was just mapped: those are parts of one area on every kernel.
fn remap(random: &mut Rng, descriptors: &Descriptors) -> String {
    let mut text = String::new();
    // What is behind a page in what it is a part of differs, where that is neither fresh memory nor a file.
    let mut may_grow = false;
    let (from, bytes) = match random.bool() {
        true => (arena::stretch(random).0, PAGE_BYTES),
        false => {
            let (first, count) = arena::stretch(random);
            text = map_at(random, descriptors, first, count * PAGE_BYTES);
            for at in 0..count {
                let _refused = access(first + at * PAGE_BYTES + at, Access::Store(random.u8(..)));
            }
            may_grow = !["constant", "shared", "error"]
                .iter()
                .any(|word| text.contains(word));
            let skipped = random.usize(..count);
            let rest = match text.contains("error") {
                true => 1,
                false => 1 + random.usize(..count - skipped),
            };
            (first + skipped * PAGE_BYTES, rest * PAGE_BYTES)
        }
    };
    let (to, pages) = arena::stretch(random);
    let new_bytes = match random.u8(..4) {
        _ if !may_grow && pages * PAGE_BYTES > bytes => bytes,
        0 => bytes,
        1 => pages * PAGE_BYTES - random.usize(..PAGE_BYTES),
        _ => pages * PAGE_BYTES,
    };
    let may_move = libc::MREMAP_MAYMOVE;
    let fixed = may_move | libc::MREMAP_FIXED;
    let flags = *random
        .choice(&[0, may_move, fixed, fixed, fixed, libc::MREMAP_FIXED])
        .unwrap_or(&0);
    let result = call(
        libc::SYS_mremap,
        [from, bytes, new_bytes, flags as usize, to, 0],
    );
    let (source, target) = (arena::name(from), arena::name(to));
    let _ = write!(
        text,
        " mremap {source} {bytes:x} to {target} {new_bytes:x} {flags}: {}",
        match result {
            // Which of several errors comes first depends on Linux's version.
            -1 => "refused".to_owned(),
            moved => outcome(moved),
        }
    );
    if result > 0 && arena::name(result as usize) == "elsewhere" {
        bring_back(
            &mut text,
            result as usize,
            new_bytes.next_multiple_of(PAGE_BYTES),
        );
    }
    text
}

/// A kernel has put a mapping where it liked: to a place that all know.
fn bring_back(text: &mut String, at: usize, bytes: usize) {
    let flags = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as usize;
    let back = call(
        libc::SYS_mremap,
        [at, bytes, bytes, flags, arena::page(0, 0), 0],
    );
    let _ = write!(text, " back: {}", outcome(back));
    let gone = call(libc::SYS_munmap, [at, bytes, 0, 0, 0, 0]);
    let _ = write!(text, " {}", outcome(gone));
}

/// Accesses each page of a stretch.
fn accesses(random: &mut Rng, name: &str, how: fn(&mut Rng) -> Access) -> String {
    let (first, count) = arena::stretch(random);
    let mut text = name.to_owned();
    for at in 0..count {
        let address = first + at * PAGE_BYTES + random.usize(..PAGE_BYTES);
        let _ = match access(address, how(random)) {
            Ok(value) => write!(text, " {}={value}", arena::name(address)),
            Err(signal) => write!(text, " {signal}"),
        };
    }
    text
}

/// Writes an instruction, and runs it.
fn run(random: &mut Rng) -> String {
    let address = arena::stretch(random).0 + random.usize(..PAGE_BYTES);
    let written = access(address, Access::Store(RET))
        .err()
        .unwrap_or_default();
    let result = match access(address, Access::Load) {
        Ok(RET) => access(address, Access::Run).err().unwrap_or_default(),
        _ => "not there".to_owned(),
    };
    format!("run {}: {written} {result}", arena::name(address))
}

fn resize(random: &mut Rng, descriptors: &Descriptors) -> String {
    let size = match random.u8(..3) {
        0 => random.usize(..FILE_PAGES) * PAGE_BYTES,
        _ => random.usize(..FILE_PAGES * PAGE_BYTES),
    };
    let result = descriptors
        .clear_behind_the_end()
        .and_then(|()| descriptors.file.set_len(size as u64));
    let file_size = descriptors.file.metadata().map(|is| is.len() as usize);
    format!(
        "ftruncate {size:x}: {} {}",
        counted(result.map(|()| 0)),
        counted(file_size)
    )
}

/// Reads or writes the file at a place.
fn transfer(random: &mut Rng, descriptors: &Descriptors, is_writing: bool) -> String {
    let (first, pages) = arena::stretch(random);
    let at = first + random.usize(..PAGE_BYTES);
    let bytes = random.usize(..pages * PAGE_BYTES);
    let offset = random.usize(..FILE_PAGES * PAGE_BYTES);
    let refuses = |at: &usize| match access(*at, Access::Load) {
        Ok(old) if !is_writing => access(*at, Access::Store(old)).is_err(),
        loaded => loaded.is_err(),
    };
    let refused = (at..at + bytes)
        .step_by(PAGE_BYTES)
        .chain([at + bytes])
        .find(refuses);
    if let Some(refused) = refused.filter(|_| bytes > 0) {
        // How far such a call comes is each kernel's choice.
        return format!("{} may not be used", arena::name(refused));
    }
    let (name, transfer): (_, fn(&Descriptors, usize, usize, usize) -> _) = match is_writing {
        true => ("pwrite", Descriptors::pwrite),
        false => ("pread", Descriptors::pread),
    };
    let settled = descriptors.clear_behind_the_end();
    let result = counted(settled.and_then(|()| transfer(descriptors, at, bytes, offset)));
    format!("{name} {} {bytes:x} {offset:x}: {result}", arena::name(at))
}

/// A few pieces of a page or less.
fn pieces(random: &mut Rng) -> Vec<(usize, usize)> {
    let mut piece = || {
        let at = arena::stretch(random).0 + random.usize(..PAGE_BYTES / 2);
        (at, random.usize(..PAGE_BYTES / 2))
    };
    [piece(), piece(), piece()].to_vec()
}

/// From pieces of memory to others.
fn vectors(random: &mut Rng, descriptors: &Descriptors) -> io::Result<String> {
    let (from, to) = (pieces(random), pieces(random));
    let ends = from
        .iter()
        .chain(&to)
        .flat_map(|&(at, bytes)| [at, at + bytes]);
    if ends
        .map(|at| access(at, Access::Store(1)))
        .any(|stored| stored.is_err())
    {
        // How far such a call comes is each kernel's choice.
        return Ok("vectors that may not be used".to_owned());
    }
    let sent = descriptors.gather(&from);
    let mut received = Ok(0);
    if sent.is_ok() {
        received = descriptors.scatter(&to);
    }
    descriptors.drain()?;
    Ok(format!(
        "writev {from:x?}: {} readv {to:x?}: {}",
        counted(sent),
        counted(received)
    ))
}

/// From memory to the pipe and back to other memory.
fn pipe(random: &mut Rng, descriptors: &Descriptors) -> io::Result<String> {
    let (from, to) = (arena::stretch(random).0, arena::stretch(random).0);
    let bytes = random.usize(..PAGE_BYTES);
    let sent = descriptors.send(from, bytes);
    let mut received = Ok(0);
    if sent.is_ok() {
        received = descriptors.receive(to, bytes);
    }
    descriptors.drain()?;
    let (source, target) = (arena::name(from), arena::name(to));
    Ok(format!(
        "write {source} {bytes:x}: {} read {target}: {}",
        counted(sent),
        counted(received)
    ))
}

/// Moves the heap's end away, looks at what is there, and back: nobody else uses it meanwhile.
fn heap(random: &mut Rng) -> String {
    let mut text = "brk".to_owned();
    let old = call(libc::SYS_brk, [0; 6]) as usize;
    let start = old.next_multiple_of(PAGE_BYTES);
    let most = HEAP_PAGES * PAGE_BYTES;
    for _ in 0..3 {
        let wanted = start + random.usize(..most);
        let end = call(libc::SYS_brk, [wanted, 0, 0, 0, 0, 0]) as usize;
        let _ = write!(text, " {:x}:", end.wrapping_sub(start));
        for at in 0..HEAP_PAGES {
            let address = start + at * PAGE_BYTES + random.usize(..PAGE_BYTES);
            let how = match random.bool() {
                true => Access::Load,
                false => Access::Store(random.u8(..)),
            };
            let _ = match access(address, how) {
                Ok(value) => write!(text, " {value}"),
                Err(signal) => write!(text, " {signal}"),
            };
        }
    }
    let back = call(libc::SYS_brk, [old, 0, 0, 0, 0, 0]) as usize;
    let _ = write!(text, " {}", back == old);
    text
}

/// Waits that end at once, and wakes of nobody.
fn futex(random: &mut Rng) -> String {
    let unaligned = usize::from(random.u8(..16) == 0);
    let at = arena::stretch(random).0 + random.usize(..PAGE_BYTES / 4) * 4 + unaligned;
    let operation = *random
        .choice(&[
            libc::FUTEX_WAIT,
            libc::FUTEX_WAKE,
            libc::FUTEX_CMP_REQUEUE,
            77,
        ])
        .unwrap_or(&0);
    let private = [0, libc::FUTEX_PRIVATE_FLAG][random.usize(..2)];
    let second = arena::stretch(random).0;
    let is_read_only =
        |at| access(at, Access::Load).is_ok_and(|old| access(at, Access::Store(old)).is_err());
    if is_read_only(at) || is_read_only(second) {
        // Linux refuses some of these.
        return format!(
            "futex {} or {} is read-only",
            arena::name(at),
            arena::name(second)
        );
    }
    // A wait for a value that nothing has, but for zero now and then, whose time is over.
    let over = libc::timespec {
        tv_sec: 0,
        tv_nsec: 1,
    };
    let value = *random.choice(&[0, 0x1234_5678]).unwrap_or(&0);
    let timeout = match operation {
        libc::FUTEX_WAIT => &raw const over as usize,
        _ => 1,
    };
    let operation = (operation | private) as usize;
    let result = outcome(call(
        libc::SYS_futex,
        [at, operation, value, timeout, second, 0x1234_5678],
    ));
    format!("futex {} {operation} {value}: {result}", arena::name(at))
}
