//! Files in memory: the calls that make, cut, sync and remove them, and what their mappings show.

use std::ffi::CStr;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::process::ExitCode;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use shootdown_user::checks::{self, errno, error_of};
use shootdown_user::child::{Child, End};
use shootdown_user::machine;
use shootdown_user::memory_file;
use shootdown_user::region::{PAGE_BYTES, Region};

const PAGE: u64 = PAGE_BYTES as u64;
const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;

fn map(file: &File, bytes: usize, prot: i32, sharing: i32, offset: i64) -> Result<usize, i32> {
    let fd = file.as_raw_fd();
    // SAFETY: a new mapping where nothing is.
    let at = unsafe { libc::mmap(ptr::null_mut(), bytes, prot, sharing, fd, offset) };
    if at == libc::MAP_FAILED {
        return Err(errno());
    }
    Ok(at.expose_provenance())
}

fn unmap(at: usize, bytes: usize) {
    // SAFETY: a mapping of the caller's own, which nothing refers to.
    let status = unsafe { libc::munmap(ptr::with_exposed_provenance_mut(at), bytes) };
    assert_eq!(status, 0);
}

fn sync_range(at: usize, bytes: usize, flags: i32) -> Option<i32> {
    // SAFETY: the call changes no memory.
    match unsafe { libc::msync(ptr::with_exposed_provenance_mut(at), bytes, flags) } {
        0 => None,
        _ => Some(errno()),
    }
}

fn made(pages: u64) -> File {
    memory_file::create(c"t_file", pages * PAGE).expect("a file in memory")
}

fn word_at(file: &File, offset: u64) -> u64 {
    let mut bytes = [0; 8];
    let read = file.read_exact_at(&mut bytes, offset);
    read.expect("a word of the file");
    u64::from_ne_bytes(bytes)
}

fn names_come_and_go() {
    const PATH: &str = "/tmp/t_file";
    // The reference kernel always has it; Linux as set up by the lab has not.
    let _ignored = fs::create_dir("/tmp");
    fs::write(PATH, "first").expect("a new file");
    let longer = |text: &str| {
        let mut file = OpenOptions::new().append(true).open(PATH)?;
        file.write_all(text.as_bytes())
    };
    longer(" and more").expect("appending");
    assert_eq!(fs::read_to_string(PATH).expect("it"), "first and more");
    assert_eq!(fs::metadata(PATH).expect("it").len(), 14);
    let exclusively = OpenOptions::new().write(true).create_new(true).open(PATH);
    assert_eq!(error_of(exclusively), Some(libc::EEXIST));
    let listed = fs::read_dir("/tmp").expect("the directory");
    assert!(listed.flatten().any(|entry| entry.file_name() == "t_file"));
    let mut open = File::open(PATH).expect("it");
    assert_eq!(error_of((&open).write(b"x")), Some(libc::EBADF));
    fs::remove_file(PATH).expect("its name");
    assert_eq!(error_of(fs::remove_file(PATH)), Some(libc::ENOENT));
    assert_eq!(error_of(File::open(PATH)), Some(libc::ENOENT));
    let mut text = String::new();
    open.read_to_string(&mut text).expect("the open file");
    assert_eq!(text, "first and more");
    let long = format!("/tmp/{}", "n".repeat(256));
    assert_eq!(error_of(File::create(long)), Some(libc::ENAMETOOLONG));
    let inside = File::create("/tmp/nowhere/file");
    assert_eq!(error_of(inside), Some(libc::ENOENT));
}

/// A directory for these checks alone: `/tmp` itself on the reference kernel, which has none below it.
fn many_files_directory() -> &'static str {
    match machine::is_reference_kernel() {
        true => "/tmp",
        false => {
            let _ignored = fs::create_dir_all("/tmp/t_file_many");
            "/tmp/t_file_many"
        }
    }
}

fn create_and_remove(names: &[String]) -> Duration {
    let start = Instant::now();
    for name in names {
        drop(File::create_new(name).expect("a new file"));
    }
    for name in names {
        fs::remove_file(name).expect("its name");
    }
    start.elapsed()
}

