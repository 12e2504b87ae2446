//! Files that are cut and grow while other processes write to them, move their mappings, fork and die: whoever touches
//! what is gone is told by SIGBUS, what comes back is zero, what remains is stored, and no memory is lost.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::process::ExitCode;
use std::ptr;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use shootdown_user::checks;
use shootdown_user::child::{Child, End, end};
use shootdown_user::counters::CounterSource;
use shootdown_user::region::{PAGE_BYTES, Region};
use shootdown_user::{machine, memory_file};

/// Pages of the file at its longest.
const PAGES: usize = 40;
/// Pages that are never cut off.
const KEPT: usize = 3;
/// Times that new processes write.
const ROUNDS: usize = 15;
/// Changes of the size in each.
const CHANGES: usize = 30;
/// Processes that one cut is counted for.
const MAPPERS: usize = 3;
/// What may be gone for other reasons: kernel stacks, tables.
const SPARE_KIB: u64 = 1024;

fn must<T>(what: &str, result: io::Result<T>) -> T {
    result.unwrap_or_else(|error| fail(&format!("{what}: {error}")))
}

fn fail(what: &str) -> ! {
    checks::fail("t_cut", what)
}

/// Writes to random pages until one of them is gone. Counts in the last word of the first page.
fn scribble(region: &Region, seed: u64) -> ! {
    let mut random = fastrand::Rng::with_seed(seed);
    loop {
        let page = random.usize(..PAGES);
        let word = 1 + random.usize(..500);
        region.word(page, word).store(seed, Relaxed);
        count_of(region).fetch_add(1, Relaxed);
    }
}

fn count_of(region: &Region) -> &AtomicU64 {
    region.word(0, 511)
}

/// Maps the file itself, writes, moves the mapping, forks, and writes on in both processes.
fn wander(file: &File, seed: u64) -> i32 {
    let Ok(own) = Region::of_file(file, PAGES) else {
        return 3;
    };
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..200 {
        let (page, word) = (random.usize(..KEPT), random.usize(..500));
        own.word(page, word).store(seed, Relaxed);
        let mut moved = own.word(0, 0).as_ptr();
        for pages in [PAGES - 1, PAGES] {
            let (old, new) = ((2 * PAGES - 1 - pages) * PAGE_BYTES, pages * PAGE_BYTES);
            // SAFETY: the end of this process's own mapping goes and comes back; nothing refers to it.
            let at = unsafe { libc::mremap(moved.cast(), old, new, 0) };
            if at != ptr::from_ref(own.word(0, 0)).cast_mut().cast() {
                return 4;
            }
            moved = at.cast();
        }
    }
    // SAFETY: the child goes on with what this function does, in a process of one thread.
    match unsafe { libc::fork() } {
        0 => scribble(&own, seed),
        child if child > 0 => scribble(&own, seed + 1),
        _ => 5,
    }
}

/// One round: two processes, and then one, write while the file is cut and grows.
fn round(file: &File, region: &Region, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let grow = || must("growing", file.set_len((PAGES * PAGE_BYTES) as u64));
    grow();
    let children = [
        must("a child", Child::start(|| scribble(region, seed))),
        must("a child", Child::start(|| wander(file, seed))),
    ];
    for change in 0..CHANGES {
        let bytes = random.usize(KEPT * PAGE_BYTES..PAGES * PAGE_BYTES);
        must("cutting", file.set_len(bytes as u64));
        if change % 3 == 0 {
            must("syncing", file.sync_data());
        }
        grow();
        if change == CHANGES / 2 {
            // Where all share one CPU, they would not have written yet.
            std::thread::yield_now();
        }
    }
    must("the last cut", file.set_len((KEPT * PAGE_BYTES) as u64));
    for (index, child) in children.into_iter().enumerate() {
        match must("a child's end", child.wait()) {
            End::Killed(libc::SIGBUS) => {}
            end => fail(&format!("child {index} of seed {seed}: {end:?}")),
        }
    }
    // The orphan of `wander` goes by itself, at its next page that is gone.
    must("syncing", file.sync_data());
}

