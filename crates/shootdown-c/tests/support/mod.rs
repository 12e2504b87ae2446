//! A machine whose CPUs are threads that look for interrupts in a loop.

#![allow(dead_code, reason = "not every test program uses every helper")]

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use shootdown_c::*;

const CPUS: usize = 2;

/// Calls a function as a C kernel would, perhaps with a mistake.
macro_rules! call {
    ($function:ident($($argument:expr),* $(,)?)) => {{
        // SAFETY: the pointers are null, or what the header says.
        unsafe { $function($($argument),*) }
    }};
}

/// Calls one, which answers with this status.
macro_rules! told {
    ($status:expr, $function:ident($($argument:expr),* $(,)?)) => {
        assert_eq!(call!($function($($argument),*)), $status)
    };
}

thread_local! {
    static CPU: Cell<u32> = const { Cell::new(0) };
    static FLUSHED: Cell<Option<Flushed>> = const { Cell::new(None) };
}

/// One machine; it stays for ever.
pub struct Machine(&'static Parts);

struct Parts {
    engine: std::cell::UnsafeCell<EngineStorage>,
    ipis: [AtomicBool; CPUS],
}

// SAFETY: only the library looks at the storage, and it may be used from all threads.
unsafe impl Sync for Parts {}

/// What the platform was asked to drop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flushed {
    /// Start, count, shift, freed.
    Pages(usize, usize, u32, u32),
    Space,
    All,
}

/// What this thread has dropped last.
pub fn flushed() -> Option<Flushed> {
    FLUSHED.take()
}

/// Ends the other thread, also when the work panics.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// This thread is that CPU from now on.
pub fn become_cpu(cpu: u32) {
    CPU.set(cpu);
}

/// The CPUs of these bits.
pub fn cpus(bits: u64) -> CpuSet {
    let mut set = CpuSet::default();
    set.words[0] = bits;
    set
}

unsafe extern "C" fn current_cpu(_: *mut c_void) -> u32 {
    CPU.get()
}

unsafe extern "C" fn irq_save(_: *mut c_void) -> usize {
    0
}

unsafe extern "C" fn irq_restore(_: *mut c_void, _: usize) {}

unsafe extern "C" fn send_ipi(user: *mut c_void, target: u32) -> c_int {
    // SAFETY: it is a machine's.
    let parts = unsafe { &*user.cast::<Parts>() };
    parts.ipis[target as usize].store(true, Ordering::SeqCst);
    0
}

unsafe extern "C" fn flush_pages(
    _: *mut c_void,
    start: usize,
    count: usize,
    shift: u32,
    freed: u32,
) {
    FLUSHED.set(Some(Flushed::Pages(start, count, shift, freed)));
}

unsafe extern "C" fn flush_space(_: *mut c_void) {
    FLUSHED.set(Some(Flushed::Space));
}

unsafe extern "C" fn flush_all(_: *mut c_void) {
    FLUSHED.set(Some(Flushed::All));
}

unsafe extern "C" fn load_root(_: *mut c_void, _: u64) {}

unsafe extern "C" fn now_ns(_: *mut c_void) -> u64 {
    thread_local! {
        static START: Instant = Instant::now();
    }
    START.with(|start| start.elapsed().as_nanos() as u64)
}

/// A platform of no machine yet.
pub fn table() -> Platform {
    Platform {
        user: std::ptr::null_mut(),
        current_cpu: Some(current_cpu),
        irq_save: Some(irq_save),
        irq_restore: Some(irq_restore),
        send_ipi: Some(send_ipi),
        flush_pages: Some(flush_pages),
        flush_space: Some(flush_space),
        flush_all: Some(flush_all),
        load_root: Some(load_root),
        now_ns: Some(now_ns),
        send_ipi_mask: None,
        preempt_disable: None,
        preempt_enable: None,
        relax: None,
        on_stall: None,
        begin_secondary: None,
        finish_secondary: None,
        release_secondary: None,
        synchronise_here: None,
    }
}

impl Machine {
    /// With so many CPUs that have memory; this thread is CPU 0, and online.
    pub fn with_cpus(count: usize) -> Self {
        Self::with(count, |_| ())
    }

    /// The same, with what `add` adds to the platform.
    pub fn with(count: usize, add: impl FnOnce(&mut Platform)) -> Self {
        become_cpu(0);
        let parts: &'static Parts = Box::leak(Box::new(Parts {
            engine: EngineStorage::ZERO.into(),
            ipis: [const { AtomicBool::new(false) }; CPUS],
        }));
        let mut table = Platform {
            user: std::ptr::from_ref(parts).cast_mut().cast(),
            ..table()
        };
        add(&mut table);
        let machine = Self(parts);
        let engine = machine.engine();
        // SAFETY: zeroed storage that stays, and a platform that keeps its duties.
        let made = unsafe { shootdown_init(engine, SHOOTDOWN_ENGINE_SIZE, &table) };
        assert_eq!(made, SHOOTDOWN_OK);
        for cpu in 0..count {
            let memory = Box::leak(Box::new(MemoryStorage::ZERO));
            // SAFETY: zeroed storage that stays.
            let attached = unsafe { shootdown_attach(engine, cpu as u32, memory) };
            assert_eq!(attached, SHOOTDOWN_OK);
        }
        // SAFETY: the engine is one.
        assert_eq!(unsafe { shootdown_online(engine) }, SHOOTDOWN_OK);
        machine
    }

    pub fn engine(&self) -> *mut EngineStorage {
        self.0.engine.get()
    }

    /// Runs `work` while another thread is CPU `other`, online, and takes its interrupts.
    pub fn beside(&self, other: u32, work: impl FnOnce()) {
        let (parts, is_over, is_online) =
            (self.0, &AtomicBool::new(false), &AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(move || {
                become_cpu(other);
                let engine = parts.engine.get();
                // SAFETY: the engine is one.
                assert_eq!(unsafe { shootdown_online(engine) }, SHOOTDOWN_OK);
                is_online.store(true, Ordering::SeqCst);
                while !is_over.load(Ordering::SeqCst) {
                    if parts.ipis[other as usize].swap(false, Ordering::SeqCst) {
                        // SAFETY: as above.
                        assert_eq!(unsafe { shootdown_handle_ipi(engine) }, SHOOTDOWN_OK);
                    }
                    std::hint::spin_loop();
                }
            });
            while !is_online.load(Ordering::SeqCst) {
                std::hint::spin_loop();
            }
            let _end = SetOnDrop(is_over);
            work();
        });
    }
}
