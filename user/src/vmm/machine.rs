//! All of a virtual machine together, from its files to its end.

use std::io::{self, Write};
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use kvm_ioctls::VmFd;

use super::boot::{self, Image, Start};
use super::bus::Bus;
use super::memory::Memory;
use super::options::Options;
use super::ports::{End, Ports};
use super::state;
use super::vcpu::{self, Shared, Vcpu};
use crate::args::UsageError;
use crate::evacuate::device::Device;

/// The status for a machine that did not end by itself.
/// The reference kernel has no such number.
const BROKEN: i32 = 124;

/// A machine that is ready to run.
#[derive(Debug)]
pub struct Machine {
    vcpus: Vec<Vcpu>,
    shared: Arc<Shared>,
    deadline: Duration,
    // Behind the virtual CPUs, and the memory last: it is used until all are closed.
    _fd: VmFd,
    _memory: Memory,
}

impl Machine {
    /// Makes it, with all that the guest finds.
    ///
    /// # Errors
    /// A file cannot be read or booted, or the kernel below refuses.
    pub fn new(options: &Options) -> Result<Self, UsageError> {
        let mut memory = Memory::new(options.memory_mib << 20).map_err(|error| {
            let mib = options.memory_mib;
            UsageError::new(format!(
                "cannot map {mib} MiB ({error}); --memory-mib takes less"
            ))
        })?;
        let start = fill(options, &mut memory)?;
        let device = Device::open()?;
        let (fd, _) = device.create_vm().map_err(|error| refused(&error))?;
        // SAFETY: the memory lives longer than the machine, and nobody reaches it by references any more.
        unsafe { fd.set_user_memory_region(memory.slot()) }.map_err(|error| refused(&error))?;
        let vcpus = vcpus(options, &device, &fd, start).map_err(|error| refused(&error))?;
        let shared = Shared {
            bus: Bus::new(options.vcpus, options.drop_each),
            ports: Ports::default(),
            exits: AtomicU64::new(0),
        };
        Ok(Self {
            vcpus,
            shared: Arc::new(shared),
            deadline: Duration::from_secs(options.deadline_s),
            _fd: fd,
            _memory: memory,
        })
    }

    /// Runs it, and ends the process as it ends.
    pub fn run(self) -> ! {
        if let Err(error) = vcpu::handle_kicks() {
            fail(&self.shared, &error.to_string());
        }
        for (index, mut vcpu) in self.vcpus.into_iter().enumerate() {
            let shared = self.shared.clone();
            let run = move || match vcpu.run(&shared) {
                Ok(end) => finish(&shared, end),
                Err(error) => fail(&shared, &error.to_string()),
            };
            let thread = thread::Builder::new().name(format!("vcpu{index}"));
            if let Err(error) = thread.spawn(run) {
                fail(
                    &self.shared,
                    &format!("no thread for a virtual CPU: {error}"),
                );
            }
        }
        self.shared.bus.watch(self.deadline.as_nanos() as u64);
        let seconds = self.deadline.as_secs();
        fail(
            &self.shared,
            &format!("the guest has not ended within {seconds} s; --deadline takes more"),
        )
    }
}

fn fill(options: &Options, memory: &mut Memory) -> Result<Start, UsageError> {
    let read = |option: &str, path: &str| {
        std::fs::read(path).map_err(|error| {
            UsageError::new(format!(
                "cannot read {path}: {error}; {option} names the file"
            ))
        })
    };
    let image = Image {
        kernel: &read("--kernel", &options.kernel)?,
        initrd: &read("--initrd", &options.initrd)?,
        line: &options.line,
        cpus: options.vcpus,
    };
    boot::fill(memory, &image)
}

fn vcpus(options: &Options, device: &Device, fd: &VmFd, start: Start) -> io::Result<Vec<Vcpu>> {
    let mut all = Vec::new();
    for index in 0..options.vcpus {
        let made = fd.create_vcpu(index.into())?;
        if let Some(supported) = device.cpuid() {
            let cpuid = state::cpuid(supported, index, options.vcpus, options.pv_flush);
            made.set_cpuid2(&cpuid)?;
        }
        let mut vcpu = Vcpu::new(made, index.into())?;
        if index == 0 {
            let state = state::at_entry(vcpu.reset(), start);
            vcpu.begin(&state)?;
        }
        all.push(vcpu);
    }
    Ok(all)
}

fn refused(error: &impl ToString) -> UsageError {
    let error = error.to_string();
    UsageError::new(format!(
        "/dev/kvm refuses a machine ({error}); fewer --vcpus or less --memory-mib may do"
    ))
}

fn finish(shared: &Shared, end: End) -> ! {
    match end {
        End::Exit(status) => {
            tell(shared, &format!("ended with {status}"));
            process::exit(status.into())
        }
        End::Reset => fail(shared, "the guest has reset its machine"),
    }
}

fn fail(shared: &Shared, what: &str) -> ! {
    tell(shared, what);
    process::exit(BROKEN)
}

/// Says how it ended and what was counted.
fn tell(shared: &Shared, what: &str) {
    shared.ports.drain();
    let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let counts = &shared.bus.counts;
    let [exits, sent, dropped, kicks] =
        [&shared.exits, &counts.sent, &counts.dropped, &counts.kicks].map(count);
    let seconds = shared.bus.now_ns() as f64 / 1e9;
    let _ignored = writeln!(
        io::stderr(),
        "vmm: {what} after {seconds:.1} s: {exits} exits, {sent} IPIs, {dropped} of them lost, {kicks} kicks"
    );
}
