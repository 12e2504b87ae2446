//! Memory at its limits: all of it, too many areas, everybody at once, and nothing lost afterwards.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use shootdown_user::checks::{self, errno};
use shootdown_user::machine;

const PAGE: usize = 4096;
const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// Maps anonymous memory; the address, or the error number.
fn map(at: usize, bytes: usize, prot: i32, extra: i32) -> Result<usize, i32> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | extra;
    // The C library would refuse some lengths itself.
    // SAFETY: fixed addresses are only ever inside mappings of the caller's own.
    let found = unsafe { libc::syscall(libc::SYS_mmap, at, bytes, prot, flags, -1, 0) };
    usize::try_from(found).map_err(|_| errno())
}

fn unmap(at: usize, bytes: usize) -> Result<(), i32> {
    // SAFETY: only ever called for mappings of the caller's own.
    done(unsafe { libc::munmap(ptr::with_exposed_provenance_mut(at), bytes) })
}

fn protect(at: usize, bytes: usize, prot: i32) -> Result<(), i32> {
    // SAFETY: as for `unmap`.
    done(unsafe { libc::mprotect(ptr::with_exposed_provenance_mut(at), bytes, prot) })
}

fn done(status: i32) -> Result<(), i32> {
    machine::done(status).map_err(|_| errno())
}

fn word(at: usize) -> *mut usize {
    ptr::with_exposed_provenance_mut(at)
}

/// This program's file came with the kernel. A private mapping of any part of it shows the file up to the end of its last page, and zeroes behind the
/// file's end.
fn files_that_came_with_the_kernel_are_mapped() {
    let own = std::env::args().next().expect("a name");
    let bytes = std::fs::read(&own).unwrap();
    let file = File::open(&own).unwrap();
    let last = bytes.len() / PAGE * PAGE;
    for (offset, len) in [(0, 10), (PAGE, PAGE + 1), (last, 1), (last, PAGE)] {
        let flags = libc::MAP_PRIVATE;
        let (fd, place) = (file.as_raw_fd(), offset as libc::off_t);
        // SAFETY: where the kernel chooses.
        let at = unsafe { libc::mmap(ptr::null_mut(), len, READ_WRITE, flags, fd, place) };
        assert_ne!(at, libc::MAP_FAILED);
        let mapped = len.next_multiple_of(PAGE);
        // SAFETY: just mapped, and nobody writes there yet.
        let shown = unsafe { std::slice::from_raw_parts(at.cast::<u8>(), mapped) };
        let end = bytes.len().min(offset + mapped);
        let (from_file, behind) = shown.split_at(end - offset);
        assert!(from_file == &bytes[offset..end], "{offset}, {len}");
        assert!(behind.iter().all(|byte| *byte == 0), "{offset}, {len}");
        // SAFETY: inside the mapping, to which nothing refers any more.
        unsafe { at.cast::<u8>().write_volatile(!bytes[offset]) };
        assert_eq!(std::fs::read(&own).unwrap()[offset], bytes[offset]);
        unmap(at.expose_provenance(), mapped).unwrap();
    }
}

/// The child's side of [`exhaustion_kills_the_eater_alone`]: never returns alive.
fn eat_everything() -> ! {
    let bytes = 64 << 20;
    loop {
        let at = map(0, bytes, READ_WRITE, 0).expect("address space lasts longer than memory");
        for page in (at..at + bytes).step_by(PAGE) {
            // SAFETY: inside the new mapping.
            unsafe { word(page).write_volatile(page) };
        }
    }
}

fn exhaustion_kills_the_eater_alone() {
    checks::must_not_lose(1024, || {
        for _ in 0..3 {
            let own = std::env::current_exe().expect("the name of this program");
            let status = Command::new(own).arg("eat").status().expect("a child");
            assert_eq!(status.signal(), Some(libc::SIGKILL), "{status:?}");
        }
    });
}

/// The kernel reads all of its last page, as the program may.
fn the_stack_is_the_programs_up_to_its_end() {
    // The name of the program's file, which is there.
    // SAFETY: only asks.
    let name = unsafe { libc::getauxval(libc::AT_EXECFN) } as usize;
    let last = ptr::without_provenance(name / PAGE * PAGE);
    let (_source, sink) = io::pipe().unwrap();
    // SAFETY: the kernel only reads, and a pipe has room for a page.
    let written = unsafe { libc::write(sink.as_raw_fd(), last, PAGE) };
    assert_eq!(written, PAGE as isize);
}

/// Each area by itself, and in another order than they have.
fn many_areas_come_and_go() {
    let count = 60_000;
    let rights = [libc::PROT_READ, READ_WRITE];
    let one = |page: usize| map(0, PAGE, rights[page % 2], 0).expect("room");
    let mapped: Vec<usize> = (0..count).map(one).collect();
    for page in (0..count).map(|page| page * 7919 % count) {
        unmap(mapped[page], PAGE).expect("no split");
    }
}

fn too_many_areas_are_refused() {
    let pages = 140_000;
    let base = map(0, (pages + 1) * PAGE, READ_WRITE, 0).expect("room");
    unmap(base + pages * PAGE, PAGE).expect("the areas end before those above");
    let refused = (0..pages).step_by(2).find_map(|page| {
        let protected = protect(base + page * PAGE, PAGE, libc::PROT_READ);
        Some((page, protected.err()?))
    });
    let (page, error) = refused.expect("a limit on the number of areas");
    assert_eq!(error, libc::ENOMEM);
    assert!(page > 60_000, "refused already at page {page}");
    let hole = (page + 8..pages).step_by(2).find(|page| {
        let holed = unmap(base + page * PAGE, PAGE);
        holed.is_err_and(|error| error == libc::ENOMEM)
    });
    let hole = hole.expect("the limit holds for what is split");
    unmap(base + (pages - 1) * PAGE, PAGE).expect("the end of an area");
    unmap(base + (page - 1) * PAGE, (hole - page) * PAGE).expect("the start of an area");
    unmap(base, pages * PAGE).expect("removing everything");
    let again = map(0, PAGE, READ_WRITE, 0).expect("room again");
    unmap(again, PAGE).expect("a mapping of one page");
}

