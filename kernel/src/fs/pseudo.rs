//! Pseudo files: text made when it is read.

use alloc::format;
use alloc::string::String;
use core::fmt::{self, Write};

use shootdown::{CpuId, Policy};

use super::{irqoff, machine};
use crate::addr::PAGE_BYTES;
use crate::backtrace;
use crate::boot;
use crate::cpu_stage;
use crate::cpus::MAX_CPUS;
use crate::errno::Errno;
use crate::hotplug;
use crate::latency;
use crate::mm::{self, AreaKind};
use crate::platform::SHOOTDOWN;
use crate::task::{self, Process};

/// What a pseudo file shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pseudo {
    /// The engine's policy; writing a name changes it.
    Policy,
    /// The engine's counters, added up over all CPUs, and those of syncs.
    Stats,
    /// What idle CPUs do; writing `halt` or `poll` changes it.
    Idle,
    /// Facts about machine and kernel.
    Info,
    /// What the latency tracer found; writing `on`, `off` or `reset` controls it.
    Latency,
    /// Writing anything has every CPU's backtrace printed on the console.
    Backtrace,
    /// Writing a number of nanoseconds keeps interrupts off for that long.
    IrqOff,
    /// The mappings of the reading process.
    Maps,
    /// Processors, as far as programs count them.
    CpuInfo,
    /// Memory.
    MemInfo,
    /// The CPUs that run, as a list of ranges.
    CpusOnline,
    /// The CPUs that may ever run.
    CpusPossible,
    /// Whether this CPU runs; writing 0 or 1 takes it offline or brings it back.
    CpuOnline(u8),
    /// The reading process's program name.
    Comm,
}

/// Room for this many lines with the name of the program, in `maps`.
const EXE_LINES: usize = 16;

/// The file of a CPU that may leave.
macro_rules! cpu_online {
    ($cpu:literal) => {
        (
            concat!("/sys/devices/system/cpu/cpu", $cpu, "/online"),
            Pseudo::CpuOnline($cpu),
            0o644,
        )
    };
}

/// Path, what it shows, permissions.
const FILES: &[(&str, Pseudo, u32)] = &[
    ("/proc/shootdown/policy", Pseudo::Policy, 0o644),
    ("/proc/shootdown/stats", Pseudo::Stats, 0o444),
    ("/proc/shootdown/idle", Pseudo::Idle, 0o644),
    ("/proc/shootdown/info", Pseudo::Info, 0o444),
    ("/proc/shootdown/latency", Pseudo::Latency, 0o644),
    ("/proc/shootdown/backtrace", Pseudo::Backtrace, 0o200),
    ("/proc/shootdown/irqoff", Pseudo::IrqOff, 0o200),
    ("/proc/self/maps", Pseudo::Maps, 0o444),
    ("/proc/self/comm", Pseudo::Comm, 0o444),
    ("/proc/cpuinfo", Pseudo::CpuInfo, 0o444),
    ("/proc/meminfo", Pseudo::MemInfo, 0o444),
    ("/sys/devices/system/cpu/online", Pseudo::CpusOnline, 0o444),
    (
        "/sys/devices/system/cpu/possible",
        Pseudo::CpusPossible,
        0o444,
    ),
    (
        "/sys/devices/system/cpu/present",
        Pseudo::CpusPossible,
        0o444,
    ),
    cpu_online!(1),
    cpu_online!(2),
    cpu_online!(3),
    cpu_online!(4),
    cpu_online!(5),
    cpu_online!(6),
    cpu_online!(7),
    cpu_online!(8),
    cpu_online!(9),
    cpu_online!(10),
    cpu_online!(11),
    cpu_online!(12),
    cpu_online!(13),
    cpu_online!(14),
    cpu_online!(15),
];
const _: () = assert!(MAX_CPUS == 16, "each CPU but the first has a file");

/// All files that this machine has: one `online` for each CPU that it has, but CPU 0, which stays.
pub(super) fn files() -> impl Iterator<Item = (&'static str, Pseudo, u32)> {
    FILES
        .iter()
        .copied()
        .filter(|&(_, pseudo, _)| match pseudo {
            Pseudo::CpuOnline(cpu) => usize::from(cpu) < boot::info().cpus,
            _ => true,
        })
}

impl Pseudo {
    /// Those of its file.
    pub fn permissions(self) -> u32 {
        files()
            .find(|&(_, pseudo, _)| pseudo == self)
            .map_or(0, |(.., permissions)| permissions)
    }

    /// The text as it is now, for the running thread. ENOMEM when the kernel heap cannot hold it.
    pub fn text(self) -> Result<String, Errno> {
        let mut text = String::new();
        let written = match self {
            Self::Policy => writeln!(text, "{}", policy_name(SHOOTDOWN.policy())),
            Self::Stats => stats(&mut text),
            Self::Idle => writeln!(text, "{}", task::idle_mode().name()),
            Self::Info => info(&mut text),
            Self::Latency => latency::report(&mut text, task::usable_cpu_bits()),
            Self::IrqOff | Self::Backtrace => return Err(Errno::EINVAL),
            Self::Maps => maps(&mut text),
            Self::CpuInfo => cpu_info(&mut text),
            Self::MemInfo => mem_info(&mut text),
            Self::CpusOnline => writeln!(text, "{}", Ranges(task::usable_cpu_bits())),
            Self::CpusPossible => writeln!(text, "{}", Ranges(boot::info().cpu_bits())),
            Self::CpuOnline(cpu) => {
                writeln!(text, "{}", u8::from(cpu_stage::is_online(cpu_id(cpu))))
            }
            Self::Comm => writeln!(text, "{}", task::current().name()),
        };
        written.map_err(|fmt::Error| Errno::ENOMEM)?;
        Ok(text)
    }

