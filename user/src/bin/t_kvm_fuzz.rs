//! Requests of every kind and none to `/dev/kvm`, its machines and their CPUs, from several threads at once, while guests run what bytes come
//! along and their memory changes: all is answered, nothing is lost, and a guest runs afterwards as before.
//!
//! `t_kvm_fuzz [SECONDS [SEED]]`. On machines that have no virtual machines there is nothing to do.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::ExitCode;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use shootdown_user::child::{self, Child};
use shootdown_user::kvm::abi::{self, Cpuid, CpuidEntry, Regs, Sregs};
use shootdown_user::kvm::{self, Guest, Stop, code};
use shootdown_user::region::PAGE_BYTES;
use shootdown_user::{checks, fault, machine};

const THREADS: usize = 3;
const SECONDS: u64 = 2;
/// Descriptors there are at most at a time, besides the device.
const MOST: usize = 12;
/// Pages that requests and guests get to see: no reference leads there.
const PAGES: usize = 64;
/// With what is behind them: more than a request writes.
const RESERVED: usize = 2 * PAGES;
/// Between two signals to a thread that may be in a guest.
const PATIENCE: Duration = Duration::from_millis(2);
/// Reasons for which some guests are left, if there were more than a few runs.
const DUE_EXITS: [u32; 3] = [abi::EXIT_IO, abi::EXIT_HLT, abi::EXIT_MMIO];
const FEW_RUNS: u64 = 2000;
/// What threads and files leave behind.
const SPARE_KIB: u64 = 512;

const REQUESTS: [u32; 18] = [
    abi::GET_API_VERSION,
    abi::CREATE_VM,
    abi::CHECK_EXTENSION,
    abi::GET_VCPU_MMAP_SIZE,
    abi::GET_SUPPORTED_CPUID,
    abi::CREATE_VCPU,
    abi::GET_DIRTY_LOG,
    abi::SET_USER_MEMORY_REGION,
    abi::RUN,
    abi::GET_REGS,
    abi::SET_REGS,
    abi::GET_SREGS,
    abi::SET_SREGS,
    abi::INTERRUPT,
    abi::NMI,
    abi::SET_CPUID2,
    abi::ENABLE_CAP,
    abi::CLEAR_DIRTY_LOG,
];

/// Registers a steal-time record in the first MiB at EAX, for ever, where CPUID has that.
const STEAL_TIME: &[u8] = &[
    0xb9, 0x03, 0x4d, 0x56, 0x4b, // mov ecx, 0x4b564d03
    0x25, 0xc1, 0xff, 0x0f, 0x00, 0x31, 0xd2, // and eax, 0xfffc1; xor edx, edx
    0x0f, 0x30, 0xeb, 0xfc, // wrmsr; jmp to it
];

const PROGRAMS: [&[u8]; 9] = [
    STEAL_TIME,
    code::OUT,
    code::IN,
    code::WRITE,
    code::READ_SIGNED,
    code::COUNT,
    code::COPY,
    code::FAULT,
    code::CPUID,
];

/// Room for what CPUID tells guests.
const MOST_LEAVES: usize = 32;

/// What all threads work on.
struct Field {
    device: File,
    /// Machines and virtual CPUs, as they come.
    descriptors: Mutex<Vec<Arc<OwnedFd>>>,
    /// Where the pages are.
    pages: usize,
    is_over: AtomicBool,
    requests: AtomicU64,
    answered: AtomicU64,
    runs: AtomicU64,
    /// Bits of the reasons for which guests were left.
    exits: AtomicU64,
}

impl Field {
    fn new(device: File) -> io::Result<Self> {
        // What goes beyond the last page finds nothing.
        let pages = machine::map(0, RESERVED * PAGE_BYTES, libc::PROT_NONE, 0)?;
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let at = std::ptr::without_provenance_mut(pages);
        // SAFETY: a part of what was just reserved, to which nothing refers.
        machine::done(unsafe { libc::mprotect(at, PAGES * PAGE_BYTES, rights) })?;
        Ok(Self {
            device,
            descriptors: Mutex::default(),
            pages,
            is_over: AtomicBool::new(false),
            requests: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            runs: AtomicU64::new(0),
            exits: AtomicU64::new(0),
        })
    }

    /// A request; what it makes is there for all.
    fn request(&self, fd: i32, number: u32, argument: usize) -> Option<i32> {
        self.requests.fetch_add(1, Relaxed);
        // SAFETY: what the kernel reads or writes is in the pages, to which no reference leads, or is not there.
        let answer = unsafe { libc::ioctl(fd, number as _, argument) };
        if answer < 0 {
            return None;
        }
        self.answered.fetch_add(1, Relaxed);
        if matches!(number, abi::CREATE_VM | abi::CREATE_VCPU) {
            self.keep(answer);
        }
        if number == abi::RUN {
            self.runs.fetch_add(1, Relaxed);
        }
        Some(answer)
    }

