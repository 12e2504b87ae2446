//! [`Platform`]: what a kernel in C provides, and [`Host`], which is that as the engine asks for it.

use core::ffi::{c_char, c_int, c_void};
use core::num::NonZeroU64;

use shootdown::flushes::RANGES;
use shootdown::remote::FlushRequest;
use shootdown::secondary::{SecondaryFailed, SecondaryFlush};
use shootdown::{CpuId, FreedTables, IpiRefused, LocalFlush};

use crate::cpus::CpuSet;
use crate::flush::{Range, SHOOTDOWN_FREED_TABLES};
use crate::line::Line;
use crate::opaque::check_pointer;
use crate::status::{Outcome, SHOOTDOWN_BUSY, SHOOTDOWN_INVALID, SHOOTDOWN_NULL, SHOOTDOWN_OK};

/// A wait that takes long, for on_stall. The text is valid during the call only.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Stall {
    /// For how long the waiter has been waiting, in nanoseconds.
    pub waited_ns: u64,
    /// The CPU whose request it is.
    pub initiator: u32,
    /// The lowest CPU that has not answered.
    pub target: u32,
    /// How many others have not either.
    pub others: u32,
    /// All of it in one line, with what the target does instead. Ends with a zero.
    pub text: *const c_char,
}

/// What was changed, for begin_secondary. It is valid during the call only.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// The pages.
    pub ranges: *const Range,
    /// How many ranges.
    pub count: usize,
    /// SHOOTDOWN_FREED_TABLES if page-table pages will be freed or reused.
    pub flags: u32,
}

