//! CPUs in the kernel: flushes leave them alone under a policy that defers, and neither they nor the calls that they make use
//! what has passed them by.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::process::ExitCode;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::{hint, thread};

use shootdown_user::checks;
use shootdown_user::counters::{CounterSource, grown};
use shootdown_user::policy::PolicySwitch;
use shootdown_user::region::Region;
use shootdown_user::{machine, memory_file};

/// Discards while another thread makes calls.
const DISCARDS: u64 = 2000;
/// Values that are published while another thread looks.
const VALUES: u64 = 1500;
/// Counts, each after a discard, while another thread has calls copy; and what these copy first.
const COUNTS: u64 = 3000;
const LEAD_BYTES: usize = 64 << 10;
/// Counts that one byte tells apart; 0 stands for none.
const BYTES: u64 = 250;
/// What is on the other pages that are discarded with it.
const ELSEWHERE: u64 = 255;
const PAGES_COUNTED: usize = 4;
/// What follows the name of a policy that defers.
const DEFERS: &str = "+defer";

/// Runs `changes` on the first CPU while another thread does `work` again and again on the last. False where there is but one.
fn beside(cpus: &[usize], work: impl Fn() + Sync, changes: impl FnOnce()) -> bool {
    let (first, last) = (cpus[0], cpus[cpus.len() - 1]);
    if first == last {
        return false;
    }
    machine::pin_to(first).unwrap();
    let (turns, is_over) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            machine::pin_to(last).unwrap();
            while is_over.load(Relaxed) == 0 {
                work();
                turns.fetch_add(1, Relaxed);
            }
        });
        while turns.load(Relaxed) == 0 {
            thread::yield_now();
        }
        changes();
        is_over.store(1, Relaxed);
    });
    true
}

fn calls_in_progress_are_left_alone(cpus: &[usize], defers: bool) {
    let is_ours = machine::is_reference_kernel();
    let mut source = CounterSource::of_this_kernel();
    let region = Region::new(1).unwrap();
    let before = source.read();
    // SAFETY: takes no argument and touches nothing.
    let call = || _ = unsafe { libc::getppid() };
    let ran = beside(cpus, call, || {
        for value in 0..DISCARDS {
            region.word(0, 1).store(value, Relaxed);
            region.discard(1).unwrap();
        }
    });
    if !ran || !is_ours {
        return;
    }
    let after = source.read();
    let skipped = grown("deferring_skipped", &before, &after);
    let sent = grown("ipis_sent", &before, &after);
    println!("t_defer: {DISCARDS} discards passed {skipped} CPUs by and interrupted {sent}");
    let is_skipped = skipped > 0;
    assert_eq!(
        is_skipped, defers,
        "who is in the kernel is passed by, if the policy says so"
    );
    let is_told = skipped + sent >= DISCARDS * 9 / 10;
    assert!(is_told, "everybody else is interrupted");
}

/// A thread looks at pages right after calls, and has calls look at them.
fn nobody_uses_what_has_passed_by(cpus: &[usize], _: bool) {
    const PAGES: usize = 4;
    let region = Region::new(PAGES).unwrap();
    let published = AtomicU64::new(0);
    let (reader, writer) = std::io::pipe().unwrap();
    let look = || {
        for page in 0..PAGES {
            let least = published.load(Acquire);
            // SAFETY: takes no argument and touches nothing.
            unsafe { libc::getppid() };
            let seen = region.word(page, 3).load(Acquire);
            let is_new = seen >= least || seen == 0;
            assert!(is_new, "page {page}: {seen} after {least}");
        }
        let least = published.load(Acquire);
        let word = region.word(0, 3).as_ptr().cast::<u8>();
        // SAFETY: a word of the region, which others change; the kernel reads it as it is.
        let written = unsafe { libc::write(writer.as_raw_fd(), word.cast(), 8) };
        assert_eq!(written, 8);
        let mut bytes = [0; 8];
        (&reader).read_exact(&mut bytes).unwrap();
        let seen = u64::from_ne_bytes(bytes);
        let is_new = seen >= least || seen == 0;
        assert!(is_new, "a call saw {seen} after {least}");
    };
    beside(cpus, look, || {
        for value in 1..=VALUES {
            region.discard(PAGES).unwrap();
            (0..PAGES).for_each(|page| region.word(page, 3).store(value, Release));
            published.store(value, Release);
        }
    });
    (&writer).flush().unwrap();
}