    fn keep(&self, fd: i32) {
        // SAFETY: just made, and nobody else's.
        let made = Arc::new(unsafe { OwnedFd::from_raw_fd(fd) });
        let mut all = self.descriptors.lock().unwrap();
        all.push(made);
        if all.len() > MOST {
            all.remove(0);
        }
    }

    fn any(&self, random: &mut Rng) -> Option<Arc<OwnedFd>> {
        let all = self.descriptors.lock().unwrap();
        random.choice(all.iter()).cloned()
    }

    /// An address in the pages, aligned or not, mostly.
    fn place(&self, random: &mut Rng) -> usize {
        match random.u8(..12) {
            0 => *random
                .choice(&[0, 8, 0x8000_0000_0000, 0xffff_8000_0000_0000])
                .unwrap_or(&0),
            1 => self.pages + PAGES * PAGE_BYTES - random.usize(1..64),
            2 => self.pages + random.usize(..PAGES * PAGE_BYTES),
            _ => self.pages + random.usize(..PAGES) * PAGE_BYTES,
        }
    }

    /// What a field of a structure may have.
    fn word(&self, random: &mut Rng) -> u64 {
        match random.u8(..8) {
            0 => self.place(random) as u64,
            1 => random.u64(..),
            2 => random.u64(..) & random.u64(..) & random.u64(..) & random.u64(..),
            3 => u64::MAX - random.u64(..4),
            4 => random.u64(..PAGES as u64) * PAGE_BYTES as u64,
            _ => random.u64(..8),
        }
    }

    /// Fills a structure with such words.
    fn fill(&self, random: &mut Rng, words: usize) -> usize {
        let at = self.pages + random.usize(..PAGES / 2) * PAGE_BYTES;
        (0..words).for_each(|index| put(at + 8 * index, self.word(random)));
        at
    }

    /// Any number to any descriptor, with any argument.
    fn anything(&self, random: &mut Rng) {
        let descriptor = self.any(random);
        let fd = match random.u8(..5) {
            0 => Some(self.device.as_raw_fd()),
            _ => descriptor.as_ref().map(|fd| fd.as_raw_fd()),
        };
        let number = match random.u8(..8) {
            0 => 0xae00 | random.u32(..) & 0xffff_00ff,
            _ => *random.choice(&REQUESTS).unwrap_or(&abi::RUN),
        };
        let argument = match random.u8(..4) {
            0 => random.usize(..8),
            1 => self.place(random),
            _ => {
                let words = random.usize(..64);
                self.fill(random, words)
            }
        };
        if let Some(fd) = fd.filter(|_| number != abi::RUN) {
            self.request(fd, number, argument);
        }
    }

    /// A slot that may well be right.
    fn set_memory(&self, random: &mut Rng, machine: i32) {
        let page = PAGE_BYTES as u64;
        let first = random.usize(..PAGES);
        let pages = random.u64(..=(PAGES - first) as u64);
        let at = self.fill(random, 0);
        put(at, random.u64(..3) | random.u64(..4) << 32);
        put(at + 8, random.u64(..4) * random.u64(..32) * page);
        put(at + 16, pages * page);
        put(at + 24, (self.pages + first * PAGE_BYTES) as u64);
        self.request(machine, abi::SET_USER_MEMORY_REGION, at);
    }

    /// A machine with memory, a CPU, and a program somewhere.
    fn build(&self, random: &mut Rng) {
        let Some(machine) = self.request(self.device.as_raw_fd(), abi::CREATE_VM, 0) else {
            return;
        };
        let vcpu = self.request(machine, abi::CREATE_VCPU, random.usize(..3));
        match vcpu.filter(|_| random.bool()) {
            Some(vcpu) => self.prepare(random, machine, vcpu),
            None => {
                self.set_memory(random, machine);
                self.put_program(random);
            }
        }
    }

    /// A CPU before a program, in a machine that has all pages. Others may have closed either meanwhile.
    fn prepare(&self, random: &mut Rng, machine: i32, vcpu: i32) {
        let bytes = (PAGES * PAGE_BYTES) as u64;
        let mut slot = abi::MemoryRegion {
            flags: random.u32(..2),
            memory_size: bytes,
            userspace_addr: self.pages as u64,
            ..abi::MemoryRegion::default()
        };
        let mut registers = Regs {
            rip: self.put_program(random) as u64,
            rflags: 2,
            rax: random.u64(..),
            rcx: random.u64(..8),
            rdx: random.u64(..256),
            // A part of it is where no memory is.
            rdi: random.u64(..2 * bytes),
            rsi: random.u64(..2 * bytes),
            ..Regs::default()
        };
        let mut cpuid = Cpuid {
            entries: MOST_LEAVES as u32,
            padding: 0,
            entry: [CpuidEntry::default(); MOST_LEAVES],
        };
        let _refused = kvm::request_with(&self.device, abi::GET_SUPPORTED_CPUID, &mut cpuid)
            .and_then(|_| kvm::request_with(&vcpu, abi::SET_CPUID2, &mut cpuid));
        let _refused = kvm::request_with(&machine, abi::SET_USER_MEMORY_REGION, &mut slot)
            .and_then(|_| kvm::enter_flat_mode(&vcpu))
            .and_then(|()| kvm::request_with(&vcpu, abi::SET_REGS, &mut registers));
    }

