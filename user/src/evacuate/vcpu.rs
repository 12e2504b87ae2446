//! One virtual CPU in its thread: it runs until it is told to stop.

use std::cell::Cell;
use std::io;
use std::ptr;

use kvm_bindings::KVM_EXIT_INTERNAL_ERROR;
use kvm_ioctls::{VcpuExit, VcpuFd};

use super::device::Device;
use super::guest::{ERROR_PORT, Walk};
use super::start;
use super::vm::Vm;
use crate::signals;

/// What makes a thread leave its guest.
pub const STOP: i32 = libc::SIGUSR1;

thread_local! {
    /// Where this thread's virtual CPU is told not to enter the guest.
    static IMMEDIATE_EXIT: Cell<*mut u8> = const { Cell::new(ptr::null_mut()) };
}

/// A virtual CPU.
#[derive(Debug)]
pub struct Vcpu {
    fd: VcpuFd,
    walk: Walk,
    /// Visits that were told of.
    told: u64,
}

/// What happened in one run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// How often the kernel came back from the guest to this program.
    pub returns: u64,
    /// Writes of guests.
    pub writes: u64,
    /// Pages that had something else than the guest wrote.
    pub wrong: u64,
}

impl Vcpu {
    /// Virtual CPU `index` of a machine, ready to begin with its pages.
    pub fn new(device: &Device, vm: &Vm, index: usize, pages: usize) -> io::Result<Self> {
        let fd = vm.create_vcpu(index)?;
        if let Some(cpuid) = device.cpuid() {
            // Linux refuses the registers of a mode that CPUID does not have.
            fd.set_cpuid2(cpuid)?;
        }
        let mut special = fd.get_sregs()?;
        start::enter_long_mode(&mut special);
        fd.set_sregs(&special)?;
        let walk = Walk::new(index, pages);
        let registers = walk.registers();
        fd.set_regs(&start::general(registers))?;
        Ok(Self {
            fd,
            walk,
            told: registers.visits,
        })
    }

    /// Makes the calling thread the one that runs it, and that [`STOP`] stops.
    pub fn settle(&mut self) {
        IMMEDIATE_EXIT.set(&raw mut self.fd.get_kvm_run().immediate_exit);
    }

    /// Runs as long as `goes_on` says so, which is asked after each stop.
    pub fn run(&mut self, goes_on: impl Fn() -> bool) -> io::Result<Tally> {
        let mut tally = Tally::default();
        loop {
            // Before it asks: a stop that comes in between is seen by one or the other.
            self.fd.set_kvm_immediate_exit(0);
            if !goes_on() {
                break;
            }
            tally.returns += 1;
            match self.fd.run() {
                Ok(VcpuExit::IoOut(ERROR_PORT, _)) => {
                    tally.wrong += 1;
                    break;
                }
                Ok(exit) => {
                    let exit = format!("{exit:?}");
                    return Err(self.unexpected(&exit));
                }
                Err(error) if error.errno() == libc::EINTR => {}
                Err(error) => return Err(io::Error::other(format!("KVM_RUN: {error}"))),
            }
        }
        let visits = self.fd.get_regs()?.r10;
        tally.writes = visits.wrapping_sub(self.told);
        self.told = visits;
        Ok(tally)
    }

    fn unexpected(&mut self, exit: &str) -> io::Error {
        let place = self.fd.get_regs().map_or(0, |registers| registers.rip);
        let page = self.walk.first;
        let mut text =
            format!("the guest with pages from {page} on left at {place:#x} with {exit}");
        let run = self.fd.get_kvm_run();
        if run.exit_reason == KVM_EXIT_INTERNAL_ERROR {
            // SAFETY: the kernel fills this part for that reason; all of it is integers.
            let error = unsafe { run.__bindgen_anon_1.internal };
            let (kind, data) = (error.suberror, error.data);
            let told = &data[..data.len().min(error.ndata as usize)];
            text += &format!(" {kind}, {told:x?}");
        }
        io::Error::other(text)
    }
}

/// Has [`STOP`] handled from now on.
pub fn handle_stops() -> io::Result<()> {
    let handler = on_stop as extern "C" fn(i32);
    // SAFETY: the handler writes one byte that is its own thread's; without SA_RESTART the call is interrupted.
    unsafe { signals::handle(STOP, handler as *const () as usize, 0) }.map(|_| ())
}

extern "C" fn on_stop(_: i32) {
    let flag = IMMEDIATE_EXIT.get();
    if !flag.is_null() {
        // SAFETY: it lies in the page that this thread's virtual CPU shares with the kernel, which is mapped until the thread ends.
        unsafe { flag.write_volatile(1) };
    }
}