/// What the kernel provides. It is copied by shootdown_init. Functions may be called with interrupts on or off, except where they say otherwise;
/// none may sleep, none may call back into the engine (but on_stall and begin_secondary: shootdown_poll, for a lock that they spin for; finish_secondary: see there), and none may leave by longjmp or an exception.
///
/// The engine's promises rest on these duties, which nobody can check:
///
/// 1. current_cpu is the true number of the running CPU, below SHOOTDOWN_MAX_CPUS, and does not change while interrupts are off or preemption is
///    disabled.
/// 2. Between irq_save and the matching irq_restore no code of this CPU runs but the caller's; NMI handlers never enter the engine, but
///    for shootdown_user_access_ok, shootdown_leave_quiet and shootdown_enter_quiet.
/// 3. After flush_pages, flush_space or flush_all this CPU uses no translation and no cached page-table entry that they name and that is
///    older than the call; walks after it see all stores to page tables that this CPU could see before.
/// 4. After load_root this CPU uses no translation of another root, but global ones, nor one of this root that is older than the call.
/// 5. What was written before send_ipi is visible to its target when the handler runs (x2APIC: MFENCE and LFENCE before the ICR is
///    written).
/// 6. An accepted interrupt reaches its target once that enables interrupts, is acknowledged to the controller first, and leads to
///    shootdown_handle_ipi. Several may merge if the handler runs after the last was sent. One to another CPU that was refused is accepted in the end.
/// 7. All functions may be called by several CPUs at once.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Platform {
    /// Passed to each of the functions; may be null.
    pub user: *mut c_void,
    /// The number of the running CPU. With interrupts and preemption on, the answer may be stale at once.
    pub current_cpu: Option<unsafe extern "C" fn(user: *mut c_void) -> u32>,
    /// Disables interrupts on this CPU and returns what irq_restore needs. Nests.
    pub irq_save: Option<unsafe extern "C" fn(user: *mut c_void) -> usize>,
    /// Puts back what irq_save returned, on the same CPU.
    pub irq_restore: Option<unsafe extern "C" fn(user: *mut c_void, state: usize)>,
    /// Sends the engine's interrupt to a CPU that is online; to this one too, for what it posts to itself and to look again. Interrupts are off;
    /// must not wait for the target, nor until that has taken its last one: it would hang, and only shootdown_look on a third CPU says so. Returns 0 if
    /// it was sent, anything else if it could not be queued: the engine tries again. To this CPU itself it may be refused for ever, if the timer's tick
    /// calls shootdown_look.
    pub send_ipi: Option<unsafe extern "C" fn(user: *mut c_void, target: u32) -> c_int>,
    /// Drops what this CPU has cached of count pages of 2^page_shift bytes from address start on, global translations too, and with freed
    /// not 0 every cached page-table entry that leads there (x86: INVLPG does both while EFER.TCE is clear; where it may be
    /// set, on AMD's processors, load CR3 with itself, too). count is at most 33. Interrupts are off.
    pub flush_pages: Option<
        unsafe extern "C" fn(
            user: *mut c_void,
            start: usize,
            count: usize,
            page_shift: u32,
            freed: u32,
        ),
    >,
    /// Drops every translation and cached page-table entry of the loaded root that is not global (x86: load CR3). Interrupts are off.
    pub flush_space: Option<unsafe extern "C" fn(user: *mut c_void)>,
    /// Drops every translation and cached page-table entry, global ones too (x86: toggle CR4.PGE). Interrupts are off.
    pub flush_all: Option<unsafe extern "C" fn(user: *mut c_void)>,
    /// Makes this the page-table root of this CPU (x86: the value of CR3). Interrupts are off.
    pub load_root: Option<unsafe extern "C" fn(user: *mut c_void, root: u64)>,
    /// Nanoseconds on a clock that does not run backwards on one CPU.
    pub now_ns: Option<unsafe extern "C" fn(user: *mut c_void) -> u64>,
    /// May be null, then send_ipi is used: sends the interrupt to every CPU of the set, none of which is this one. As send_ipi.
    pub send_ipi_mask:
        Option<unsafe extern "C" fn(user: *mut c_void, targets: *const CpuSet) -> c_int>,
    /// May be null where kernel code is never preempted, then preempt_enable is too: forbids that the task leaves this CPU. Nests.
    pub preempt_disable: Option<unsafe extern "C" fn(user: *mut c_void)>,
    /// Undoes one preempt_disable.
    pub preempt_enable: Option<unsafe extern "C" fn(user: *mut c_void)>,
    /// May be null, then the processor's hint is used: one turn of a spin loop.
    pub relax: Option<unsafe extern "C" fn(user: *mut c_void)>,
    /// May be null: a wait has taken longer than shootdown_set_stall_ns allows, in the waiter's context, or in that of shootdown_look; it goes on afterwards. It may print,
    /// or stop the machine. Provide it: a hang is silent without.
    pub on_stall: Option<unsafe extern "C" fn(user: *mut c_void, stall: *const Stall)>,
    /// May be null where nobody listens (shootdown_listen), then the next two are too. Tables by which listener translates were changed: has it begin to drop that. Returns what
    /// finish_secondary is asked with, or 0 if there is nothing more to wait for; before is 0 or what an earlier call for the same wait returned, perhaps for another listener: an answer that is not 0 stands for both. Interrupts
    /// are off and locks of the kernel are held; must not wait; a lock that it takes is spun for with shootdown_poll.
    pub begin_secondary: Option<
        unsafe extern "C" fn(
            user: *mut c_void,
            listener: *mut c_void,
            change: *const Change,
            before: u64,
        ) -> u64,
    >,
    /// Whether what was begun is done: SHOOTDOWN_OK, SHOOTDOWN_BUSY to be asked again, anything else if the device does not answer. Called by the waiter, in its context, on any CPU.
    /// May use the engine as that may.
    pub finish_secondary: Option<unsafe extern "C" fn(user: *mut c_void, token: u64) -> c_int>,
    /// Has listener let go of the tables and drop all. Until shootdown_release returns other CPUs may call begin_secondary for it: free it afterwards. Returns SHOOTDOWN_OK when it has.
    pub release_secondary:
        Option<unsafe extern "C" fn(user: *mut c_void, listener: *mut c_void) -> c_int>,
    /// May be null where nobody calls shootdown_serialise: from here on this CPU executes nothing that it fetched or decoded before (x86: SERIALIZE, or a write of CR2; Arm: ISB;
    /// RISC-V: FENCE.I; LoongArch: IBAR). Interrupts are off.
    pub synchronise_here: Option<unsafe extern "C" fn(user: *mut c_void)>,
}