    /// Takes what was written to it in one call.
    pub fn accept(self, bytes: &[u8]) -> Result<(), Errno> {
        match self {
            Self::Policy => {
                let name = core::str::from_utf8(bytes)
                    .map_err(|_| Errno::EINVAL)?
                    .trim();
                SHOOTDOWN.set_policy(policy(name).ok_or(Errno::EINVAL)?);
                Ok(())
            }
            Self::Idle => {
                let name = core::str::from_utf8(bytes).map_err(|_| Errno::EINVAL)?;
                task::set_idle_mode(task::IdleMode::from_name(name.trim()).ok_or(Errno::EINVAL)?);
                Ok(())
            }
            Self::Latency => latency::command(bytes),
            Self::Backtrace => {
                backtrace::print_all();
                Ok(())
            }
            Self::IrqOff => irqoff::keep_irqs_off(bytes),
            Self::CpuOnline(cpu) => match bytes.trim_ascii() {
                b"0" => hotplug::take_offline(cpu_id(cpu)),
                b"1" => hotplug::bring_online(cpu_id(cpu)),
                _ => Err(Errno::EINVAL),
            },
            _ => Err(Errno::EACCES),
        }
    }
}

/// What is said behind the name of a policy that defers as well.
const DEFERS: &str = "+defer";

/// The policy with this name.
fn policy(name: &str) -> Option<Policy> {
    match name.strip_suffix(DEFERS) {
        Some(name) => Policy::from_name(name).map(|policy| policy.with_deferral(true)),
        None => Policy::from_name(name),
    }
}

/// Its name.
fn policy_name(policy: Policy) -> String {
    let suffix = if policy.defers() { DEFERS } else { "" };
    format!("{}{suffix}", policy.with_deferral(false).name())
}

fn stats(out: &mut String) -> fmt::Result {
    SHOOTDOWN
        .total_stats()
        .iter()
        .try_for_each(|(name, value)| writeln!(out, "{name} {value}"))?;
    let files = mm::file::counters();
    writeln!(out, "file_syncs {}", files.syncs)?;
    writeln!(out, "file_pages_stored {}", files.pages_stored)?;
    writeln!(out, "file_flushes {}", files.flushes)?;
    writeln!(out, "file_pages_protected {}", files.pages_protected)
}

fn info(out: &mut String) -> fmt::Result {
    writeln!(out, "cpus {}", task::cpu_count())?;
    writeln!(out, "apic {}", machine::apic_mode_name())?;
    writeln!(out, "accel_hint {}", machine::hypervisor_name())?;
    if let Some(commit) = option_env!("SHOOTDOWN_COMMIT") {
        writeln!(out, "commit {commit}")?;
    }
    Ok(())
}

fn maps(out: &mut String) -> fmt::Result {
    /// More than the longest line without the name of the program.
    const LINE_BYTES: usize = 96;
    let Some(space) = task::current_space() else {
        return Ok(());
    };
    let areas = space.areas().map_err(|_| fmt::Error)?;
    let exe = task::current().process().exe();
    // A program may have megabytes of areas: this much may be refused.
    out.try_reserve_exact(areas.len() * LINE_BYTES + exe.len() * EXE_LINES)
        .map_err(|_| fmt::Error)?;
    for area in &areas {
        let line = format!(
            "{:x}-{:x} {}{} 00000000 00:00 0",
            area.range.start(),
            area.range.end(),
            area.prot,
            if area.kind.is_shared() { 's' } else { 'p' },
        );
        let name = match area.kind {
            AreaKind::Image => &*exe,
            AreaKind::Heap => "[heap]",
            AreaKind::Stack => "[stack]",
            AreaKind::Shared(_) => "/dev/zero (deleted)",
            AreaKind::SharedFile(_) => "/tmp/file",
            AreaKind::Guests(_) => "[zerocopy]",
            AreaKind::Anonymous | AreaKind::File => "",
        };
        // Names start in the column where Linux puts them.
        writeln!(out, "{}", format!("{line:<72} {name}").trim_end())?;
    }
    Ok(())
}

fn cpu_info(out: &mut String) -> fmt::Result {
    let online = task::usable_cpu_bits();
    let is_online = |cpu: &usize| online & 1 << cpu != 0;
    (0..MAX_CPUS).filter(is_online).try_for_each(|cpu| {
        writeln!(
            out,
            "processor\t: {cpu}\nvendor_id\t: {}\n",
            machine::vendor_name()
        )
    })
}

fn mem_info(out: &mut String) -> fmt::Result {
    let kib = |frames: usize| frames * PAGE_BYTES / 1024;
    let (total, free) = (kib(mm::frames::capacity()), kib(mm::frames::free_count()));
    writeln!(out, "MemTotal:       {total:>8} kB")?;
    writeln!(out, "MemFree:        {free:>8} kB")?;
    writeln!(out, "MemAvailable:   {free:>8} kB")
}

fn cpu_id(cpu: u8) -> CpuId {
    CpuId::new(u32::from(cpu))
}

/// The set bits of a word, as Linux lists CPUs: `0-2,5`.
struct Ranges(u64);

impl fmt::Display for Ranges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        let mut separator = "";
        while rest != 0 {
            let first = rest.trailing_zeros();
            let after = first + (rest >> first).trailing_ones();
            match after - first {
                1 => write!(f, "{separator}{first}")?,
                _ => write!(f, "{separator}{first}-{}", after - 1)?,
            }
            rest &= u64::MAX.checked_shl(after).unwrap_or(0);
            separator = ",";
        }
        Ok(())
    }
}

/// What the link `/proc/self/exe` names.
pub(super) fn exe_link(process: &Process) -> String {
    String::from(&*process.exe())
}
