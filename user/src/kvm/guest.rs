//! A machine with one virtual CPU in 32-bit flat mode, and programs of a few bytes for it.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering::SeqCst;

use super::abi::{self, DirtyLog, MemoryRegion, Regs, Segment, Sregs};
use super::{Machine, Vcpu, request, request_with};
use crate::counters::{self, CounterSource};
use crate::machine;
use crate::region::{PAGE_BYTES, Region};

/// Pages of a guest's memory, from guest-physical 0 on.
pub const MEMORY_PAGES: usize = 256;

/// What the engine counts, on all CPUs, of guests and roots whose tag holds nothing any more as they are entered or loaded.
const DROPPED: &str = "tags_dropped";

/// The page where programs are.
pub const CODE_PAGE: usize = 1;

/// Programs in 32-bit code. EDI and ESI are addresses, EAX is a value.
pub mod code {
    /// Writes AL to port DX, and halts.
    pub const OUT: &[u8] = &[0xee, 0xf4];
    /// Reads AX from port DX, and halts.
    pub const IN: &[u8] = &[0x66, 0xed, 0xf4];
    /// Writes EAX to EDI, and halts.
    pub const WRITE: &[u8] = &[0x89, 0x07, 0xf4];
    /// Reads EAX from EDI, and halts.
    pub const READ: &[u8] = &[0x8b, 0x07, 0xf4];
    /// Reads a byte with its sign from EDI to EAX, and halts.
    pub const READ_SIGNED: &[u8] = &[0x0f, 0xbe, 0x07, 0xf4];
    /// Counts at EDI, for ever.
    pub const COUNT: &[u8] = &[0xff, 0x07, 0xeb, 0xfc];
    /// Copies from EDI to ESI, for ever.
    pub const COPY: &[u8] = &[0x8b, 0x07, 0x89, 0x06, 0xeb, 0xfa];
    /// Counts in a page after the other from EDI on, ECX pages, from the first again, for ever (EBX is EDI, EDX is ECX).
    pub const SWEEP: &[u8] = &[
        0xff, 0x07, // inc dword [edi]
        0x81, 0xc7, 0x00, 0x10, 0x00, 0x00, // add edi, 4096
        0xe2, 0xf6, // loop to the first
        0x89, 0xdf, 0x89, 0xd1, // mov edi, ebx; mov ecx, edx
        0xeb, 0xf0, // jmp to the first
    ];
    /// Clears an SSE register, which takes CR4.OSFXSR, and halts.
    pub const CLEAR_XMM: &[u8] = &[0x0f, 0x57, 0xc0, 0xf4];
    /// Raises an exception, for which there is no table.
    pub const FAULT: &[u8] = &[0x0f, 0x0b];
    /// Writes EAX to DR0 and ECX to DR7, reads them to EBX and EDX, and halts.
    pub const DEBUG_REGISTERS: &[u8] = &[
        0x0f, 0x23, 0xc0, 0x0f, 0x23, 0xf9, // mov dr0, eax; mov dr7, ecx
        0x0f, 0x21, 0xc3, 0x0f, 0x21, 0xfa, // mov ebx, dr0; mov edx, dr7
        0xf4,
    ];
    /// Writes EAX and EDX to the model-specific register ECX, and halts.
    pub const WRMSR: &[u8] = &[0x0f, 0x30, 0xf4];
    /// Reads the model-specific register ECX to EAX and EDX, and halts.
    pub const RDMSR: &[u8] = &[0x0f, 0x32, 0xf4];
    /// Asks CPUID, and halts.
    pub const CPUID: &[u8] = &[0x0f, 0xa2, 0xf4];
}

/// Why the guest was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It wants nothing more.
    Halted,
    /// It writes a value of so many bytes to a port.
    Out(u16, u8, u32),
    /// It reads so many bytes from a port.
    In(u16, u8),
    /// It writes to, or reads from, where no memory is.
    Memory(u64, bool),
    /// For another reason.
    Other(u32),
}

/// The machine.
#[derive(Debug)]
pub struct Guest {
    /// Its descriptor.
    pub machine: Machine,
    /// Its CPU.
    pub vcpu: Vcpu,
    /// What is at guest-physical 0.
    pub memory: Region,
}

