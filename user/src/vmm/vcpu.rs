//! One virtual CPU in its thread.

use std::cell::Cell;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use kvm_bindings::{kvm_interrupt, kvm_regs, kvm_sregs};
use kvm_ioctls::{VcpuExit, VcpuFd};

use super::bus::{Bus, Next};
use super::ports::{End, Ports};
use super::state;
use super::tables::LOCAL_APIC;
use crate::machine::done;
use crate::signals;

/// `KVM_INTERRUPT`, which the crate lacks: `_IOW(0xae, 0x86, struct kvm_interrupt)`.
const INTERRUPT: u32 = 1 << 30 | (size_of::<kvm_interrupt>() as u32) << 16 | 0xae86;
const APIC_PAGE: u64 = LOCAL_APIC as u64;
const PAGE_MASK: u64 = 0xfff;

thread_local! {
    /// Where this thread's virtual CPU is told not to enter the guest.
    static IMMEDIATE_EXIT: Cell<*mut u8> = const { Cell::new(ptr::null_mut()) };
}

/// Whom virtual CPUs share.
#[derive(Debug)]
pub struct Shared {
    /// Their controllers.
    pub bus: Bus,
    /// The devices.
    pub ports: Ports,
    /// How often guests were left.
    pub exits: AtomicU64,
}

/// A virtual CPU.
#[derive(Debug)]
pub struct Vcpu {
    index: usize,
    fd: VcpuFd,
    /// As after a reset.
    reset: kvm_sregs,
    /// The guest can take an interrupt now.
    is_ready: bool,
}

/// Has the signal that calls threads out of their guests handled.
pub fn handle_kicks() -> io::Result<()> {
    let handler = on_kick as extern "C" fn(i32);
    // SAFETY: the handler writes one byte that is its own thread's; without SA_RESTART the call is interrupted.
    unsafe { signals::handle(libc::SIGUSR1, handler as *const () as usize, 0) }.map(|_| ())
}

extern "C" fn on_kick(_: i32) {
    let flag = IMMEDIATE_EXIT.get();
    if !flag.is_null() {
        // SAFETY: it lies in the page that this thread's virtual CPU shares with the kernel; the thread owns that one, and ends the process.
        unsafe { flag.write_volatile(1) };
    }
}

impl Vcpu {
    /// The one with that number, as the kernel made it.
    pub fn new(fd: VcpuFd, index: usize) -> io::Result<Self> {
        let reset = fd.get_sregs()?;
        Ok(Self {
            index,
            fd,
            reset,
            is_ready: false,
        })
    }

    /// Its special registers after a reset.
    pub fn reset(&self) -> &kvm_sregs {
        &self.reset
    }

    /// Has it begin there.
    pub fn begin(&mut self, (special, general): &(kvm_sregs, kvm_regs)) -> io::Result<()> {
        self.fd.set_sregs(special)?;
        self.fd.set_regs(general)?;
        self.is_ready = false;
        Ok(())
    }

    /// Runs it in the calling thread until the guest ends the machine.
    ///
    /// # Errors
    /// The guest did what nothing comes back from.
    pub fn run(&mut self, shared: &Shared) -> io::Result<End> {
        IMMEDIATE_EXIT.set(&raw mut self.fd.get_kvm_run().immediate_exit);
        shared.bus.settle(self.index);
        loop {
            // Before it looks what to do: a signal that comes in between ends the run at once.
            self.fd.set_kvm_immediate_exit(0);
            match shared.bus.next(self.index, self.is_ready) {
                Next::Begin(page) => {
                    let state = state::at_startup(&self.reset, page);
                    self.begin(&state)?;
                }
                Next::Enter(vector, more, nmi) => {
                    if nmi {
                        self.fd.nmi()?;
                    }
                    vector.map_or(Ok(()), |vector| self.send(vector))?;
                    self.fd.get_kvm_run().request_interrupt_window = more.into();
                    if let Some(end) = self.enter(shared)? {
                        return Ok(end);
                    }
                }
            }
        }
    }

    fn send(&self, vector: u8) -> io::Result<()> {
        let argument = kvm_interrupt { irq: vector.into() };
        // SAFETY: the kernel reads the structure.
        done(unsafe { libc::ioctl(self.fd.as_raw_fd(), INTERRUPT as _, &argument) })
    }

    fn enter(&mut self, shared: &Shared) -> io::Result<Option<End>> {
        let (bus, index) = (&shared.bus, self.index);
        let exit = self.fd.run();
        bus.left(index);
        shared.exits.fetch_add(1, Ordering::Relaxed);
        let mut end = None;
        let mut has_halted = false;
        match exit {
            Ok(VcpuExit::IoIn(port, to)) => shared.ports.read(port, to, bus.now_ns()),
            Ok(VcpuExit::IoOut(port, from)) => end = shared.ports.write(port, from, bus.now_ns()),
            Ok(VcpuExit::MmioRead(at, to)) => read(bus, index, at, to),
            Ok(VcpuExit::MmioWrite(at, from)) => write(bus, index, at, from),
            Ok(VcpuExit::Hlt) => has_halted = true,
            Ok(VcpuExit::IrqWindowOpen | VcpuExit::Intr) => {}
            Ok(exit) => {
                let exit = format!("{exit:?}");
                return Err(self.unexpected(&exit));
            }
            Err(error) if matches!(error.errno(), libc::EINTR | libc::EAGAIN) => {}
            Err(error) => return Err(self.unexpected(&error.to_string())),
        }
        let run = self.fd.get_kvm_run();
        self.is_ready = run.ready_for_interrupt_injection != 0;
        if has_halted {
            bus.halted(index, run.if_flag != 0);
        }
        Ok(end)
    }

    fn unexpected(&self, exit: &str) -> io::Error {
        let place = self.fd.get_regs().map_or(0, |registers| registers.rip);
        let index = self.index;
        io::Error::other(format!(
            "virtual CPU {index} left at {place:#x} with {exit}"
        ))
    }
}

/// A load from where no memory is: 32 bits of a register of the controller, or nothing.
fn read(bus: &Bus, cpu: usize, at: u64, to: &mut [u8]) {
    let value = match at & !PAGE_MASK {
        APIC_PAGE => bus.read(cpu, (at & PAGE_MASK) as u32),
        _ => u32::MAX,
    };
    let bytes = value.to_le_bytes();
    for (to, byte) in to.iter_mut().zip(bytes.into_iter().chain([0; 4])) {
        *to = byte;
    }
}

/// A store there.
fn write(bus: &Bus, cpu: usize, at: u64, from: &[u8]) {
    let whole: Option<[u8; 4]> = from.try_into().ok();
    if let (APIC_PAGE, Some(bytes)) = (at & !PAGE_MASK, whole) {
        bus.write(cpu, (at & PAGE_MASK) as u32, u32::from_le_bytes(bytes));
    }
}