/// Hundreds of files are made, found and removed; how long some take alone, and beside the others, is said.
fn many_names_are_made_and_removed() {
    let directory = many_files_directory();
    let names = |kind: &str, count: usize| -> Vec<String> {
        let name = |number| format!("{directory}/{kind}{number:04}");
        (0..count).map(name).collect()
    };
    // The best of some: others use the machine, too.
    let best = || {
        let few = names("m", 20);
        let turns = (0..8).map(|_| create_and_remove(&few));
        turns.min().expect("some turns")
    };
    let alone = best();
    let others = names("n", 900);
    for other in &others {
        drop(File::create_new(other).expect("a new file"));
    }
    let crowded = best();
    let sizes = others.iter().map(fs::metadata);
    assert!(sizes.flatten().all(|about| about.len() == 0));
    for other in &others {
        fs::remove_file(other).expect("its name");
    }
    println!("t_file: 20 files made and removed in {alone:?}, in {crowded:?} beside 900");
}

/// What is there all the while is listed once, whatever comes and goes meanwhile.
fn directories_are_listed_while_files_come_and_go() {
    let directory = many_files_directory();
    let path = |number: usize| format!("{directory}/{number:03}");
    let make = |number: usize| drop(File::create_new(path(number)).expect("a new file"));
    let remove = |number: usize| fs::remove_file(path(number)).expect("its name");
    const FILES: usize = 90;
    (0..FILES).for_each(make);
    let listed = File::open(directory).expect("the directory");
    let mut seen = Vec::new();
    let mut offsets = Vec::new();
    // A few entries at a time.
    while let entries = entries(&listed, 120)
        && !entries.is_empty()
    {
        for (name, next) in entries {
            offsets.push(next);
            if name.len() == 3
                && let Ok(number) = name.parse::<usize>()
            {
                seen.push(number);
                // Every third goes as soon as it has been seen, and another comes.
                if number < FILES && number % 3 == 0 {
                    remove(number);
                    make(FILES + number);
                }
            }
        }
    }
    let kept = (0..FILES).filter(|number| number % 3 != 0);
    for number in kept {
        let times = seen.iter().filter(|&&it| it == number).count();
        assert_eq!(times, 1, "file {number} is listed {times} times");
    }
    seen.sort_unstable();
    assert!(seen.is_sorted_by(|a, b| a < b), "one is listed twice");
    // Going on behind any entry shows what was behind it.
    let again = |offset: i64| {
        let at = (&listed).seek(SeekFrom::Start(offset as u64));
        at.expect("an offset of an entry");
        entries(&listed, 4096).len()
    };
    let start = || (&listed).rewind().expect("the start");
    start();
    let all = entries(&listed, 32 << 10);
    assert_eq!(again(all[all.len() - 1].1), 0);
    assert_eq!(again(all[all.len() - 4].1), 3);
    start();
    let fd = listed.as_raw_fd();
    let mut bytes = [0_u8; 8];
    // SAFETY: room for eight bytes.
    let refused = unsafe { libc::syscall(libc::SYS_getdents64, fd, bytes.as_mut_ptr(), 8) };
    assert_eq!((refused, errno()), (-1, libc::EINVAL));
    (0..2 * FILES).for_each(|number| drop(fs::remove_file(path(number))));
    let left = fs::read_dir(directory).expect("the directory").flatten();
    assert_eq!(left.filter(|entry| entry.file_name().len() == 3).count(), 0);
}

/// Names and offsets of the next entries, as many as have room in so many bytes.
fn entries(directory: &File, room: usize) -> Vec<(String, i64)> {
    let mut bytes = vec![0_u8; room];
    let fd = directory.as_raw_fd();
    // SAFETY: as much room as the vector has.
    let count = unsafe { libc::syscall(libc::SYS_getdents64, fd, bytes.as_mut_ptr(), room) };
    let count = usize::try_from(count).expect("entries");
    let mut rest = &bytes[..count];
    let mut found = Vec::new();
    while !rest.is_empty() {
        let next = i64::from_ne_bytes(rest[8..16].try_into().expect("eight bytes"));
        let len = u16::from_ne_bytes([rest[16], rest[17]]);
        let (entry, behind) = rest.split_at(usize::from(len));
        let name = CStr::from_bytes_until_nul(&entry[19..]).expect("a name");
        found.push((name.to_str().expect("text").to_owned(), next));
        rest = behind;
    }
    found
}

