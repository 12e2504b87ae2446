//! A page of the kernel's that changes beside programs, and CPUs in user mode and guests that are not asked to flush it: each looks at it when it is in the kernel again.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use shootdown::calls::CallData;
use shootdown::{CpuId, FlushRange, FlushScope, FreedTables, PageSize};

use super::Page;
use crate::arch::{apic, paging, percpu};
use crate::boot::BootInfo;
use crate::boot::fail::boot_fail;
use crate::cpus::MAX_CPUS;
use crate::platform::SHOOTDOWN;
use crate::quiet;
use crate::task::{self, Deadline};

const FRAMES: usize = 4;
/// What a stale translation leads to keeps an old number for a while.
static BEHIND: [Page; FRAMES] = [const { Page::new() }; FRAMES];
/// Shows one of them after the other.
static WINDOW: Page = Page::new();
/// The number in the frame that every CPU finds in the window, or a later one.
static SHOWN: AtomicU64 = AtomicU64::new(0);
/// Each CPU looks before it makes good what it has missed: then it must fail.
static IS_EARLY: AtomicBool = AtomicBool::new(false);

const ROUNDS: u64 = 200;
const PAUSE_NS: u64 = 100_000;
/// Page-table entry bits: where the frame is.
const FRAME: u64 = 0x000f_ffff_ffff_f000;

type Note = CallData<fn(CpuId)>;

static NOTES: [Note; MAX_CPUS] = [const { CallData::new(note as fn(CpuId)) }; MAX_CPUS];
static NOTED: AtomicU32 = AtomicU32::new(0);

fn note(_: CpuId) {
    NOTED.fetch_add(1, Ordering::Relaxed);
}

fn entry_of(page: &'static Page) -> &'static AtomicU64 {
    paging::image_entry((&raw const *page).addr())
}

/// Whether `name` asks for it; then CPUs outside the kernel are quiet from here on. With `quiet-early` a look must find an old page.
pub(super) fn begin_if_asked(name: &str) -> bool {
    IS_EARLY.store(name == "quiet-early", Ordering::Relaxed);
    let is_asked = matches!(name, "quiet" | "quiet-early");
    if is_asked {
        quiet::CHECK.call_once(|| look);
        quiet::turn_on();
    }
    is_asked
}

/// Starts what changes the page, if that has begun. All CPUs schedule threads.
pub fn start_if_asked(boot: &BootInfo) {
    if quiet::CHECK.is_completed()
        && let Err(errno) = task::start_kernel_thread("quiet", change, boot.cpus)
    {
        boot_fail!("no thread for the self-test: {errno:?}; use more memory (-m)");
    }
}

/// A CPU comes back into the kernel; `is_good` when it has made good what it has missed. Interrupts are off; perhaps an NMI handler.
fn look(is_good: bool) {
    if !is_good && !IS_EARLY.load(Ordering::Relaxed) {
        return;
    }
    let shown = SHOWN.load(Ordering::Acquire);
    let found = WINDOW.0[0].load(Ordering::Relaxed);
    // One panics: not the others, nor the same one when it comes back into the kernel as it panics.
    if found < shown && !is_good && !IS_EARLY.swap(false, Ordering::Relaxed) {
        return;
    }
    let cpu = percpu::cpu_id();
    assert!(found >= shown, "{cpu} finds {found} where {shown} is shown");
}

/// The thread.
fn change(cpus: usize) -> ! {
    let window = entry_of(&WINDOW);
    let rights = window.load(Ordering::Relaxed) & !FRAME;
    let range = FlushRange::pages((&raw const WINDOW).addr(), 1, PageSize::SIZE_4K);
    let mut posted = 0;
    for number in 1.. {
        let frame = &BEHIND[number as usize % FRAMES];
        frame.0[0].store(number, Ordering::Relaxed);
        let entry = entry_of(frame).load(Ordering::Relaxed);
        window.store(rights | entry & FRAME, Ordering::Relaxed);
        SHOOTDOWN.flush(FlushScope::Kernel, range, FreedTables::No);
        SHOWN.store(number, Ordering::Release);
        for cpu in (0..cpus).filter(|_| number % 4 == 0) {
            let target = CpuId::new(cpu as u32);
            posted += u32::from((SHOOTDOWN.control().post_deferrable(target, &NOTES[cpu])).is_ok());
            // Whatever the CPU is doing. What is refused is not needed.
            _ = apic::send_nmi(target);
        }
        if number % 8 == 0 {
            SHOOTDOWN
                .control()
                .serialise(&SHOOTDOWN.ready_cpus())
                .wait();
        }
        if number == ROUNDS {
            finish(posted, cpus);
        }
        task::doze(Deadline::after_ns(PAUSE_NS));
    }
    unreachable!("numbers do not end")
}

/// All that was posted runs in the end, because programs come into the kernel in the end.
fn finish(posted: u32, cpus: usize) {
    while NOTED.load(Ordering::Relaxed) < posted {
        task::doze(Deadline::after_ns(PAUSE_NS));
    }
    let skipped = SHOOTDOWN.watch().total_stats().quiet_skipped;
    log::info!(
        "selftest: quiet passed: {cpus} CPUs were left alone {skipped} times in {ROUNDS} flushes, {posted} posts"
    );
}