    /// Puts one in a page, with or without mistakes; where from the first page on.
    fn put_program(&self, random: &mut Rng) -> usize {
        let place = random.usize(..PAGES) * PAGE_BYTES;
        let (at, mistakes) = (self.pages + place, random.u8(..3));
        let known = *random.choice(&PROGRAMS).unwrap_or(&code::COUNT);
        for index in 0..16 {
            let bytes: [u8; 8] = std::array::from_fn(|byte| match random.u8(..3) {
                0 if mistakes > 0 => random.u8(..),
                _ => known[(index * 8 + byte) % known.len()],
            });
            put(at + 8 * index, u64::from_le_bytes(bytes));
        }
        place
    }

    /// Registers of a CPU, but for a few.
    fn set_registers(&self, random: &mut Rng) {
        let Some(vcpu) = self.any(random) else { return };
        let (get, set, bytes) = match random.bool() {
            true => (abi::GET_REGS, abi::SET_REGS, size_of::<Regs>()),
            false => (abi::GET_SREGS, abi::SET_SREGS, size_of::<Sregs>()),
        };
        let at = self.fill(random, 0);
        self.request(vcpu.as_raw_fd(), get, at);
        for _ in 0..random.usize(..4) {
            put(at + random.usize(..bytes / 8) * 8, self.word(random));
        }
        self.request(vcpu.as_raw_fd(), set, at);
    }

    /// Runs a CPU, after something was written to the page that it shares with the kernel.
    fn run(&self, random: &mut Rng) {
        let Some(vcpu) = self.any(random) else { return };
        let (rights, fd) = (libc::PROT_READ | libc::PROT_WRITE, vcpu.as_raw_fd());
        let offset = [0, 0, 0, PAGE_BYTES as i64][random.usize(..4)];
        let bytes = [PAGE_BYTES, PAGE_BYTES, 1, 3 * PAGE_BYTES][random.usize(..4)];
        let null = std::ptr::null_mut();
        // SAFETY: a mapping at an address of the kernel's choice touches no memory that exists.
        let page = unsafe { libc::mmap(null, bytes, rights, libc::MAP_SHARED, fd, offset) };
        for _ in 0..random.usize(1..4) {
            if page != libc::MAP_FAILED {
                let at = page.addr() + random.usize(..64) * 8;
                put(at, if random.bool() { 0 } else { self.word(random) });
            }
            let ran = self.request(fd, abi::RUN, 0);
            if ran.is_some() && page != libc::MAP_FAILED && offset == 0 {
                let reason = page.wrapping_byte_add(abi::RUN_EXIT_REASON).cast::<u32>();
                // SAFETY: in the page, which is this thread's until it is unmapped below.
                let reason = unsafe { reason.read_volatile() };
                self.exits.fetch_or(1 << (reason % 64), Relaxed);
            }
        }
        if page != libc::MAP_FAILED {
            // SAFETY: just made; only `put` has been there.
            unsafe { libc::munmap(page, bytes) };
        }
    }

    /// Changes the memory that guests and requests see.
    fn change_memory(&self, random: &mut Rng) {
        let first = random.usize(..PAGES);
        let bytes = random.usize(1..=PAGES - first) * PAGE_BYTES;
        let at = std::ptr::without_provenance_mut(self.pages + first * PAGE_BYTES);
        let all = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // Whoever loses pages meanwhile gets an error, and so does a store of ours, by a fault that is handled, see `put`.
        match random.u8(..3) {
            // SAFETY: no reference leads to the pages.
            0 => drop(unsafe { libc::madvise(at, bytes, libc::MADV_DONTNEED) }),
            // SAFETY: as above.
            1 => drop(unsafe { libc::mprotect(at, bytes, libc::PROT_READ) }),
            // SAFETY: as above; new pages in place of the old.
            _ => drop(unsafe { libc::mmap(at, bytes, all, flags, -1, 0) }),
        }
        // SAFETY: as above.
        unsafe { libc::mprotect(at, bytes, all) };
    }