fn sizes_change_and_holes_are_zero() {
    let mut file = made(0);
    file.write_all(b"abc").expect("three bytes");
    file.set_len(3 * PAGE + 5).expect("longer");
    assert_eq!(word_at(&file, 2 * PAGE), 0);
    let written = file.write_all_at(b"xyz", 3 * PAGE + 4);
    written.expect("beyond the end");
    assert_eq!(file.seek(SeekFrom::End(0)).expect("the end"), 3 * PAGE + 7);
    let mut bytes = Vec::new();
    file.rewind().expect("the start");
    file.read_to_end(&mut bytes).expect("all");
    assert_eq!(bytes.len() as u64, 3 * PAGE + 7);
    assert!(bytes.starts_with(b"abc\0") && bytes.ends_with(b"\0xyz"));
    file.set_len(1).expect("shorter");
    file.set_len(4).expect("longer");
    assert_eq!(fs_bytes(&file, 4), b"a\0\0\0");
    // Linux's limit is the largest offset there is.
    let stored = memory_file::stored(&file).expect("the stored copy");
    if stored.is_some() {
        assert_eq!(error_of(file.set_len(1 << 62)), Some(libc::EFBIG));
        assert_eq!(error_of(file.write_at(b"x", 1 << 62)), Some(libc::EFBIG));
    }
}

fn fs_bytes(file: &File, len: usize) -> Vec<u8> {
    let mut bytes = vec![7; len];
    file.read_exact_at(&mut bytes, 0).expect("bytes");
    bytes
}

fn everybody_has_the_same_pages() {
    let file = made(4);
    let (first, second) = (region(&file, 4), region(&file, 4));
    first.word(1, 0).store(1, Relaxed);
    assert_eq!(second.word(1, 0).load(Relaxed), 1);
    let written = file.write_all_at(&2u64.to_ne_bytes(), PAGE);
    written.expect("a word");
    assert_eq!(first.word(1, 0).load(Relaxed), 2);
    let child = Child::start(|| {
        second.word(2, 3).store(3, Relaxed);
        i32::from(first.word(1, 0).load(Relaxed) != 2)
    });
    let end = child.expect("a child").wait().expect("its end");
    assert_eq!(end, End::Exited(0));
    assert_eq!(first.word(2, 3).load(Relaxed), 3);
    assert_eq!(word_at(&file, 2 * PAGE + 24), 3);
    let (private, offset) = (libc::MAP_PRIVATE, PAGE as i64);
    let private = map(&file, PAGE_BYTES, READ_WRITE, private, offset);
    let private = private.expect("a private mapping");
    let place = ptr::with_exposed_provenance_mut::<u64>(private);
    // SAFETY: a word of the private mapping.
    assert_eq!(unsafe { place.read_volatile() }, 2);
    // SAFETY: as above.
    unsafe { place.write_volatile(9) };
    assert_eq!(first.word(1, 0).load(Relaxed), 2);
    unmap(private, PAGE_BYTES);
}

