//! [`Machine`]: the engine, and what this library remembers besides, so that mistakes of C's are seen before the engine sees them.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use shootdown::{CpuId, CpuMemory, Platform, Shootdown};

use crate::host::Host;
use crate::layout::{EngineStorage, MemoryStorage, SHOOTDOWN_MAX_CPUS};
use crate::opaque::{Opaque, Stored};
use crate::secondary::Listener;
use crate::space::Space;
use crate::status::{
    Outcome, SHOOTDOWN_ALREADY, SHOOTDOWN_IN_FUNCTION, SHOOTDOWN_NO_MEMORY, SHOOTDOWN_NOT_ONLINE,
};

/// How many CPUs the engine knows.
pub(crate) const N: usize = SHOOTDOWN_MAX_CPUS;

/// What lies in the engine's memory.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) engine: Shootdown<Host>,
    /// Who listens to flushes of the kernel's part.
    pub(crate) listener: Listener,
    /// What each CPU has been given; null before.
    cpus: [AtomicPtr<CpuState>; N],
}

/// What lies in the memory of a CPU.
#[derive(Debug)]
pub(crate) struct CpuState {
    memory: CpuMemory<Host>,
    /// A function of C's runs here. Only its own CPU looks, with interrupts off.
    in_function: AtomicBool,
    /// The space that was loaded last and not left, lazily or not; or null. Its own CPU writes it.
    loaded: AtomicPtr<Space>,
}

// SAFETY: 1. `Opaque::at` asserts it.
unsafe impl Stored for Machine {
    type Storage = EngineStorage;
    const MARK: u64 = 0x656e_6967_6e65_2d43;
}

// SAFETY: 1. `Opaque::at` asserts it.
unsafe impl Stored for CpuState {
    type Storage = MemoryStorage;
    const MARK: u64 = 0x6d65_6d6f_7279_2d43;
}

/// The machine behind a pointer of C's.
///
/// # Safety
/// 1. It is null or an engine of C's, whose duty it is that it stays for ever.
pub(crate) unsafe fn machine(engine: *const EngineStorage) -> Outcome<&'static Machine> {
    // SAFETY: duty 1.
    let memory = unsafe { Opaque::<Machine>::at(engine) }?;
    memory.get()
}

/// In the place of a CPU whose memory is being handed to the engine.
const CLAIMED: *mut CpuState = core::ptr::dangling_mut();

impl Machine {
    pub(crate) fn new(host: Host) -> Self {
        Self {
            engine: Shootdown::new(host),
            listener: Listener::none(),
            cpus: [const { AtomicPtr::new(null_mut()) }; N],
        }
    }

    /// Gives `cpu` its memory.
    pub(crate) fn attach(&'static self, cpu: CpuId, memory: &'static Opaque<CpuState>) -> Outcome {
        let place = &self.cpus[cpu.index()];
        // ORDERING: nothing is published yet.
        let claim =
            place.compare_exchange(null_mut(), CLAIMED, Ordering::Relaxed, Ordering::Relaxed);
        claim.map_err(|_| SHOOTDOWN_ALREADY)?;
        let filled = memory.fill(CpuState::new).and_then(|()| memory.get());
        let state = filled.inspect_err(|_| {
            // ORDERING: as above.
            place.store(null_mut(), Ordering::Relaxed);
        })?;
        self.engine
            .attach(cpu, core::slice::from_ref(&state.memory));
        // ORDERING: Release publishes the state, and that the engine has it; pairs with `state`.
        place.store(core::ptr::from_ref(state).cast_mut(), Ordering::Release);
        Ok(())
    }