    /// Another program with the same descriptors: they are not for it.
    fn fork(&self, random: &mut Rng) {
        let Some(descriptor) = self.any(random) else {
            return;
        };
        let (fd, argument) = (descriptor.as_raw_fd(), self.fill(random, 8));
        let child = Child::start(|| {
            for number in REQUESTS {
                // SAFETY: as in `request`.
                unsafe { libc::ioctl(fd, number as _, argument) };
            }
            child::end(0)
        });
        child.and_then(Child::wait).unwrap();
    }

    fn step(&self, random: &mut Rng) {
        match random.u8(..32) {
            0..3 => self.build(random),
            3..10 => self.anything(random),
            10..13 => {
                if let Some(machine) = self.any(random) {
                    self.set_memory(random, machine.as_raw_fd());
                }
            }
            13..18 => self.set_registers(random),
            18..26 => self.run(random),
            26..28 => self.change_memory(random),
            28..30 => drop(self.put_program(random)),
            30 if random.u8(..16) == 0 => self.fork(random),
            _ => {
                let mut all = self.descriptors.lock().unwrap();
                let count = all.len();
                if count > 0 {
                    all.remove(random.usize(..count));
                }
            }
        }
    }
}

/// Stores a word in pages that other threads change, if they are there.
fn put(at: usize, value: u64) {
    let _refused = fault::store_word(at, value);
}

/// A guest that does what it should.
fn runs_as_before(device: &File) {
    let guest = Guest::new(device, 0).unwrap();
    let registers = Regs {
        rdi: 8192,
        rax: 77,
        ..Regs::default()
    };
    guest.load(code::WRITE, registers);
    assert_eq!((guest.run().unwrap(), guest.look(8192)), (Stop::Halted, 77));
}

fn play(device: &File, seconds: u64, seed: u64) -> io::Result<String> {
    let field = Field::new(device.try_clone()?)?;
    let threads = [const { AtomicI32::new(0) }; THREADS];
    thread::scope(|scope| {
        for (number, thread) in threads.iter().enumerate() {
            let field = &field;
            scope.spawn(move || {
                // SAFETY: takes nothing.
                thread.store(unsafe { libc::gettid() }, Relaxed);
                let mut random = Rng::with_seed(seed.wrapping_add(number as u64));
                while !field.is_over.load(Relaxed) {
                    field.step(&mut random);
                }
                thread.store(0, Relaxed);
            });
        }
        let start = Instant::now();
        while threads.iter().any(|thread| thread.load(Relaxed) != 0) || !field.is_over.load(Relaxed)
        {
            thread::sleep(PATIENCE);
            for thread in threads.iter().map(|thread| thread.load(Relaxed)) {
                if thread != 0 {
                    kvm::interrupt(thread);
                }
            }
            field
                .is_over
                .store(start.elapsed().as_secs() >= seconds, Relaxed);
        }
    });
    field.descriptors.lock().unwrap().clear();
    let at = std::ptr::without_provenance_mut(field.pages);
    // SAFETY: nobody uses the pages any more.
    machine::done(unsafe { libc::munmap(at, RESERVED * PAGE_BYTES) })?;
    let [requests, answered, runs] =
        [&field.requests, &field.answered, &field.runs].map(|count| count.load(Relaxed));
    let exits = field.exits.load(Relaxed);
    let reasons: Vec<u32> = (0..64).filter(|reason| exits >> reason & 1 != 0).collect();
    // Guests that get nowhere would prove little.
    let is_due = |reason| reasons.contains(&reason) || runs < FEW_RUNS;
    assert!(
        DUE_EXITS.into_iter().all(is_due),
        "{reasons:?} in {runs} runs"
    );
    Ok(format!(
        "{requests} requests, {answered} answered, {runs} of them runs, left for reasons {reasons:?}"
    ))
}

fn main() -> ExitCode {
    checks::fail_on_panic("t_kvm_fuzz");
    machine::prepare();
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse());
    let (Ok(seconds), Ok(seed)) = (
        arguments.next().unwrap_or(Ok(SECONDS)),
        arguments.next().unwrap_or(Ok(1)),
    ) else {
        println!("t_kvm_fuzz: the arguments are a number of seconds, and a seed");
        return ExitCode::from(2);
    };
    // Linux's is in an emulator that does not bear all guests (docs/guests.md).
    let device = kvm::open().unwrap();
    let Some(device) = device.filter(|_| machine::is_reference_kernel()) else {
        println!("t_kvm_fuzz: OK, there is no /dev/kvm, or Linux's");
        return ExitCode::SUCCESS;
    };
    kvm::catch_interruptions();
    fault::handle().unwrap();
    runs_as_before(&device);
    checks::must_not_lose_again(1, SPARE_KIB, || {
        let account = play(&device, seconds, seed).unwrap();
        println!("t_kvm_fuzz: {account}");
    });
    runs_as_before(&device);
    println!("t_kvm_fuzz: OK");
    ExitCode::SUCCESS
}