/// Private mappings show the file's pages, but those that they have written to, and nothing beyond its end.
fn private_pages_are_the_files_until_they_are_written_to() {
    let file = made(4);
    let put = |page: u64, value: u64| {
        let written = file.write_all_at(&value.to_ne_bytes(), page * PAGE);
        written.expect("a word");
    };
    (0..4).for_each(|page| put(page, page + 1));
    let at = map(&file, 6 * PAGE_BYTES, READ_WRITE, libc::MAP_PRIVATE, 0).expect("a mapping");
    let word = |page: usize| {
        let place = ptr::with_exposed_provenance_mut(at + page * PAGE_BYTES);
        // SAFETY: an aligned word of the mapping, which is used through such references only.
        unsafe { AtomicU64::from_ptr(place) }
    };
    let words = || [0, 1, 2].map(|page| word(page).load(Relaxed));
    assert_eq!(words(), [1, 2, 3]);
    word(0).store(10, Relaxed);
    (0..3).for_each(|page| put(page, 20 + page));
    assert_eq!(words(), [10, 21, 22]);
    assert_eq!(word_at(&file, 0), 20);
    let in_child = |work: &dyn Fn() -> u64| {
        let child = Child::start(|| work() as i32).expect("a child");
        child.wait().expect("its end")
    };
    let writing = in_child(&|| word(1).swap(30, Relaxed) + word(1).load(Relaxed));
    assert_eq!(writing, End::Exited(51));
    assert_eq!(words(), [10, 21, 22]);
    let place = ptr::with_exposed_provenance_mut(at);
    // SAFETY: the words are the file's again.
    let status = unsafe { libc::madvise(place, 4 * PAGE_BYTES, libc::MADV_DONTNEED) };
    assert_eq!((status, words()), (0, [20, 21, 22]));
    word(2).store(40, Relaxed);
    file.set_len(2 * PAGE).expect("shorter");
    for page in [2, 3, 5] {
        let gone = in_child(&|| word(page).load(Relaxed));
        assert_eq!(gone, End::Killed(libc::SIGBUS), "page {page}");
    }
    file.set_len(4 * PAGE).expect("longer");
    assert_eq!(words(), [20, 21, 0]);
    unmap(at, 6 * PAGE_BYTES);
}

fn region(file: &File, pages: usize) -> Region {
    Region::of_file(file, pages).expect("a mapping")
}

fn a_read_ends_where_the_buffer_does() {
    let from = made(2);
    from.write_all_at(&[6; 2 * PAGE_BYTES], 0)
        .expect("two pages");
    let region = region(&made(1), 2);
    let read_to = |page: usize, word: usize| {
        let place = ptr::from_ref(region.word(page, word)).cast_mut().cast();
        // SAFETY: the kernel writes to the mapping, as far as it is there.
        unsafe { libc::pread(from.as_raw_fd(), place, PAGE_BYTES, 3) }
    };
    assert_eq!(read_to(0, 500), PAGE_BYTES as isize - 500 * 8);
    assert_eq!(region.word(0, 511).load(Relaxed), 0x0606_0606_0606_0606);
    assert_eq!(read_to(1, 0), -1);
    assert_eq!(errno(), libc::EFAULT);
}

/// How a child ends that reads the page.
fn reader(region: &Region, page: usize) -> End {
    let child = Child::start(|| region.word(page, 0).load(Relaxed) as i32);
    child.expect("a child").wait().expect("its end")
}

fn nothing_is_there_beyond_the_end() {
    let file = made(3);
    let region = region(&file, 5);
    for page in 0..3 {
        region.word(page, 0).store(page as u64 + 1, Relaxed);
    }
    assert_eq!(reader(&region, 2), End::Exited(3));
    assert_eq!(reader(&region, 3), End::Killed(libc::SIGBUS));
    file.set_len(PAGE + 1).expect("shorter");
    assert_eq!(reader(&region, 1), End::Exited(2), "its end is in the page");
    assert_eq!(reader(&region, 2), End::Killed(libc::SIGBUS));
    let mut pipe = [0; 2];
    // SAFETY: room for two numbers.
    assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
    // A system call is told instead.
    let place = ptr::from_ref(region.word(2, 0)).cast();
    // SAFETY: the kernel reads from the mapping, or refuses.
    assert_eq!(unsafe { libc::write(pipe[1], place, 8) }, -1);
    assert_eq!(errno(), libc::EFAULT);
    file.set_len(3 * PAGE).expect("longer");
    assert_eq!(reader(&region, 2), End::Exited(0), "and zero");
    pipe.into_iter().for_each(|end| {
        // SAFETY: descriptors of this function.
        unsafe { libc::close(end) };
    });
}

