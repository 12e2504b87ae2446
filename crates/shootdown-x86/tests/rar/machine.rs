//! Processors that find a request late or at once, carry out what is pending in any order, fail, or never answer, between any two
//! accesses of the initiator.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use shootdown_x86::apic::SendError;
use shootdown_x86::msr::Msr;
use shootdown_x86::rar::{RarPort, RarTable};

pub const CPUS: usize = 4;
/// CPUs of the second word of a set, too.
pub const FIRST: usize = 62;
pub const WORDS: usize = 2;
pub const SLOTS: usize = 64;
pub const SMALL: usize = 1 << 12;
pub const LARGE: usize = 1 << 21;

pub type Table = RarTable<WORDS>;

/// What a CPU has cached: a translation of a page, or an entry that leads to page tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    pub pcid: u16,
    pub start: usize,
    pub bytes: usize,
    pub is_global: bool,
    pub is_table: bool,
}

impl Entry {
    pub fn covers(&self, address: usize) -> bool {
        address.wrapping_sub(self.start) < self.bytes
    }
}

#[derive(Default)]
pub struct Cpu {
    pub cached: Vec<Entry>,
    /// It was signalled, and has not looked at all of its vector since.
    pub is_looking: bool,
    /// A request that it has acknowledged: the slot, and the words as they were then.
    pub begun: Option<(usize, [u64; 8])>,
    /// Fails from now on.
    pub is_broken: bool,
}

pub struct Machine {
    pub cpus: RefCell<Vec<Cpu>>,
    /// As written by each CPU.
    pub msrs: RefCell<Vec<HashMap<u32, u64>>>,
    /// Which CPU acts before which access, and what it does.
    pub choices: RefCell<Vec<usize>>,
    pub current: Cell<usize>,
    pub slots: Cell<u64>,
    pub is_stuck: Cell<bool>,
    pub is_started: Cell<bool>,
    /// All CPUs do all that they can before each access.
    pub is_eager: Cell<bool>,
    pub log: RefCell<Vec<(u32, u64)>>,
}

impl Machine {
    pub fn new(cached: &[Entry], choices: &[usize], slots: u64) -> Self {
        let cpu = || Cpu {
            cached: cached.to_vec(),
            ..Cpu::default()
        };
        Self {
            cpus: RefCell::new((0..CPUS).map(|_| cpu()).collect()),
            msrs: RefCell::new(vec![HashMap::new(); CPUS]),
            choices: RefCell::new(choices.to_vec()),
            current: Cell::new(0),
            slots: Cell::new(slots),
            is_stuck: Cell::new(false),
            is_started: Cell::new(false),
            is_eager: Cell::new(false),
            log: RefCell::default(),
        }
    }

    /// Starts all CPUs; here a physical address is a virtual one.
    pub fn start(&self) -> &'static Table {
        let table: &'static Table = Box::leak(Box::new(Table::new()));
        for cpu in 0..CPUS {
            self.current.set(cpu);
            let physical = std::ptr::from_ref(table).expose_provenance() as u64;
            // SAFETY: the emulated processor has them, and the address is the table's.
            unsafe { table.start(self, FIRST + cpu, physical) };
        }
        self.is_started.set(true);
        table
    }

    pub fn byte(&self, cpu: usize, slot: usize) -> &AtomicU8 {
        let msrs = &self.msrs.borrow()[cpu];
        let vector: *const AtomicU8 =
            std::ptr::with_exposed_provenance(msrs[&Msr::RAR_ACTION_VECTOR.as_u32()] as usize);
        assert_eq!(vector.addr() % 64, 0);
        // SAFETY: a vector of 64 bytes in a table that is there for ever.
        unsafe { &*vector.wrapping_add(slot) }
    }

    pub fn payload(&self, cpu: usize, slot: usize) -> [u64; 8] {
        let msrs = &self.msrs.borrow()[cpu];
        let base: *const AtomicU64 =
            std::ptr::with_exposed_provenance(msrs[&Msr::RAR_PAYLOAD_BASE.as_u32()] as usize);
        assert_eq!(base.addr() % 4096, 0);
        // SAFETY: 64 payloads of 8 words in a table that is there for ever.
        std::array::from_fn(|word| unsafe {
            (*base.wrapping_add(slot * 8 + word)).load(Ordering::SeqCst)
        })
    }

    /// One step of a CPU: it ends a request, or begins the `nth` pending one; true if it did anything.
    pub fn step(&self, cpu: usize, nth: usize) -> bool {
        let mut cpus = self.cpus.borrow_mut();
        let this = &mut cpus[cpu];
        if let Some((slot, words)) = this.begun.take() {
            let status = match this.is_broken {
                true => 0x80,
                false => {
                    carry_out(&mut this.cached, words);
                    0
                }
            };
            self.byte(cpu, slot).store(status, Ordering::SeqCst);
            return true;
        }
        let is_pending = |slot: &usize| self.byte(cpu, *slot).load(Ordering::SeqCst) == 1;
        let pending: Vec<usize> = (0..SLOTS).filter(is_pending).collect();
        if !this.is_looking || pending.is_empty() {
            this.is_looking = false;
            return false;
        }
        let slot = pending[nth % pending.len()];
        self.byte(cpu, slot).store(2, Ordering::SeqCst);
        this.begun = Some((slot, self.payload(cpu, slot)));
        true
    }

    /// Before each access of the initiator.
    pub fn adversary(&self) {
        if !self.is_started.get() {
            return;
        }
        if self.is_eager.get() {
            self.drain();
        }
        let Some(choice) = self.choices.borrow_mut().pop() else {
            return;
        };
        let (cpu, what) = (choice % CPUS, choice / CPUS);
        match what % 6 {
            // Somebody else signals it.
            0 => self.cpus.borrow_mut()[cpu].is_looking = true,
            1 if what % 5 == 0 => self.cpus.borrow_mut()[cpu].is_broken ^= true,
            2 | 3 => while self.step(cpu, what) {},
            _ => {
                self.step(cpu, what);
            }
        }
    }

    pub fn drain(&self) {
        (0..CPUS).for_each(|cpu| while self.step(cpu, 0) {});
    }
}

