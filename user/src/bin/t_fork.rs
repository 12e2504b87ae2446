//! Copies on write: a child's memory is what its parent's was at the fork, whatever threads of the parent do
//! meanwhile, and neither ever sees what the other writes.

use std::process::ExitCode;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread;

use shootdown_user::checks;
use shootdown_user::child::{Child, End};
use shootdown_user::region::{PAGE_BYTES, Region};
use shootdown_user::{fire, machine};

/// Threads that write while another one forks.
const WRITERS: usize = 3;
/// Pages of each writer.
const PAGES: usize = 12;
/// Forks under fire.
const FORKS: usize = 40;
/// Where all threads share one CPU, each turn takes long.
const FORKS_ON_ONE_CPU: usize = 6;
/// How often a child looks at its memory.
const LOOKS: usize = 60;
/// Added to what a child writes.
const CHILDS: u64 = 1 << 40;

/// Words in which a child says what it has seen, in memory that it shares with its parent.
const PAGE: usize = 0;
const EXPECTED: usize = 1;
const SEEN: usize = 2;

/// What a child's exit status means.
const COMPLAINTS: [&str; 4] = [
    "",
    "a child has later writes of a thread, but not earlier ones",
    "a child's page changed after the fork",
    "a child's own write is lost",
];

fn fail(what: &str) -> ! {
    checks::fail("t_fork", what)
}

/// What threads write to, and what they have written.
struct Fire {
    memory: Region,
    /// What a page holds at least, for readers.
    published: Vec<AtomicU64>,
    over: AtomicBool,
}

impl Fire {
    fn word(&self, page: usize) -> &AtomicU64 {
        self.memory.word(page, page % 8)
    }

    /// Writes one round after the other to each of its pages in turn.
    fn write(&self, writer: usize, cpu: usize) {
        machine::pin_to(cpu).unwrap();
        let mut round = 0;
        while !self.over.load(Relaxed) {
            round += 1;
            for page in writer * PAGES..(writer + 1) * PAGES {
                let seen = self.word(page).load(Relaxed);
                let last = round - 1;
                if seen != last {
                    fail(&format!(
                        "page {page} holds {seen}, but its only writer wrote {last}"
                    ));
                }
                self.word(page).store(round, Release);
                self.published[page].store(round, Release);
            }
        }
    }

    /// Checks that whatever a writer has announced is there.
    fn read(&self, cpu: usize) {
        machine::pin_to(cpu).unwrap();
        while !self.over.load(Relaxed) {
            for page in 0..WRITERS * PAGES {
                let published = self.published[page].load(Acquire);
                let seen = self.word(page).load(Acquire);
                if !(published..CHILDS).contains(&seen) {
                    fail(&format!(
                        "page {page} holds {seen}, but {published} was written before"
                    ));
                }
            }
        }
    }

    /// Waits until every writer has written to all of its pages again.
    fn wait_for_a_round(&self) {
        for writer in 0..WRITERS {
            let last = &self.published[(writer + 1) * PAGES - 1];
            let round = last.load(Relaxed);
            while last.load(Relaxed) < round + 2 {
                thread::yield_now();
            }
        }
    }

    /// What a child does: no allocation, no lock.
    fn inherit(&self, report: &Region) -> i32 {
        let complain = |complaint, page: usize, expected, seen| {
            for (word, value) in [(PAGE, page as u64), (EXPECTED, expected), (SEEN, seen)] {
                report.word(0, word).store(value, Relaxed);
            }
            complaint
        };
        let mut first = [0; WRITERS * PAGES];
        for (page, value) in first.iter_mut().enumerate() {
            *value = self.word(page).load(Relaxed);
        }
        for look in 0..LOOKS {
            for (page, &expected) in first.iter().enumerate() {
                let seen = self.word(page).load(Relaxed);
                if seen != expected {
                    return complain(2, page, expected, seen);
                }
                // A round goes from the first page to the last.
                let start = first[page - page % PAGES];
                let before = first[page.saturating_sub(1).max(page - page % PAGES)];
                if expected > before || expected + 1 < start {
                    return complain(1, page, start, expected);
                }
            }
            if look % 4 == 3 {
                thread::yield_now();
            }
        }
        for page in 0..first.len() {
            self.word(page).store(CHILDS + page as u64, Relaxed);
        }
        for _ in 0..LOOKS {
            for page in 0..first.len() {
                let seen = self.word(page).load(Relaxed);
                if seen != CHILDS + page as u64 {
                    return complain(3, page, CHILDS + page as u64, seen);
                }
            }
        }
        0
    }
}