/// What was cut off comes back as zeroes; what was not is stored.
fn check(file: &File, region: &Region) {
    must("growing", file.set_len((PAGES * PAGE_BYTES) as u64));
    for page in KEPT..PAGES {
        if (0..512).any(|word| region.word(page, word).load(Relaxed) != 0) {
            fail(&format!("page {page} was cut off and is not zero"));
        }
    }
    must("syncing", file.sync_all());
    if let Some(stored) = must("the stored copy", memory_file::stored(file)) {
        let mut bytes = vec![0; PAGES * PAGE_BYTES];
        must("reading", stored.read_exact_at(&mut bytes, 0));
        for (index, stored) in bytes.as_chunks().0.iter().enumerate() {
            let written = region.word(index / 512, index % 512).load(Relaxed);
            if u64::from_ne_bytes(*stored) != written {
                fail(&format!("word {index} is {written} and not stored"));
            }
        }
    }
}

/// What a cut costs that takes pages away from several processes, on CPUs of their own as far as there are any: the reference kernel asks each CPU once, and waits once.
fn count_cost() {
    let file = must("a file", memory_file::create(c"t_cut", 0));
    must("growing", file.set_len((PAGES * PAGE_BYTES) as u64));
    let region = must("a mapping", Region::of_file(&file, PAGES));
    let end_of = || region.word(0, 510);
    let mapper = || {
        let own = Region::of_file(&file, PAGES).unwrap_or_else(|_| end(3));
        (0..PAGES).for_each(|page| own.word(page, 1).store(1, Relaxed));
        count_of(&region).fetch_add(1, Relaxed);
        while end_of().load(Relaxed) == 0 {
            std::hint::spin_loop();
        }
        end(0)
    };
    let children: Vec<_> = (0..MAPPERS)
        .map(|_| must("a child", Child::start(mapper)))
        .collect();
    while count_of(&region).load(Relaxed) < MAPPERS as u64 {
        std::thread::yield_now();
    }
    let mut source = CounterSource::of_this_kernel();
    let before = source.read();
    must("cutting", file.set_len(PAGE_BYTES as u64));
    let after = source.read();
    end_of().store(1, Relaxed);
    for child in children {
        match must("a child's end", child.wait()) {
            End::Exited(0) => {}
            end => fail(&format!("a process that maps: {end:?}")),
        }
    }
    let grown = |name: &str| Some(after.get(name)? - before.get(name)?);
    for name in ["requests_published", "ipis_sent", "waits_finished"] {
        println!("t_cut: {MAPPERS} processes: {name} {:?}", grown(name));
    }
    let found = grown("file_cut_flushes").zip(grown("file_cut_spaces"));
    if found.is_some_and(|found| found != (1, MAPPERS as u64)) {
        fail(&format!("flushes, and spaces: {found:?}"));
    }
}

/// All rounds, in a process of their own, which collects their orphans' memory with its end.
fn all() -> i32 {
    let file = must("a file", memory_file::create(c"t_cut", 0));
    must("growing", file.set_len((PAGES * PAGE_BYTES) as u64));
    let region = must("a mapping", Region::of_file(&file, PAGES));
    for seed in 0..ROUNDS as u64 {
        round(&file, &region, 2 * seed + 1);
    }
    // The last orphan may be writing still: to what is there.
    let count = || count_of(&region).load(Relaxed);
    let goes_on = |before| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        count() != before
    };
    while goes_on(count()) {}
    println!("t_cut: {} writes", count());
    check(&file, &region);
    0
}

fn main() -> ExitCode {
    machine::prepare();
    count_cost();
    let rounds = || {
        let child = must("a child", Child::start(|| end(all())));
        match must("its end", child.wait()) {
            End::Exited(0) => {}
            end => fail(&format!("the rounds: {end:?}")),
        }
    };
    rounds();
    let probe = memory_file::create(c"probe", 0).and_then(|file| memory_file::stored(&file));
    if probe.is_ok_and(|copy| copy.is_some()) {
        let before = must("free memory", machine::free_kib());
        rounds();
        let after = must("free memory", machine::free_kib());
        if after + SPARE_KIB < before {
            fail(&format!("{} KiB are gone", before - after));
        }
    }
    println!("t_cut: OK");
    ExitCode::SUCCESS
}