impl Guest {
    /// In memory of its own, whose writes are logged if `flags` say so.
    pub fn new(device: &File, flags: u32) -> io::Result<Self> {
        Self::in_memory(device, flags, Region::new(MEMORY_PAGES)?)
    }

    /// In that memory.
    pub fn in_memory(device: &File, flags: u32, memory: Region) -> io::Result<Self> {
        let machine = Machine::new(device)?;
        machine.set_memory(slot(&memory, flags))?;
        let vcpu = machine.vcpu(0)?;
        let guest = Self {
            machine,
            vcpu,
            memory,
        };
        enter_flat_mode(&guest.vcpu)?;
        Ok(guest)
    }

    /// Puts the program in place, and the CPU before it.
    pub fn load(&self, program: &[u8], registers: Regs) {
        let words = program.chunks(8).enumerate();
        for (at, bytes) in words {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            self.memory
                .word(CODE_PAGE, at)
                .store(u64::from_le_bytes(word), SeqCst);
        }
        let mut registers = Regs {
            rip: (CODE_PAGE * PAGE_BYTES) as u64,
            rflags: 2,
            ..registers
        };
        request_with(&self.vcpu, abi::SET_REGS, &mut registers).unwrap();
    }

    /// Runs until it is stopped.
    pub fn run(&self) -> io::Result<Stop> {
        request(&self.vcpu, abi::RUN, 0)?;
        Ok(self.stop())
    }

    /// As [`run`](Self::run); and before how many entries translations were dropped, where the kernel counts that (Linux does not).
    pub fn run_counting_drops(&self) -> io::Result<(Stop, Option<u64>)> {
        let mut counters = CounterSource::of_this_kernel();
        let before = counters.read();
        let stop = self.run()?;
        let after = counters.read();
        let is_counted = after.contains_key(DROPPED);
        let drops = is_counted.then(|| counters::grown(DROPPED, &before, &after));
        Ok((stop, drops))
    }

    /// What it was stopped for last.
    pub fn stop(&self) -> Stop {
        let vcpu = &self.vcpu;
        let at = abi::RUN_DETAILS;
        match vcpu.read::<u32>(abi::RUN_EXIT_REASON) {
            abi::EXIT_HLT => Stop::Halted,
            abi::EXIT_IO => {
                let (port, bytes) = (vcpu.read(at + 2), vcpu.read::<u8>(at + 1));
                match vcpu.read::<u8>(at) {
                    0 => Stop::In(port, bytes),
                    _ => {
                        let value = vcpu.read::<u32>(self.io_offset());
                        Stop::Out(port, bytes, said(value.into(), bytes.into()) as u32)
                    }
                }
            }
            abi::EXIT_MMIO => Stop::Memory(vcpu.read(at), vcpu.read::<u8>(at + 20) != 0),
            reason => Stop::Other(reason),
        }
    }

    /// How many bytes it wants to write to where no memory is, or to read, and what it writes.
    pub fn accessed(&self) -> (u32, u64) {
        let at = abi::RUN_DETAILS;
        let (bytes, value) = (self.vcpu.read(at + 16), self.vcpu.read::<u64>(at + 8));
        (bytes, said(value, bytes))
    }

    /// What it reads there.
    pub fn answer(&self, value: u64) {
        self.vcpu.write(abi::RUN_DETAILS + 8, value);
    }

    /// Where the bytes of an access to a port are.
    pub fn io_offset(&self) -> usize {
        self.vcpu.read::<u64>(abi::RUN_DETAILS + 8) as usize
    }

    /// Has the guest write a word.
    pub fn write(&self, address: usize, value: u32) -> io::Result<Stop> {
        self.load(
            code::WRITE,
            Regs {
                rdi: address as u64,
                rax: u64::from(value),
                ..Regs::default()
            },
        );
        self.run()
    }

    /// Has the guest read a word.
    pub fn read(&self, address: usize) -> io::Result<u32> {
        self.load(
            code::READ,
            Regs {
                rdi: address as u64,
                ..Regs::default()
            },
        );
        assert_eq!(self.run()?, Stop::Halted);
        Ok(self.regs()?.rax as u32)
    }

    /// Its registers.
    pub fn regs(&self) -> io::Result<Regs> {
        let mut regs = Regs::default();
        request_with(&self.vcpu, abi::GET_REGS, &mut regs)?;
        Ok(regs)
    }