/// Has a call copy `lead`, and then the first byte of each of two regions; these bytes, as it has found them.
fn copied(file: &File, lead: &[u8], regions: [&Region; 2]) -> [u8; 2] {
    let [one, other] = regions.map(|region| libc::iovec {
        iov_base: region.word(0, 0).as_ptr().cast(),
        iov_len: 1,
    });
    let first = libc::iovec {
        iov_base: lead.as_ptr().cast_mut().cast(),
        iov_len: lead.len(),
    };
    let (mut at_start, parts) = (file, [first, one, other]);
    at_start.rewind().unwrap();
    // SAFETY: the parts are memory of ours, in which others change words; the kernel reads them as they are.
    let written = unsafe { libc::writev(file.as_raw_fd(), parts.as_ptr(), 3) };
    assert_eq!(written as usize, lead.len() + 2);
    let mut bytes = [0; 2];
    file.read_exact_at(&mut bytes, lead.len() as u64).unwrap();
    bytes
}

/// What stands for a count in one byte: of more, a kernel may copy some before and some after a discard.
fn byte_of(count: u64) -> u8 {
    (count % BYTES) as u8 + 1
}

/// Counts, and says how far it is.
struct Count {
    /// Copies that were begun.
    copies: AtomicU64,
    begun: AtomicU64,
    done: AtomicU64,
    /// The last count, and the same in a page that is discarded before.
    regions: [Region; 2],
}

impl Count {
    fn count(&self, count: u64) {
        let [counter, page] = &self.regions;
        self.begun.store(count, Release);
        let copies = self.copies.load(Relaxed);
        while count > 0 && self.copies.load(Relaxed) == copies {
            hint::spin_loop();
        }
        page.discard(PAGES_COUNTED).unwrap();
        page.word(0, 0).store(byte_of(count).into(), Release);
        // The others take the frames that it had, and the frame of each before it.
        (1..PAGES_COUNTED).for_each(|other| page.word(other, 0).store(ELSEWHERE, Release));
        counter.word(0, 0).store(byte_of(count).into(), Release);
        self.done.store(count, Release);
    }

    /// Has a call copy both. Whoever has the count must have what was written to the page before, or a page that was
    /// discarded again.
    fn copy(&self, file: &File, lead: &[u8]) {
        let [counter, page] = &self.regions;
        // The translation is cached before the call.
        page.word(0, 0).load(Relaxed);
        let least = self.done.load(Acquire);
        self.copies.fetch_add(1, Relaxed);
        let [counted, seen] = copied(file, lead, [counter, page]);
        let most = self.begun.load(Acquire);
        if seen == 0 || most - least >= BYTES {
            return;
        }
        let count_of = |byte| (least..=most).find(|&count| byte_of(count) == byte);
        if count_of(seen).is_none_or(|seen| Some(seen) < count_of(counted)) {
            let what = format!(
                "a call copied {seen} from a page after it had copied the count of {counted} (modulo {BYTES}, plus 1)"
            );
            checks::fail("t_defer", &what);
        }
    }
}

/// A call copies a counter and then a page that is discarded before each time that it is counted. A lot of other bytes come first,
/// so that there is time to discard while the call is on its way.
fn a_call_copies_in_order(cpus: &[usize], _: bool) {
    let file = memory_file::create(c"t_defer", 0).unwrap();
    let lead = vec![0u8; LEAD_BYTES];
    let count = Count {
        copies: AtomicU64::new(0),
        begun: AtomicU64::new(0),
        done: AtomicU64::new(0),
        regions: [1, PAGES_COUNTED].map(|pages| Region::new(pages).unwrap()),
    };
    count.count(0);
    let counting = || (1..=COUNTS).for_each(|value| count.count(value));
    beside(cpus, || count.copy(&file, &lead), counting);
}

fn main() -> ExitCode {
    checks::fail_on_panic("t_defer");
    machine::prepare();
    let cpus = machine::allowed_cpus().unwrap();
    let switch = PolicySwitch::of_this_kernel();
    type Test = fn(&[usize], bool);
    let tests: [(&str, Test); 3] = checks::named![
        calls_in_progress_are_left_alone,
        nobody_uses_what_has_passed_by,
        a_call_copies_in_order,
    ];
    let policies = ["best", "best+defer"].map(str::to_owned);
    for policy in switch.resolve(&policies).unwrap() {
        switch.select(&policy).unwrap();
        for (name, test) in tests {
            test(&cpus, policy.ends_with(DEFERS));
            println!("t_defer: {policy}: {name} ok");
        }
    }
    println!("t_defer: OK");
    ExitCode::SUCCESS
}