fn rights_are_those_of_the_descriptor() {
    let _ignored = fs::create_dir("/tmp");
    fs::write("/tmp/t_rights", [1; 64]).expect("a file");
    let reading = File::open("/tmp/t_rights").expect("the file");
    let writing = OpenOptions::new().write(true).open("/tmp/t_rights");
    let writing = writing.expect("the file");
    fs::remove_file("/tmp/t_rights").expect("its name");
    let map = |file, prot, offset| map(file, PAGE_BYTES, prot, libc::MAP_SHARED, offset);
    assert_eq!(map(&reading, READ_WRITE, 0), Err(libc::EACCES));
    assert_eq!(map(&writing, libc::PROT_READ, 0), Err(libc::EACCES));
    assert_eq!(map(&reading, libc::PROT_READ, 17), Err(libc::EINVAL));
    let at = map(&reading, libc::PROT_READ, 0).expect("a mapping");
    let place = ptr::with_exposed_provenance_mut(at);
    // SAFETY: a mapping of this function's own, which nothing refers to.
    let status = unsafe { libc::mprotect(place, PAGE_BYTES, READ_WRITE) };
    assert_eq!((status, errno()), (-1, libc::EACCES));
    unmap(at, PAGE_BYTES);
    assert_eq!(error_of(reading.set_len(3)), Some(libc::EINVAL));
}

fn mappings_keep_what_their_flags_promise() {
    let file = made(2);
    let map = |file: &File, flags| map(file, PAGE_BYTES, libc::PROT_READ, flags, 0);
    const UNKNOWN: i32 = 1 << 24;
    let at = map(&file, libc::MAP_SHARED | UNKNOWN).expect("as ever, unknown flags are ignored");
    unmap(at, PAGE_BYTES);
    let validated = libc::MAP_SHARED_VALIDATE;
    let at = map(&file, validated | libc::MAP_POPULATE).expect("known flags");
    unmap(at, PAGE_BYTES);
    let refused = map(&file, validated | UNKNOWN);
    assert_eq!(refused, Err(libc::EOPNOTSUPP));
    let anonymous = map(&file, validated | libc::MAP_ANONYMOUS);
    assert_eq!(anonymous, Err(libc::EINVAL));
}

/// Nobody writes to a file that was opened for reading, whatever it is.
fn shared_mappings_have_no_more_rights_than_their_descriptor() {
    let program = std::env::current_exe().and_then(File::open);
    let program = program.expect("this program");
    let shared = |file: &File, prot| map(file, PAGE_BYTES, prot, libc::MAP_SHARED, 0);
    assert_eq!(shared(&program, READ_WRITE), Err(libc::EACCES));
    let zeroes = File::open("/dev/zero").expect("zeroes");
    assert_eq!(shared(&zeroes, READ_WRITE), Err(libc::EACCES));
    let at = shared(&program, libc::PROT_READ).expect("a mapping");
    let place = ptr::with_exposed_provenance_mut(at);
    // SAFETY: a mapping of this function's own, which nothing refers to.
    let status = unsafe { libc::mprotect(place, PAGE_BYTES, READ_WRITE) };
    assert_eq!((status, errno()), (-1, libc::EACCES));
    let none = libc::PROT_NONE;
    // SAFETY: as above.
    assert_eq!(unsafe { libc::mprotect(place, PAGE_BYTES, none) }, 0);
    unmap(at, PAGE_BYTES);
}

/// `mremap` of no bytes.
fn map_again(at: usize, bytes: usize, flags: i32) -> Result<usize, i32> {
    let old = ptr::with_exposed_provenance_mut(at);
    // SAFETY: a new mapping where nothing is.
    match unsafe { libc::mremap(old, 0, bytes, flags) } {
        libc::MAP_FAILED => Err(errno()),
        new => Ok(new.expose_provenance()),
    }
}