/// What INVPCID drops at least.
pub fn carry_out(cached: &mut Vec<Entry>, words: [u64; 8]) {
    let [operation, zero, pcid, address, ..] = words;
    assert!(
        zero == 0 && words[4..] == [0; 4] && pcid < 1 << 12,
        "{words:x?}"
    );
    assert!(
        operation & 0xffff_0000 == 0 && operation >> 43 == 0,
        "reserved"
    );
    assert_eq!(operation >> 8 & 0xff, 2, "not INVPCID");
    let stride = [SMALL, LARGE, 1 << 30][(operation >> 35 & 3) as usize];
    let pages = (operation >> 37 & 0x3f) as usize;
    let is_address =
        |entry: &Entry| (0..pages).any(|page| entry.covers(address as usize + page * stride));
    let subtype = operation >> 32 & 7;
    assert!(subtype != 0 || pages > 0);
    cached.retain(|entry| {
        let is_named = match subtype {
            0 => u64::from(entry.pcid) == pcid && !entry.is_global && is_address(entry),
            1 => u64::from(entry.pcid) == pcid && !entry.is_global,
            2 => true,
            3 => !entry.is_global,
            _ => panic!("another subtype: {subtype}"),
        };
        !is_named
    });
}

impl RarPort for Machine {
    unsafe fn read_msr(&self, msr: Msr) -> u64 {
        match msr {
            Msr::CORE_CAPABILITIES => 1 << 1,
            Msr::RAR_INFO => (self.slots.get() - 1) << 32,
            _ => panic!("{msr:?} is not read"),
        }
    }

    unsafe fn write_msr(&self, msr: Msr, value: u64) {
        self.log.borrow_mut().push((msr.as_u32(), value));
        self.msrs.borrow_mut()[self.current.get()].insert(msr.as_u32(), value);
    }

    fn signal(&self, targets: &[u64]) -> Result<(), SendError> {
        for cpu in 0..CPUS {
            if is_in(targets, FIRST + cpu) {
                // Some of the targets may have been signalled when the controller hangs.
                self.cpus.borrow_mut()[cpu].is_looking = true;
                self.adversary();
                if self.is_stuck.get() {
                    return Err(SendError::Busy);
                }
            }
        }
        Ok(())
    }

    fn store_payload(&self, word: &AtomicU64, value: u64) {
        self.adversary();
        word.store(value, Ordering::SeqCst);
    }

    fn store_action(&self, byte: &AtomicU8, value: u8) {
        self.adversary();
        byte.store(value, Ordering::SeqCst);
    }

    fn load_action(&self, byte: &AtomicU8) -> u8 {
        self.adversary();
        byte.load(Ordering::SeqCst)
    }
}

pub fn is_in(set: &[u64], cpu: usize) -> bool {
    set[cpu / 64] >> (cpu % 64) & 1 != 0
}

/// The set of emulated CPUs with these bits.
pub fn set(bits: u64) -> [u64; WORDS] {
    [bits << FIRST, bits >> (64 - FIRST)]
}
