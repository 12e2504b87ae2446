//! A machine on one thread: a CPU that waits lets the others take their interrupts. The same seed gives the same run, and a
//! machine that does not flush shows that the torture notices.

use shootdown::Cpus;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use shootdown::*;
use shootdown_torture::{Context, FRAMES, Host, Memory, PAGES, Region, SPACES, Torture, WorkerId};

pub const CPUS: usize = 3;
/// The kernel's part begins here.
const KERNEL: usize = 1 << 40;
const PAGE: usize = 4096;

pub type Engine = Shootdown<Puppet>;

/// What the machine does wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    None,
    /// Flushes do nothing.
    NoFlush,
}

#[derive(Debug)]
pub struct Puppet {
    fault: Fault,
    engine: OnceLock<&'static Engine>,
    current: AtomicU32,
    irqs_off: [AtomicBool; CPUS],
    pending: [AtomicBool; CPUS],
    /// It is in a wait below us on the one stack.
    waits: [AtomicBool; CPUS],
    root: [AtomicU64; CPUS],
    /// Frame plus one, by CPU, region and page.
    tlb: [[[AtomicU64; PAGES]; SPACES + 1]; CPUS],
    clock: AtomicU64,
}

impl Puppet {
    pub fn new(fault: Fault) -> Self {
        Self {
            fault,
            engine: OnceLock::new(),
            current: AtomicU32::new(0),
            irqs_off: Default::default(),
            pending: Default::default(),
            waits: Default::default(),
            root: Default::default(),
            tlb: [const { [const { [const { AtomicU64::new(0) }; PAGES] }; SPACES + 1] }; CPUS],
            clock: AtomicU64::new(0),
        }
    }

    fn me(&self) -> usize {
        self.current.load(Relaxed) as usize
    }

    /// Goes on as `cpu`, whose interrupts come as it next enables them.
    pub fn continue_as(&self, cpu: usize) {
        self.current.store(cpu as u32, Relaxed);
    }

    /// Goes on as `cpu`.
    pub fn become_cpu(&self, cpu: usize) {
        self.current.store(cpu as u32, Relaxed);
        self.take_interrupt();
    }

    fn take_interrupt(&self) {
        let me = self.me();
        if !self.irqs_off[me].load(Relaxed) && self.pending[me].swap(false, Relaxed) {
            self.irqs_off[me].store(true, Relaxed);
            self.engine.get().unwrap().handle_ipi();
            self.irqs_off[me].store(false, Relaxed);
        }
    }

    fn drop_pages(&self, region: usize, keep: impl Fn(usize) -> bool) {
        for (page, entry) in self.tlb[self.me()][region].iter().enumerate() {
            if !keep(page) {
                entry.store(0, Relaxed);
            }
        }
    }
}

/// The root with this number.
fn tables(number: u64) -> Root {
    // SAFETY: 1. to load a root of this machine is to note its number. 2. to 4. there are no tables behind it, and no windows.
    unsafe { Root::new(number) }
}

// SAFETY: as above.
const KERNEL_ROOT: KernelRoot = unsafe { KernelRoot::new(0) };

fn address(region: usize, page: usize) -> usize {
    let base = if region == SPACES { KERNEL } else { 0 };
    base + page * PAGE
}

// SAFETY: one thread; `current` changes only where a CPU waits, and comes back; interrupts respect `irqs_off`. A faulty
// machine breaks contract 3 on purpose, and its loads are no memory accesses.
unsafe impl Platform for Puppet {
    type Cpus = Cpus<CPUS>;
    const CONFIG: shootdown::Config = shootdown::Config::FULL;
    type IrqState = bool;

    fn current_cpu(&self) -> CpuId {
        CpuId::new(self.current.load(Relaxed))
    }

    fn irq_save(&self) -> bool {
        self.irqs_off[self.me()].swap(true, Relaxed)
    }

    unsafe fn irq_restore(&self, state: bool) {
        self.irqs_off[self.me()].store(state, Relaxed);
        self.take_interrupt();
    }

    fn preempt_disable(&self) {}

    unsafe fn preempt_enable(&self) {}

    fn send_ipi(&self, target: CpuId) -> Result<(), IpiRefused> {
        self.pending[target.index()].store(true, Relaxed);
        Ok(())
    }

    fn local_flush(&self, operation: LocalFlush) {
        if self.fault == Fault::NoFlush {
            return;
        }
        for region in 0..=SPACES {
            self.drop_pages(region, |page| match operation {
                LocalFlush::Pages(range, _) => {
                    !(range.start()..range.end()).contains(&address(region, page))
                }
                LocalFlush::Space => region == SPACES,
                LocalFlush::All => false,
            });
        }
    }

    unsafe fn load_root(&self, root: u64) {
        self.root[self.me()].store(root, Relaxed);
        for region in 0..SPACES {
            self.drop_pages(region, |_| false);
        }
    }

    fn now_ns(&self) -> u64 {
        self.clock.fetch_add(100, Relaxed)
    }