/// Shared memory can be mapped a second time from a first mapping.
fn mappings_are_doubled() {
    let may_move = libc::MREMAP_MAYMOVE;
    let byte = |at: usize| ptr::with_exposed_provenance_mut::<u8>(at);
    let anonymous = libc::MAP_ANONYMOUS;
    let file = made(2);
    for kind in [libc::MAP_SHARED, libc::MAP_SHARED | anonymous] {
        let bytes = 2 * PAGE_BYTES;
        let at = map(&file, bytes, READ_WRITE, kind, 0).expect("a mapping");
        let both = map_again(at, bytes, may_move).expect("the same pages");
        let second = map_again(at + PAGE_BYTES, PAGE_BYTES, may_move);
        let second = second.expect("the second page");
        // SAFETY: mappings of this function's own, with the right to write.
        unsafe { byte(at + PAGE_BYTES + 3).write_volatile(7) };
        for there in [both + PAGE_BYTES, second] {
            // SAFETY: as above.
            assert_eq!(unsafe { byte(there + 3).read_volatile() }, 7);
        }
        assert_eq!(map_again(at, bytes, 0), Err(libc::ENOMEM));
        assert_eq!(map_again(at + 1, bytes, may_move), Err(libc::EINVAL));
        assert_eq!(map_again(at, 0, may_move), Err(libc::EINVAL));
        unmap(at, bytes);
        // SAFETY: as above.
        assert_eq!(unsafe { byte(second + 3).read_volatile() }, 7);
        unmap(second, PAGE_BYTES);
        unmap(both, bytes);
        assert_eq!(map_again(both, bytes, may_move), Err(libc::EFAULT));
    }
    let private = map(&file, PAGE_BYTES, READ_WRITE, libc::MAP_PRIVATE, 0).expect("a copy");
    let doubled = map_again(private, PAGE_BYTES, may_move);
    assert_eq!(doubled, Err(libc::EINVAL));
    unmap(private, PAGE_BYTES);
}

fn syncs_say_what_is_wrong() {
    let file = made(2);
    let at = map(&file, 2 * PAGE_BYTES, READ_WRITE, libc::MAP_SHARED, 0).expect("a mapping");
    let (now, later) = (libc::MS_SYNC, libc::MS_ASYNC);
    let invalidate = libc::MS_INVALIDATE;
    for flags in [now, later, invalidate, now | invalidate, 0] {
        assert_eq!(sync_range(at, 2 * PAGE_BYTES, flags), None, "{flags:#x}");
    }
    assert_eq!(sync_range(at, PAGE_BYTES, now | later), Some(libc::EINVAL));
    assert_eq!(sync_range(at, PAGE_BYTES, 64), Some(libc::EINVAL));
    assert_eq!(sync_range(at + 1, PAGE_BYTES, now), Some(libc::EINVAL));
    assert_eq!(sync_range(at, 0, now), None);
    unmap(at + PAGE_BYTES, PAGE_BYTES);
    assert_eq!(sync_range(at, 2 * PAGE_BYTES, now), Some(libc::ENOMEM));
    file.sync_all().expect("all of it");
    file.sync_data().expect("the same");
    unmap(at, PAGE_BYTES);
}

/// Only where the kernel shows what syncs have stored.
fn syncs_store_what_was_written() {
    let file = made(8);
    let Some(stored) = memory_file::stored(&file).expect("the stored copy") else {
        return;
    };
    let region = region(&file, 8);
    (0..8).for_each(|page| region.word(page, 5).store(1, Relaxed));
    assert_eq!(word_at(&stored, 40), 0);
    region.sync(3).expect("three pages");
    assert_eq!(word_at(&stored, 2 * PAGE + 40), 1);
    assert_eq!(word_at(&stored, 3 * PAGE + 40), 0);
    drop(region);
    file.sync_data().expect("the rest");
    assert_eq!(word_at(&stored, 7 * PAGE + 40), 1);
    file.set_len(PAGE).expect("shorter");
    assert_eq!(stored.metadata().expect("it").len(), PAGE);
}

fn main() -> ExitCode {
    checks::run(
        "t_file",
        &checks::named![
            names_come_and_go,
            many_names_are_made_and_removed,
            directories_are_listed_while_files_come_and_go,
            sizes_change_and_holes_are_zero,
            everybody_has_the_same_pages,
            private_pages_are_the_files_until_they_are_written_to,
            nothing_is_there_beyond_the_end,
            a_read_ends_where_the_buffer_does,
            rights_are_those_of_the_descriptor,
            mappings_keep_what_their_flags_promise,
            shared_mappings_have_no_more_rights_than_their_descriptor,
            mappings_are_doubled,
            syncs_say_what_is_wrong,
            syncs_store_what_was_written,
        ],
    )
}