fn sizes_and_places_are_checked() {
    let top = 0x7fff_ffff_f000;
    assert_eq!(map(0, 0, READ_WRITE, 0), Err(libc::EINVAL));
    assert_eq!(map(0, usize::MAX, READ_WRITE, 0), Err(libc::ENOMEM));
    assert_eq!(map(0, top, READ_WRITE, 0), Err(libc::ENOMEM));
    let refused = map(0x1001, PAGE, READ_WRITE, libc::MAP_FIXED);
    assert_eq!(refused, Err(libc::EINVAL));
    let refused = map(usize::MAX - 4095, PAGE, READ_WRITE, libc::MAP_FIXED);
    assert_eq!(refused, Err(libc::ENOMEM));
    assert_eq!(unmap(0x1001, PAGE), Err(libc::EINVAL));
    assert_eq!(unmap(0x1000, 0), Err(libc::EINVAL));
    assert_eq!(unmap(usize::MAX - 4095, PAGE), Err(libc::EINVAL));
    let refused = protect(0x7000_0000_0000, PAGE, READ_WRITE);
    assert_eq!(refused, Err(libc::ENOMEM));
    let own = map(0, PAGE, READ_WRITE, 0).expect("room");
    for also in [0, libc::MAP_FIXED] {
        let refused = map(own, PAGE, READ_WRITE, libc::MAP_FIXED_NOREPLACE | also);
        assert_eq!(refused, Err(libc::EEXIST));
    }
    assert_eq!(map(own, PAGE, READ_WRITE, libc::MAP_FIXED), Ok(own));
    unmap(own, PAGE).expect("a mapping of one page");
}

fn sparse_mappings_reach_everywhere() {
    for shift in [21, 30, 39, 46] {
        let at = 1 << shift;
        for page in [at - PAGE, at] {
            let mapped = map(page, PAGE, READ_WRITE, libc::MAP_FIXED_NOREPLACE);
            assert_eq!(mapped, Ok(page));
            // SAFETY: just mapped.
            unsafe { word(page).write_volatile(page) };
        }
        for page in [at - PAGE, at] {
            // SAFETY: still mapped.
            assert_eq!(unsafe { word(page).read_volatile() }, page);
        }
        unmap(at - PAGE, 2 * PAGE).expect("both pages");
    }
}

/// One worker: its own mappings, made, tagged, checked, hidden, shown and removed in random order.
fn churn(worker: usize, rounds: usize) -> usize {
    let mut random = fastrand::Rng::with_seed(worker as u64 + 1);
    let mut held: Vec<(usize, usize)> = Vec::new();
    let mut wrong = 0;
    for _ in 0..rounds {
        if held.len() < 20 && random.bool() {
            let pages = random.usize(1..40);
            let at = map(0, pages * PAGE, READ_WRITE, 0).expect("room");
            for page in 0..pages {
                let place = word(at + page * PAGE);
                // SAFETY: a page of this worker's own.
                wrong += usize::from(unsafe { place.read_volatile() } != 0);
                // SAFETY: as above.
                unsafe { place.write_volatile(at + page + worker) };
            }
            held.push((at, pages));
        } else if !held.is_empty() {
            let (at, pages) = held.swap_remove(random.usize(0..held.len()));
            protect(at, pages * PAGE, libc::PROT_NONE).expect("own memory");
            protect(at, pages * PAGE, libc::PROT_READ).expect("own memory");
            for page in 0..pages {
                // SAFETY: a page of this worker's own, readable again.
                let tag = unsafe { word(at + page * PAGE).read_volatile() };
                wrong += usize::from(tag != at + page + worker);
            }
            unmap(at, pages * PAGE).expect("own memory");
        }
    }
    for (at, pages) in held {
        unmap(at, pages * PAGE).expect("own memory");
    }
    wrong
}

fn everybody_at_once_loses_nothing() {
    let all_at_once = || {
        let wrong = AtomicUsize::new(0);
        thread::scope(|scope| {
            for worker in 0..6 {
                let wrong = &wrong;
                scope.spawn(move || wrong.fetch_add(churn(worker, 80), Ordering::Relaxed));
            }
        });
        assert_eq!(wrong.into_inner(), 0, "pages with a foreign or lost tag");
    };
    all_at_once();
    checks::must_not_lose(1024, || (0..3).for_each(|_| all_at_once()));
}

fn the_stack_grows_to_its_limit() {
    fn descend(left: usize) -> usize {
        let frame = std::hint::black_box([left as u8; 2 * PAGE]);
        if left == 0 {
            usize::from(frame[0])
        } else {
            descend(left - 1) + usize::from(frame[left % PAGE] == 0)
        }
    }
    // 7 of the 8 MiB.
    assert!(std::hint::black_box(descend(7 * 1024 / 8)) < 7 * 1024);
}

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some("eat") {
        eat_everything();
    }
    checks::run(
        "t_memory",
        &checks::named![
            sizes_and_places_are_checked,
            files_that_came_with_the_kernel_are_mapped,
            sparse_mappings_reach_everywhere,
            the_stack_grows_to_its_limit,
            the_stack_is_the_programs_up_to_its_end,
            many_areas_come_and_go,
            too_many_areas_are_refused,
            everybody_at_once_loses_nothing,
            exhaustion_kills_the_eater_alone,
        ],
    )
}
