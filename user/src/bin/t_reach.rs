//! Threads that discard memory of their own leave each other alone, and those that share memory see what becomes of it.

use std::process::ExitCode;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Barrier, OnceLock};
use std::thread;

use shootdown_user::checks;
use shootdown_user::counters::{CounterSource, Counters, grown};
use shootdown_user::machine;
use shootdown_user::region::{PAGE_BYTES, Region};

const PAGES: usize = 4;
/// Rounds before anything counts, and those that do.
const WARM_UP: usize = 400;
const ROUNDS: usize = 1000;
/// Interrupts by the way: of a scheduler, and until a CPU has given up what it took of another's stack.
const BY_THE_WAY: u64 = 200;

/// At most four, asked for before any thread pins itself.
fn cpus() -> &'static [usize] {
    static CPUS: OnceLock<Vec<usize>> = OnceLock::new();
    CPUS.get_or_init(|| {
        let mut cpus = machine::allowed_cpus().unwrap();
        cpus.truncate(4);
        cpus
    })
}

/// Each CPU's thread does `round` again and again: the counters before and after.
fn on_all(round: impl Fn(usize, usize) + Sync) -> (Counters, Counters) {
    let all = Barrier::new(cpus().len());
    let mut source = CounterSource::of_this_kernel();
    let (mut before, mut after) = (Counters::new(), Counters::new());
    let work = |number: usize, count: &mut dyn FnMut(usize)| {
        machine::pin_to(cpus()[number]).unwrap();
        all.wait();
        (0..WARM_UP).for_each(|turn| round(number, turn));
        all.wait();
        count(0);
        all.wait();
        (0..ROUNDS).for_each(|turn| round(number, turn));
        all.wait();
        count(1);
        all.wait();
    };
    let work = &work;
    thread::scope(|scope| {
        for number in 1..cpus().len() {
            scope.spawn(move || work(number, &mut |_| ()));
        }
        work(0, &mut |moment| match moment {
            0 => before = source.read(),
            _ => after = source.read(),
        });
    });
    (before, after)
}

fn interrupts(what: &str, (before, after): &(Counters, Counters)) -> u64 {
    let [sent, taken, given_up] =
        ["ipis_sent", "regions_taken", "regions_given_up"].map(|name| grown(name, before, after));
    let operations = ROUNDS * cpus().len();
    println!(
        "t_reach: {what}: {operations} operations, {sent} interrupts, {taken} regions taken, {given_up} given up"
    );
    sent
}

thread_local! {
    static OWN: Region = Region::new(PAGES).unwrap();
}

fn discards_of_own_memory_interrupt_nobody() {
    let counted = on_all(|_, turn| {
        OWN.with(|own| {
            (0..PAGES).for_each(|page| own.word(page, 0).store(turn as u64 + 1, Relaxed));
            own.discard(PAGES).unwrap();
            assert_eq!(own.word(PAGES - 1, 0).load(Relaxed), 0);
        });
    });
    if machine::is_reference_kernel() {
        assert!(interrupts("discards", &counted) <= BY_THE_WAY);
    }
}

/// The tables go with each; of some more than a request names page by page.
fn mappings_of_own_interrupt_nobody() {
    let counted = on_all(|_, turn| {
        let pages = if turn.is_multiple_of(2) { PAGES } else { 600 };
        let own = Region::new(pages).unwrap();
        own.word(1, 1).store(turn as u64, Relaxed);
    });
    if machine::is_reference_kernel() {
        assert!(interrupts("maps and unmaps", &counted) <= BY_THE_WAY);
    }
}

/// Each starts threads on its own CPU, one after the other: the next one's stack is where the last one's was.
fn stacks_of_short_threads_interrupt_nobody() {
    let counted = on_all(|_, turn| {
        if turn.is_multiple_of(10) {
            let short =
                thread::spawn(move || std::hint::black_box([turn as u8; 3 * PAGE_BYTES])[turn]);
            assert_eq!(short.join().unwrap(), turn as u8);
        }
    });
    if machine::is_reference_kernel() {
        assert!(interrupts("stacks, each tenth", &counted) <= BY_THE_WAY / 4);
    }
}