    fn relax(&self) {
        let me = self.me();
        let waited = self.waits[me].swap(true, Relaxed);
        for cpu in (0..CPUS).filter(|cpu| *cpu != me) {
            self.become_cpu(cpu);
            if self.waits[cpu].load(Relaxed) {
                // What its own loop would do next: those above it on the stack wait for flushes only.
                self.engine.get().unwrap().poll();
            }
        }
        self.current.store(me as u32, Relaxed);
        self.waits[me].store(waited, Relaxed);
    }
}

pub struct Machine {
    pub engine: Engine,
    spaces: [AddressSpace<Cpus<CPUS>>; SPACES],
    /// Frame plus one.
    table: [[AtomicU64; PAGES]; SPACES + 1],
    frames: [AtomicU64; FRAMES],
    entered: [AtomicU64; CPUS],
    pages: usize,
    torture: OnceLock<&'static Torture<CPUS>>,
    is_in_step: [AtomicBool; CPUS],
}

impl Machine {
    pub fn boot(fault: Fault, pages: usize) -> &'static Self {
        let engine = Shootdown::new(Puppet::new(fault));
        let memory = Vec::from_iter((0..CPUS).map(|_| CpuMemory::new()));
        engine.attach(CpuId::new(0), Vec::leak(memory));
        let spaces = std::array::from_fn(|i| AddressSpace::new(&engine, tables(i as u64 + 1)));
        let machine: &'static Self = Box::leak(Box::new(Self {
            engine,
            spaces,
            table: [const { [const { AtomicU64::new(0) }; PAGES] }; SPACES + 1],
            frames: [const { AtomicU64::new(0) }; FRAMES],
            entered: Default::default(),
            pages,
            torture: OnceLock::new(),
            is_in_step: Default::default(),
        }));
        let puppet = machine.engine.platform();
        assert!(puppet.engine.set(&machine.engine).is_ok());
        for cpu in 0..CPUS {
            puppet.become_cpu(cpu);
            machine.engine.online();
        }
        machine
    }

    /// One step of a CPU's worker, whose interrupts come as it next enables them.
    pub fn step(&self, torture: &'static Torture<CPUS>, cpu: usize) {
        self.torture.get_or_init(|| torture);
        let puppet = self.engine.platform();
        let before = puppet.me();
        puppet.continue_as(cpu);
        self.is_in_step[cpu].store(true, Relaxed);
        torture.step(self, WorkerId::task(cpu), Context::Task);
        self.is_in_step[cpu].store(false, Relaxed);
        puppet.continue_as(before);
    }
}

fn index(region: Region) -> usize {
    match region {
        Region::Space(index) => index,
        Region::Kernel => SPACES,
        Region::Window(_) => unreachable!("no CPU has windows here"),
    }
}

impl Memory<CPUS> for Machine {
    fn spaces(&self) -> usize {
        SPACES
    }

    fn space(&self, index: usize) -> &AddressSpace<Cpus<CPUS>> {
        &self.spaces[index]
    }

    fn pages(&self, _: Region) -> usize {
        self.pages
    }

    fn address(&self, region: Region, page: usize) -> usize {
        address(index(region), page)
    }

    fn frames(&self) -> usize {
        FRAMES
    }

    fn write_frame(&self, frame: usize, word: u64) {
        self.frames[frame].store(word, Relaxed);
    }

    fn map(&self, region: Region, page: usize, frame: Option<usize>) {
        let entry = frame.map_or(0, |frame| frame as u64 + 1);
        self.table[index(region)][page].store(entry, Relaxed);
    }

    fn load(&self, region: Region, page: usize) -> Option<u64> {
        let puppet = self.engine.platform();
        let entry = &puppet.tlb[puppet.me()][index(region)][page];
        if entry.load(Relaxed) == 0 {
            entry.store(self.table[index(region)][page].load(Relaxed), Relaxed);
        }
        let frame = (entry.load(Relaxed) as usize).checked_sub(1)?;
        Some(self.frames[frame].load(Relaxed))
    }

    fn entered(&self) -> Option<usize> {
        let entered = self.entered[self.engine.platform().me()].load(Relaxed);
        (entered as usize).checked_sub(1)
    }

    fn enter(&self, space: Option<usize>) {
        let before = self.entered().map(|index| &self.spaces[index]);
        match (before, space) {
            (_, Some(next)) => self.engine.switch_to(before, &self.spaces[next]),
            (Some(before), None) => self.engine.switch_away(before, KERNEL_ROOT),
            (None, None) => {}
        }
        let entered = space.map_or(0, |index| index as u64 + 1);
        self.entered[self.engine.platform().me()].store(entered, Relaxed);
    }
}

impl Host<CPUS> for Machine {
    type Platform = Puppet;
    type Memory = Self;

    fn engine(&self) -> &Engine {
        &self.engine
    }

    fn memory(&self) -> &Self {
        self
    }

    fn possible_cpus(&self) -> CpuMask<Cpus<CPUS>> {
        CpuMask::first(CPUS)
    }

    /// Meanwhile another CPU does something.
    fn preempt(&self) {
        let puppet = self.engine.platform();
        // A called function comes here, too.
        if puppet.irqs_off[puppet.me()].load(Relaxed) {
            return;
        }
        let idle = (0..CPUS).find(|cpu| !self.is_in_step[*cpu].load(Relaxed));
        if let (Some(cpu), Some(torture)) = (idle, self.torture.get()) {
            self.step(torture, cpu);
        }
    }
}