    /// What `cpu` has been given.
    pub(crate) fn state(&self, cpu: CpuId) -> Option<&'static CpuState> {
        // ORDERING: acquires the state; pairs with `attach`.
        let state = self.cpus.get(cpu.index())?.load(Ordering::Acquire);
        if state == CLAIMED {
            return None;
        }
        // SAFETY: it is null, or memory that stays for ever.
        unsafe { state.as_ref() }
    }

    /// Whether any CPU has `space` loaded or has not left it.
    pub(crate) fn has_loaded(&self, space: *const Space) -> bool {
        let cpus = (0..N).filter_map(|cpu| self.state(CpuId::new(cpu as u32)));
        // ORDERING: Acquire: who has left it uses it no more; pairs with `set_loaded`.
        let mut loaded = cpus.map(|state| state.loaded.load(Ordering::Acquire));
        loaded.any(|loaded| core::ptr::eq(loaded, space))
    }

    /// Stops interrupts, and says where we are.
    pub(crate) fn here(&self) -> Outcome<Here<'_>> {
        let irq = IrqOff::new(self.engine.platform());
        let cpu = self.engine.platform().current_cpu();
        let state = self.state(cpu).ok_or(SHOOTDOWN_NO_MEMORY)?;
        Ok(Here {
            cpu,
            state,
            _irq: irq,
        })
    }

    /// The running CPU has memory: enough for what never waits for functions.
    pub(crate) fn check_memory(&self) -> Outcome {
        self.here().map(drop)
    }

    /// As [`check_memory`](Self::check_memory), and no function of C's runs here: calls may wait.
    pub(crate) fn check_outside_function(&self) -> Outcome {
        self.here()?.check_outside_function()
    }

    /// As [`check_memory`](Self::check_memory), where interrupts are off or the answer may be old: a CPU keeps its memory.
    pub(crate) fn check_attached(&self) -> Outcome {
        let cpu = self.engine.platform().current_cpu();
        self.state(cpu).map(drop).ok_or(SHOOTDOWN_NO_MEMORY)
    }

    pub(crate) fn is_online(&self, cpu: CpuId) -> bool {
        self.engine.ready_cpus().contains(cpu)
    }

    pub(crate) fn check_online(&self, cpu: CpuId) -> Outcome {
        match self.is_online(cpu) {
            true => Ok(()),
            false => Err(SHOOTDOWN_NOT_ONLINE),
        }
    }
}

impl CpuState {
    fn new() -> Self {
        Self {
            memory: CpuMemory::new(),
            in_function: AtomicBool::new(false),
            loaded: AtomicPtr::new(null_mut()),
        }
    }

    /// Runs `function` as one that was called here, with interrupts off.
    pub(crate) fn inside_function(&self, function: impl FnOnce()) {
        let before = self.in_function.swap(true, Ordering::Relaxed);
        function();
        self.in_function.store(before, Ordering::Relaxed);
    }
}

/// The running CPU; interrupts are off until it is dropped.
pub(crate) struct Here<'a> {
    pub(crate) cpu: CpuId,
    state: &'static CpuState,
    _irq: IrqOff<'a>,
}

impl Here<'_> {
    pub(crate) fn check_outside_function(&self) -> Outcome {
        match self.state.in_function.load(Ordering::Relaxed) {
            true => Err(SHOOTDOWN_IN_FUNCTION),
            false => Ok(()),
        }
    }

    /// The space that this CPU has not left.
    pub(crate) fn loaded(&self) -> Option<&'static Space> {
        let loaded = self.state.loaded.load(Ordering::Relaxed);
        // SAFETY: null, or a space: `shootdown_space_deinit` refuses one that is named here.
        unsafe { loaded.as_ref() }
    }

    /// From now on this CPU has not left `space`.
    pub(crate) fn set_loaded(&self, space: Option<&'static Space>) {
        let space = space.map_or(null_mut(), |space| core::ptr::from_ref(space).cast_mut());
        // ORDERING: Release publishes our last use of the one before; pairs with `has_loaded`.
        self.state.loaded.store(space, Ordering::Release);
    }
}

/// Interrupts are off until this is dropped.
struct IrqOff<'a> {
    host: &'a Host,
    state: usize,
}

impl<'a> IrqOff<'a> {
    fn new(host: &'a Host) -> Self {
        let state = host.irq_save();
        Self { host, state }
    }
}

impl Drop for IrqOff<'_> {
    fn drop(&mut self) {
        // SAFETY: 1. `new` saved it.
        unsafe { self.host.irq_restore(self.state) };
    }
}