/// The kernel, as the engine sees it: required functions are there.
#[derive(Debug)]
pub(crate) struct Host {
    table: Platform,
    required: Required,
}

/// The functions of the table that must not be null.
#[derive(Clone, Copy, Debug)]
struct Required {
    current_cpu: unsafe extern "C" fn(*mut c_void) -> u32,
    irq_save: unsafe extern "C" fn(*mut c_void) -> usize,
    irq_restore: unsafe extern "C" fn(*mut c_void, usize),
    send_ipi: unsafe extern "C" fn(*mut c_void, u32) -> c_int,
    flush_pages: unsafe extern "C" fn(*mut c_void, usize, usize, u32, u32),
    flush_space: unsafe extern "C" fn(*mut c_void),
    flush_all: unsafe extern "C" fn(*mut c_void),
    load_root: unsafe extern "C" fn(*mut c_void, u64),
    now_ns: unsafe extern "C" fn(*mut c_void) -> u64,
}

impl Required {
    /// `None` if one is null.
    fn of(table: &Platform) -> Option<Self> {
        Some(Self {
            current_cpu: table.current_cpu?,
            irq_save: table.irq_save?,
            irq_restore: table.irq_restore?,
            send_ipi: table.send_ipi?,
            flush_pages: table.flush_pages?,
            flush_space: table.flush_space?,
            flush_all: table.flush_all?,
            load_root: table.load_root?,
            now_ns: table.now_ns?,
        })
    }
}

// SAFETY: duty 7 of the table: all CPUs may call its functions at once, and `user` is only handed to these.
unsafe impl Sync for Host {}

impl Host {
    /// Whether there is a `synchronise_here`.
    pub(crate) fn can_synchronise(&self) -> bool {
        self.table.synchronise_here.is_some()
    }

    /// # Safety
    /// 1. The table is null or one that keeps its duties.
    pub(crate) unsafe fn of(table: *const Platform) -> Outcome<Self> {
        check_pointer(table)?;
        // SAFETY: duty 1.
        let table = unsafe { *table };
        let required = Required::of(&table).ok_or(SHOOTDOWN_NULL)?;
        let host = Self { table, required };
        let is_whole = table.preempt_disable.is_some() == table.preempt_enable.is_some()
            && table.finish_secondary.is_some() == host.has_secondary()
            && table.release_secondary.is_some() == host.has_secondary();
        match is_whole {
            true => Ok(host),
            false => Err(SHOOTDOWN_INVALID),
        }
    }

    /// Whether anybody may listen.
    pub(crate) fn has_secondary(&self) -> bool {
        self.table.begin_secondary.is_some()
    }
}

/// Calls a function of the table.
macro_rules! ask {
    ($host:ident, $function:expr $(, $argument:expr)*) => {
        // SAFETY: duties of the table; the arguments are what its documentation says.
        unsafe { ($function)($host.table.user $(, $argument)*) }
    };
}

/// As C has it.
fn flag(freed: FreedTables) -> u32 {
    match freed {
        FreedTables::No => 0,
        FreedTables::Yes => SHOOTDOWN_FREED_TABLES,
    }
}

fn sent(answer: c_int) -> Result<(), IpiRefused> {
    match answer {
        0 => Ok(()),
        _ => Err(IpiRefused),
    }
}

// SAFETY: duties 1 to 6 are those of the table. 7. Nothing is flushed remotely. 8. Tags are not used. 9. C does not unwind: the table
// says so. 10. `prefetch_write` does nothing. 11. and 12. as the header says.
unsafe impl shootdown::Platform for Host {
    type Cpus = shootdown::Cpus<{ crate::machine::N }>;
    const CONFIG: shootdown::Config = shootdown::Config::FULL.with_quiet(true).with_deaths(true);
    type IrqState = usize;

    fn current_cpu(&self) -> CpuId {
        CpuId::new(ask!(self, self.required.current_cpu))
    }