    /// Its other registers.
    pub fn sregs(&self) -> io::Result<Sregs> {
        sregs_of(&self.vcpu)
    }

    /// Changes those.
    pub fn set_sregs(&self, sregs: &mut Sregs) -> io::Result<()> {
        request_with(&self.vcpu, abi::SET_SREGS, sregs).map(|_| ())
    }

    /// Its dirty pages, as `KVM_GET_DIRTY_LOG` has them.
    pub fn dirty_pages(&self) -> io::Result<Vec<usize>> {
        let mut bits = [0u64; MEMORY_PAGES / 64];
        self.log_to(bits.as_mut_ptr().expose_provenance() as u64)?;
        let is_set = |page: &usize| bits[page / 64] & 1 << (page % 64) != 0;
        Ok((0..MEMORY_PAGES).filter(is_set).collect())
    }

    /// The log, a bit a page, to that address.
    pub fn log_to(&self, bitmap: u64) -> io::Result<()> {
        let mut argument = DirtyLog {
            slot: 0,
            padding: 0,
            bitmap,
        };
        request_with(&self.machine, abi::GET_DIRTY_LOG, &mut argument).map(|_| ())
    }

    /// What the VMM finds in a word of its memory.
    pub fn look(&self, address: usize) -> u32 {
        let (page, word) = (address / PAGE_BYTES, address % PAGE_BYTES / 8);
        self.memory.word(page, word).load(SeqCst) as u32
    }

    /// Changes that word, and the one behind it to zero.
    pub fn put(&self, address: usize, value: u32) {
        let (page, word) = (address / PAGE_BYTES, address % PAGE_BYTES / 8);
        self.memory.word(page, word).store(value.into(), SeqCst);
    }

    /// Where the VMM has a page.
    pub fn host_page(&self, page: usize) -> *mut libc::c_void {
        self.memory.word(page, 0).as_ptr().cast()
    }

    /// Discards pages: guest and VMM find zeroes.
    pub fn discard(&self, page: usize, pages: usize) {
        assert!(page + pages <= MEMORY_PAGES);
        let bytes = pages * PAGE_BYTES;
        // SAFETY: inside the region, whose words are atomics: their values may change at any time.
        let status = unsafe { libc::madvise(self.host_page(page), bytes, libc::MADV_DONTNEED) };
        machine::done(status).unwrap();
    }

    /// Changes what the VMM may do with a page.
    pub fn protect(&self, page: usize, rights: i32) {
        // SAFETY: inside the region; the caller touches it only as far as the rights go.
        let status = unsafe { libc::mprotect(self.host_page(page), PAGE_BYTES, rights) };
        machine::done(status).unwrap();
    }
}

fn sregs_of(vcpu: &impl AsRawFd) -> io::Result<Sregs> {
    let mut sregs = Sregs::default();
    request_with(vcpu, abi::GET_SREGS, &mut sregs)?;
    Ok(sregs)
}

/// Has a virtual CPU begin in 32-bit flat mode.
pub fn enter_flat_mode(vcpu: &impl AsRawFd) -> io::Result<()> {
    let mut sregs = sregs_of(vcpu)?;
    let data = Segment {
        limit: u32::MAX,
        selector: 16,
        kind: 3,
        present: 1,
        s: 1,
        db: 1,
        g: 1,
        ..Segment::default()
    };
    sregs.cs = Segment {
        selector: 8,
        kind: 11,
        ..data
    };
    (sregs.ds, sregs.es, sregs.ss) = (data, data, data);
    sregs.cr0 |= 1;
    request_with(vcpu, abi::SET_SREGS, &mut sregs).map(|_| ())
}

/// All of that memory, from guest-physical 0 on.
pub fn slot(memory: &Region, flags: u32) -> MemoryRegion {
    MemoryRegion {
        slot: 0,
        flags,
        guest_phys_addr: 0,
        memory_size: (memory.pages() * PAGE_BYTES) as u64,
        userspace_addr: memory.word(0, 0).as_ptr().addr() as u64,
    }
}

/// What a kernel says of a value of so many bytes: Linux leaves the others as they were.
fn said(value: u64, bytes: u32) -> u64 {
    match machine::is_reference_kernel() {
        true => value,
        false => value & u64::MAX >> (64 - 8 * bytes.clamp(1, 8)),
    }
}