fn forks_on(cpus: &[usize]) -> usize {
    match cpus.len() {
        1 => FORKS_ON_ONE_CPU,
        _ => FORKS,
    }
}

/// The CPU of thread `at` that does not fork: another than the first, where there is one.
fn elsewhere(cpus: &[usize], at: usize) -> usize {
    cpus[(1 + at % (cpus.len() - 1).max(1)) % cpus.len()]
}

fn children_keep_what_was_there_at_the_fork() {
    let cpus = machine::allowed_cpus().unwrap();
    let report = Region::shared(1).unwrap();
    let fire = Fire {
        memory: Region::new(WRITERS * PAGES).unwrap(),
        published: (0..WRITERS * PAGES).map(|_| AtomicU64::new(0)).collect(),
        over: AtomicBool::new(false),
    };
    // The CPU that forks flushes itself: writers are elsewhere, where there is an elsewhere.
    let home = cpus[0];
    let forks = forks_on(&cpus);
    let elsewhere = |at| elsewhere(&cpus, at);
    machine::pin_to(home).unwrap();
    thread::scope(|scope| {
        let fire = &fire;
        for writer in 0..WRITERS {
            scope.spawn(move || fire.write(writer, elsewhere(writer)));
        }
        scope.spawn(move || fire.read(elsewhere(WRITERS)));
        for fork in 0..forks {
            fire.wait_for_a_round();
            let child = Child::start(|| fire.inherit(&report)).unwrap();
            let complaint = match child.wait().unwrap() {
                End::Exited(0) => continue,
                End::Exited(status) => COMPLAINTS.get(status as usize).unwrap_or(&"a child failed"),
                End::Killed(_) => "a child was killed",
            };
            let [page, expected, seen] =
                [PAGE, EXPECTED, SEEN].map(|word| report.word(0, word).load(Relaxed));
            fail(&format!(
                "fork {fork}: {complaint}: page {page} holds {seen}, not {expected}"
            ));
        }
        fire.over.store(true, Relaxed);
    });
    let rounds = fire.word(0).load(Relaxed);
    println!("t_fork: {forks} forks, {rounds} rounds of the first writer");
}

/// What happened before a fork is the child's, what began after it is not, of two writers a page.
fn forks_have_a_place_among_writes() {
    let cpus = machine::allowed_cpus().unwrap();
    let fire = fire::Fire::new().unwrap();
    let forks = forks_on(&cpus);
    let elsewhere = |at| elsewhere(&cpus, at);
    machine::pin_to(cpus[0]).unwrap();
    thread::scope(|scope| {
        let fire = &fire;
        for writer in 0..fire::WRITERS {
            scope.spawn(move || {
                let done = fire.write(writer, elsewhere(writer));
                done.unwrap_or_else(|what| fail(&what))
            });
        }
        for fork in 0..forks {
            let before = fire.before();
            let child = Child::start(|| fire.inherit(&before)).unwrap();
            fire.after();
            match child.wait().unwrap() {
                End::Exited(0) => {}
                End::Exited(status) => {
                    let complaint = fire::Complaint::of_status(status);
                    fail(&format!("fork {fork}: {complaint}"))
                }
                End::Killed(_) => fail(&format!("fork {fork}: a child was killed")),
            }
        }
        fire.end();
    });
}

/// Forks a child that checks with `look` and changes with `change`, while the parent does the same.
fn both(look: impl Fn() -> bool, change: impl Fn(u64)) {
    let child = Child::start(|| {
        let inherited = look();
        change(CHILDS);
        i32::from(!inherited)
    })
    .unwrap();
    assert!(look(), "the parent sees what the child does");
    change(1);
    let end = child.wait().unwrap();
    assert_eq!(end, End::Exited(0), "the child sees what the parent does");
}

