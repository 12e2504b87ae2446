//! Virtual machines by Linux's KVM interface, with nothing in between: for programs that check the interface itself.

pub mod abi;
mod background;
mod guest;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::process::ExitCode;
use std::ptr::NonNull;

pub use background::{catch_interruptions, interrupt};
pub use guest::{CODE_PAGE, Guest, MEMORY_PAGES, Stop, code, enter_flat_mode, slot};

use crate::machine::{self, done};
use crate::modules;
use abi::{
    CREATE_VCPU, CREATE_VM, Cpuid, CpuidEntry, GET_VCPU_MMAP_SIZE, MemoryRegion,
    SET_USER_MEMORY_REGION,
};

/// The device.
pub const PATH: &str = "/dev/kvm";
const NUMBER: libc::dev_t = libc::makedev(10, 232);
/// Linux's modules, in the order in which they need each other.
const COMMON_MODULES: [&str; 2] = ["irqbypass", "kvm"];
/// One of them fits the processor.
const VENDOR_MODULES: [&str; 2] = ["kvm-amd", "kvm-intel"];

/// Loads the modules that the lab has packed, and makes the device's node. Once is enough.
pub fn prepare() -> io::Result<()> {
    let packed = |name: &&str| modules::packed(name);
    if modules::packed("kvm").is_none() || Path::new(PATH).exists() {
        return Ok(());
    }
    for path in COMMON_MODULES.iter().filter_map(packed) {
        modules::load(&path, c"")?;
    }
    for path in VENDOR_MODULES.iter().filter_map(packed) {
        // The other one's refusal is no error; without either the device does not open.
        let _ignored = modules::load(&path, c"");
    }
    // SAFETY: the path is a constant that ends with NUL.
    done(unsafe { libc::mknod(c"/dev/kvm".as_ptr(), libc::S_IFCHR | 0o600, NUMBER) })?;
    // Where KVM's counters are. Without them rows lack some figures.
    let _ignored = machine::mount(c"debugfs", c"/sys/kernel/debug");
    Ok(())
}

/// Opens the device; `None` on machines without.
pub fn open() -> io::Result<Option<File>> {
    prepare()?;
    match OpenOptions::new().read(true).write(true).open(PATH) {
        Ok(device) => Ok(Some(device)),
        Err(error) => match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENODEV) => Ok(None),
            _ => Err(error),
        },
    }
}

/// Has `program` check virtual machines; where there are none there is nothing to check.
pub fn check(program: &str, checks: impl FnOnce() -> ExitCode) -> ExitCode {
    if open().unwrap().is_none() {
        println!("{program}: OK, there is no {PATH}");
        return ExitCode::SUCCESS;
    }
    catch_interruptions();
    checks()
}

/// More than any kernel has.
const MOST_LEAVES: usize = 100;

/// What guests may find in CPUID.
pub fn supported_cpuid(device: &File) -> io::Result<Cpuid<MOST_LEAVES>> {
    let mut cpuid = Cpuid {
        entries: MOST_LEAVES as u32,
        padding: 0,
        entry: [CpuidEntry::default(); MOST_LEAVES],
    };
    request_with(device, abi::GET_SUPPORTED_CPUID, &mut cpuid)?;
    Ok(cpuid)
}

/// A request whose argument is a number.
pub fn request(fd: &impl AsRawFd, number: u32, argument: usize) -> io::Result<i32> {
    // SAFETY: no request that is given a number here takes it for an address of Rust's memory.
    let answer = unsafe { libc::ioctl(fd.as_raw_fd(), number as _, argument) };
    match answer {
        0.. => Ok(answer),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A request whose argument is a structure, which the kernel reads, or writes as well.
pub fn request_with<T>(fd: &impl AsRawFd, number: u32, argument: &mut T) -> io::Result<i32> {
    request(fd, number, (&raw mut *argument).expose_provenance())
}

/// A machine without memory.
#[derive(Debug)]
pub struct Machine {
    fd: OwnedFd,
    run_bytes: usize,
}

impl AsRawFd for Machine {
    fn as_raw_fd(&self) -> i32 {
        self.fd.as_raw_fd()
    }
}

impl Machine {
    /// A new one.
    pub fn new(device: &File) -> io::Result<Self> {
        let run_bytes = request(device, GET_VCPU_MMAP_SIZE, 0)? as usize;
        let fd = owned(request(device, CREATE_VM, 0)?);
        Ok(Self { fd, run_bytes })
    }

    /// Changes a slot.
    pub fn set_memory(&self, mut region: MemoryRegion) -> io::Result<()> {
        request_with(self, SET_USER_MEMORY_REGION, &mut region).map(|_| ())
    }

    /// A virtual CPU.
    pub fn vcpu(&self, number: usize) -> io::Result<Vcpu> {
        Vcpu::new(owned(request(self, CREATE_VCPU, number)?), self.run_bytes)
    }
}

fn owned(fd: i32) -> OwnedFd {
    // SAFETY: the kernel has just made it, and nobody else has it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// A virtual CPU and the memory that it shares with the kernel.
#[derive(Debug)]
pub struct Vcpu {
    fd: OwnedFd,
    page: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the page is reached by volatile accesses only.
unsafe impl Send for Vcpu {}
// SAFETY: as above.
unsafe impl Sync for Vcpu {}

impl AsRawFd for Vcpu {
    fn as_raw_fd(&self) -> i32 {
        self.fd.as_raw_fd()
    }
}

impl Vcpu {
    fn new(fd: OwnedFd, bytes: usize) -> io::Result<Self> {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let null = std::ptr::null_mut();
        // SAFETY: a mapping at an address of the kernel's choice touches no memory that exists.
        let at = unsafe { libc::mmap(null, bytes, rights, libc::MAP_SHARED, fd.as_raw_fd(), 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let page = NonNull::new(at.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { fd, page, bytes })
    }

    /// Reads of the shared memory, at an offset.
    pub fn read<T: Copy>(&self, offset: usize) -> T {
        assert!(offset + size_of::<T>() <= self.bytes && offset.is_multiple_of(align_of::<T>()));
        // SAFETY: inside the mapping, which lives as long as `self`; callers read integers.
        let place = unsafe { self.page.add(offset) }.cast::<T>();
        // SAFETY: as above.
        unsafe { place.read_volatile() }
    }

    /// Writes there.
    pub fn write<T: Copy>(&self, offset: usize, value: T) {
        assert!(offset + size_of::<T>() <= self.bytes && offset.is_multiple_of(align_of::<T>()));
        // SAFETY: inside the mapping, which lives as long as `self`.
        let place = unsafe { self.page.add(offset) }.cast::<T>();
        // SAFETY: as above.
        unsafe { place.write_volatile(value) };
    }
}

impl Drop for Vcpu {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own.
        unsafe { libc::munmap(self.page.as_ptr().cast(), self.bytes) };
    }
}