/// All threads read pages that one of them changes; each sees the change, whether it had the page or not.
fn what_is_shared_is_seen_by_all() {
    let shared = Region::new(PAGES).unwrap();
    let published = AtomicU64::new(0);
    on_all(|number, _| {
        let last = published.load(Acquire);
        if number == 0 {
            shared.discard(PAGES).unwrap();
            let next = last + 1;
            (0..PAGES).for_each(|page| shared.word(page, 3).store(next, Relaxed));
            published.store(next, Release);
        } else {
            for page in 0..PAGES {
                let seen = shared.word(page, 3).load(Acquire);
                assert!(seen == 0 || seen >= last, "{seen} after {last}");
            }
        }
    });
}

/// A thread unmaps what another has mapped and used: nobody finds its old contents there.
fn what_another_frees_is_gone() {
    let count = cpus().len();
    let lots: Vec<AtomicU64> = (0..count).map(|_| AtomicU64::new(0)).collect();
    let map = || {
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: at an address of the kernel's choice.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), PAGE_BYTES, prot, kind, -1, 0) };
        assert_ne!(base, libc::MAP_FAILED);
        base as u64
    };
    on_all(|number, turn| {
        let fresh = map();
        // SAFETY: mapped above.
        let word = unsafe { &*(fresh as *const AtomicU64) };
        assert_eq!(word.load(Relaxed), 0, "a page that somebody has used");
        word.store(turn as u64 + 1, Relaxed);
        let old = lots[(number + turn) % count].swap(fresh, Relaxed);
        if old != 0 {
            // SAFETY: whoever swapped it out has it alone.
            let unmapped = unsafe { libc::munmap(old as *mut libc::c_void, PAGE_BYTES) };
            assert_eq!(unmapped, 0);
        }
    });
}

/// Pages go from one thread's memory to another's, which unmaps them there.
fn moved_pages_are_gone_from_where_they_were() {
    let there = Region::new(PAGES).unwrap();
    on_all(|number, turn| {
        let own = Region::new(PAGES).unwrap();
        (0..PAGES).for_each(|page| own.word(page, 0).store(turn as u64 + 1, Relaxed));
        if number == 0 {
            let target = there.word(0, 0).as_ptr().cast::<libc::c_void>();
            let from = own.word(0, 0).as_ptr().cast::<libc::c_void>();
            let bytes = PAGES * PAGE_BYTES;
            let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
            // SAFETY: whoever looks at either uses atomics, and `own` is forgotten.
            let moved = unsafe { libc::mremap(from, bytes, bytes, flags, target) };
            assert_eq!(moved, target);
            assert_eq!(there.word(PAGES - 1, 0).load(Relaxed), turn as u64 + 1);
            std::mem::forget(own);
        } else {
            _ = there.word(1, 0).load(Relaxed);
        }
    });
}

/// A thread that is moved from CPU to CPU leaves its region behind: it is given up, and no more interrupts come there.
fn regions_that_are_left_are_given_up() {
    let cpus = cpus();
    let mut source = CounterSource::of_this_kernel();
    let counted = thread::scope(|scope| {
        let run = scope.spawn(|| {
            let own = Region::new(1).unwrap();
            let discard = |times: usize| {
                for _ in 0..times {
                    own.word(0, 0).store(1, Relaxed);
                    own.discard(1).unwrap();
                }
            };
            for cpu in cpus {
                machine::pin_to(*cpu).unwrap();
                discard(1);
            }
            discard(WARM_UP);
            let before = source.read();
            discard(ROUNDS);
            (before, source.read())
        });
        run.join().unwrap()
    });
    if machine::is_reference_kernel() {
        assert!(interrupts("after moves", &counted) <= BY_THE_WAY);
    }
}

/// Threads come and go, each with a stack and memory of its own.
fn threads_leave_nothing() {
    checks::must_not_lose(256, || {
        for _ in 0..20 {
            on_all(|_, turn| {
                if turn.is_multiple_of(100) {
                    drop(Region::new(2).map(|own| own.word(1, 1).store(1, Relaxed)));
                }
            });
        }
    });
}

fn main() -> ExitCode {
    checks::fail_on_panic("t_reach");
    machine::prepare();
    cpus();
    let checks: [checks::Check; 8] = checks::named![
        discards_of_own_memory_interrupt_nobody,
        mappings_of_own_interrupt_nobody,
        stacks_of_short_threads_interrupt_nobody,
        what_is_shared_is_seen_by_all,
        what_another_frees_is_gone,
        moved_pages_are_gone_from_where_they_were,
        regions_that_are_left_are_given_up,
        threads_leave_nothing,
    ];
    checks::run_all("t_reach", &checks);
    println!("t_reach: OK");
    ExitCode::SUCCESS
}