fn protect(region: &Region, protection: i32) {
    let start = region.word(0, 0).as_ptr().cast();
    // SAFETY: all of a mapping of ours, which is read and written through atomics only.
    let status = unsafe { libc::mprotect(start, region.pages() * PAGE_BYTES, protection) };
    assert_eq!(status, 0);
}

fn rights_come_back_without_sharing() {
    let region = Region::new(3).unwrap();
    (0..3).for_each(|page| region.word(page, 5).store(7, Relaxed));
    for hidden in [libc::PROT_NONE, libc::PROT_READ] {
        protect(&region, hidden);
        let all = |wanted| (0..3).all(|page| region.word(page, 5).load(Relaxed) == wanted);
        both(
            || {
                protect(&region, libc::PROT_READ | libc::PROT_WRITE);
                all(7)
            },
            |value| (0..3).for_each(|page| region.word(page, 5).store(value, Relaxed)),
        );
        assert!(all(1));
        (0..3).for_each(|page| region.word(page, 5).store(7, Relaxed));
    }
}

fn the_kernel_writes_to_copies_too() {
    let region = Region::new(2).unwrap();
    region.word(0, 511).store(7, Relaxed);
    region.word(1, 0).store(7, Relaxed);
    // Two words, on two pages.
    let fill = |value: u64| {
        let (reader, writer) = std::io::pipe().unwrap();
        let bytes = [value, value];
        use std::os::fd::AsRawFd;
        // SAFETY: as many bytes as are written.
        let put = unsafe { libc::write(writer.as_raw_fd(), bytes.as_ptr().cast(), 16) };
        let to = region.word(0, 511).as_ptr().cast();
        // SAFETY: two words inside the mapping, one after the other.
        let got = unsafe { libc::read(reader.as_raw_fd(), to, 16) };
        assert_eq!((put, got), (16, 16));
    };
    both(
        || [(0, 511), (1, 0)].map(|(page, word)| region.word(page, word).load(Relaxed)) == [7; 2],
        fill,
    );
    assert_eq!(region.word(1, 0).load(Relaxed), 1);
}

fn discards_concern_one_process_only() {
    let region = Region::new(40).unwrap();
    let set = |value| (0..40).for_each(|page| region.word(page, 0).store(value, Relaxed));
    let all = |wanted| (0..40).all(|page| region.word(page, 0).load(Relaxed) == wanted);
    set(7);
    both(|| all(7), |_| region.discard(40).unwrap());
    assert!(all(0));
    set(7);
    let child = Child::start(|| {
        drop(region);
        0
    });
    assert_eq!(child.unwrap().wait().unwrap(), End::Exited(0));
}

/// Every process of the tree changes the same pages, and counts its children.
fn tree(region: &Region, depth: u64) -> i32 {
    const BRANCHES: u64 = 3;
    if depth == 0 {
        return 1;
    }
    let mut children = Vec::new();
    for branch in 0..BRANCHES {
        (0..region.pages())
            .for_each(|page| region.word(page, 1).store(depth * 10 + branch, Relaxed));
        children.push(Child::start(|| {
            let value = depth * 10 + branch;
            let right = (0..region.pages()).all(|page| region.word(page, 1).load(Relaxed) == value);
            if right { tree(region, depth - 1) } else { 200 }
        }));
    }
    let children = children.into_iter();
    let ends = children.map(|child| child.and_then(Child::wait));
    ends.fold(1, |sum, end| match end {
        Ok(End::Exited(count)) => sum + count,
        other => panic!("{other:?}"),
    })
}

fn trees_of_processes_grow_and_go() {
    let region = Region::new(8).unwrap();
    assert_eq!(tree(&region, 3), 1 + 3 + 9 + 27);
}

fn nothing_leaks() {
    checks::must_not_lose_again(4, 256, trees_of_processes_grow_and_go);
}

fn main() -> ExitCode {
    checks::run(
        "t_fork",
        &checks::named![
            children_keep_what_was_there_at_the_fork,
            forks_have_a_place_among_writes,
            rights_come_back_without_sharing,
            the_kernel_writes_to_copies_too,
            discards_concern_one_process_only,
            trees_of_processes_grow_and_go,
            nothing_leaks,
        ],
    )
}