    fn irq_save(&self) -> usize {
        ask!(self, self.required.irq_save)
    }

    unsafe fn irq_restore(&self, state: usize) {
        ask!(self, self.required.irq_restore, state);
    }

    fn preempt_disable(&self) {
        if let Some(disable) = self.table.preempt_disable {
            ask!(self, disable);
        }
    }

    unsafe fn preempt_enable(&self) {
        if let Some(enable) = self.table.preempt_enable {
            ask!(self, enable);
        }
    }

    fn send_ipi(&self, target: CpuId) -> Result<(), IpiRefused> {
        sent(ask!(self, self.required.send_ipi, target.as_u32()))
    }

    fn send_ipi_mask(&self, targets: shootdown::CpuSet<'_>) -> Result<(), IpiRefused> {
        let Some(send) = self.table.send_ipi_mask else {
            return targets.iter().try_for_each(|target| self.send_ipi(target));
        };
        let targets = CpuSet::of_words(targets.words());
        sent(ask!(self, send, &raw const targets))
    }

    fn local_flush(&self, operation: LocalFlush) {
        match operation {
            LocalFlush::Pages(range, freed) => {
                let freed = flag(freed);
                let shift = range.page_size().bytes().trailing_zeros();
                let (start, count) = (range.start(), range.page_count());
                ask!(self, self.required.flush_pages, start, count, shift, freed);
            }
            LocalFlush::Space => ask!(self, self.required.flush_space),
            LocalFlush::All => ask!(self, self.required.flush_all),
        }
    }

    unsafe fn load_root(&self, root: u64) {
        ask!(self, self.required.load_root, root);
    }

    fn now_ns(&self) -> u64 {
        ask!(self, self.required.now_ns)
    }

    fn synchronise_here(&self) {
        if let Some(synchronise) = self.table.synchronise_here {
            ask!(self, synchronise);
        }
    }

    fn relax(&self) {
        match self.table.relax {
            Some(relax) => ask!(self, relax),
            None => core::hint::spin_loop(),
        }
    }

    fn begin_secondary(
        &self,
        listener: u64,
        request: &FlushRequest,
        before: Option<NonZeroU64>,
    ) -> Option<NonZeroU64> {
        let begin = self.table.begin_secondary?;
        let mut ranges = [Range::default(); RANGES];
        let mut count = 0;
        for (range, to) in request.ranges().zip(&mut ranges) {
            *to = Range::of(range);
            count += 1;
        }
        let change = Change {
            ranges: ranges.as_ptr(),
            count,
            flags: flag(request.freed_tables()),
        };
        let before = before.map_or(0, NonZeroU64::get);
        let listener = core::ptr::with_exposed_provenance_mut(listener as usize);
        NonZeroU64::new(ask!(self, begin, listener, &raw const change, before))
    }

    fn finish_secondary(&self, token: NonZeroU64) -> SecondaryFlush {
        let Some(finish) = self.table.finish_secondary else {
            return SecondaryFlush::Done;
        };
        match ask!(self, finish, token.get()) {
            SHOOTDOWN_OK => SecondaryFlush::Done,
            SHOOTDOWN_BUSY => SecondaryFlush::Busy,
            _ => SecondaryFlush::Failed,
        }
    }

    fn release_secondary(&self, listener: u64) -> Result<(), SecondaryFailed> {
        let Some(release) = self.table.release_secondary else {
            return Ok(());
        };
        let listener = core::ptr::with_exposed_provenance_mut(listener as usize);
        match ask!(self, release, listener) {
            SHOOTDOWN_OK => Ok(()),
            _ => Err(SecondaryFailed),
        }
    }

    fn on_stall(&self, stall: &shootdown::watch::Stall) {
        let Some(report) = self.table.on_stall else {
            return;
        };
        let line = Line::of(format_args!("{stall}"));
        let stall = Stall {
            waited_ns: stall.waited_ns,
            initiator: stall.initiator.as_u32(),
            target: stall.target.as_u32(),
            others: stall.others as u32,
            text: line.as_ptr(),
        };
        ask!(self, report, &raw const stall);
    }
}
