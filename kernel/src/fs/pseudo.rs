//! Pseudo files: text made when it is read.

use alloc::format;
use alloc::string::String;
use core::fmt::{self, Write};
use core::ops::Range;
use core::sync::atomic::Ordering;

use shootdown::{CpuId, Policy};
use spin::Once;

use super::{irqoff, machine};
use crate::addr::PAGE_BYTES;
use crate::backtrace;
use crate::boot;
use crate::cpu_stage;
use crate::cpus::MAX_CPUS;
use crate::errno::Errno;
use crate::latency;
use crate::mm::vma::Area;
use crate::mm::{self, AreaKind, FirstWrites, TRACKS_SPACES};
use crate::platform::SHOOTDOWN;
use crate::task;

/// What a pseudo file shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pseudo {
    /// The engine's policy; writing a name changes it.
    Policy,
    /// The engine's counters, added up over all CPUs, those of syncs, and of page faults that were spurious.
    Stats,
    /// What idle CPUs do; writing `halt` or `poll` changes it.
    Idle,
    /// What follows the first write of a guest to a clean page; writing a name changes it.
    FirstWrites,
    /// Whether spaces of several threads become tracked; writing `on` or `off` changes it.
    Reach,
    /// Facts about machine and kernel.
    Info,
    /// What the latency tracer found; writing `on`, `off` or `reset` controls it.
    Latency,
    /// Writing anything has every CPU's backtrace printed on the console.
    Backtrace,
    /// Writing a plan has cross-CPU calls measured; the lines of that.
    Calls,
    /// Writing a number of nanoseconds keeps interrupts off for that long.
    IrqOff,
    /// The mappings of the reading process.
    Maps,
    /// Writing anything has files give up the memory that they can fill again.
    DropCaches,
    /// Processors, as far as programs count them.
    CpuInfo,
    /// Memory.
    MemInfo,
    /// The CPUs that run, as a list of ranges.
    CpusOnline,
    /// The CPUs that may ever run.
    CpusPossible,
    /// Whether this CPU runs; writing 0 or 1 takes it offline or brings it back.
    CpuOnline(CpuId),
    /// The reading process's program name.
    Comm,
}

/// Path, and what it shows.
const FILES: &[(&str, Pseudo)] = &[
    ("/proc/shootdown/policy", Pseudo::Policy),
    ("/proc/shootdown/stats", Pseudo::Stats),
    ("/proc/shootdown/idle", Pseudo::Idle),
    ("/proc/shootdown/first_writes", Pseudo::FirstWrites),
    ("/proc/shootdown/reach", Pseudo::Reach),
    ("/proc/shootdown/info", Pseudo::Info),
    ("/proc/shootdown/latency", Pseudo::Latency),
    ("/proc/shootdown/backtrace", Pseudo::Backtrace),
    ("/proc/shootdown/calls", Pseudo::Calls),
    ("/proc/shootdown/irqoff", Pseudo::IrqOff),
    ("/proc/self/maps", Pseudo::Maps),
    ("/proc/self/comm", Pseudo::Comm),
    ("/proc/sys/vm/drop_caches", Pseudo::DropCaches),
    ("/proc/cpuinfo", Pseudo::CpuInfo),
    ("/proc/meminfo", Pseudo::MemInfo),
    ("/sys/devices/system/cpu/online", Pseudo::CpusOnline),
    ("/sys/devices/system/cpu/possible", Pseudo::CpusPossible),
    ("/sys/devices/system/cpu/present", Pseudo::CpusPossible),
];

/// What the directory of a CPU is called, but for its number; it has the one file [`ONLINE`].
const CPU: &str = "/sys/devices/system/cpu/cpu";
const ONLINE: &str = "/online";

type CpuCommand = fn(CpuId, &[u8]) -> Result<(), Errno>;

/// Does what was written to the file of a CPU: hotplug's.
pub static CPU_COMMAND: Once<CpuCommand> = Once::new();

/// Cross-CPU calls measured in ring 0.
#[derive(Debug)]
pub struct Calls {
    /// Carries out a plan.
    pub run: fn(&str) -> Result<(), Errno>,
    /// What it said.
    pub lines: fn() -> Result<String, Errno>,
}

/// Does what was written to the file of the calls, and has what is read from it.
pub static CALLS: Once<Calls> = Once::new();

/// All files that this machine has, by their paths.
pub(super) fn files() -> impl Iterator<Item = (String, Pseudo)> {
    let online = |cpu| Pseudo::CpuOnline(CpuId::new(cpu));
    let cpus = leaving_cpus().map(move |cpu| (format!("{CPU}{cpu}{ONLINE}"), online(cpu)));
    let fixed = FILES.iter().map(|&(path, pseudo)| (path.into(), pseudo));
    fixed.chain(cpus)
}

/// The CPUs that may leave: all of this machine but CPU 0.
fn leaving_cpus() -> Range<u32> {
    1..boot::info().cpus as u32
}

impl Pseudo {
    /// Those of its file.
    pub fn permissions(self) -> u32 {
        match self {
            Self::Backtrace | Self::IrqOff | Self::DropCaches => 0o200,
            Self::Policy | Self::Idle | Self::FirstWrites | Self::Latency => 0o644,
            Self::Reach | Self::Calls | Self::CpuOnline(_) => 0o644,
            _ => 0o444,
        }
    }

    /// The text as it is now, for the running thread. ENOMEM when the kernel heap cannot hold it.
    pub fn text(self) -> Result<String, Errno> {
        let mut text = String::new();
        let written = match self {
            Self::Policy => writeln!(text, "{}", policy_name(SHOOTDOWN.policy())),
            Self::Stats => stats(&mut text),
            Self::Idle => writeln!(text, "{}", task::idle_mode().name()),
            Self::FirstWrites => writeln!(text, "{}", FirstWrites::chosen().name()),
            Self::Reach => {
                let is_on = TRACKS_SPACES.load(Ordering::Relaxed);
                writeln!(text, "{}", if is_on { "on" } else { "off" })
            }
            Self::Info => info(&mut text),
            Self::Latency => latency::report(&mut text, task::usable_cpu_bits()),
            Self::Calls => return (CALLS.get().ok_or(Errno::EINVAL)?.lines)(),
            Self::IrqOff | Self::Backtrace | Self::DropCaches => return Err(Errno::EINVAL),
            Self::Maps => maps(&mut text),
            Self::CpuInfo => cpu_info(&mut text),
            Self::MemInfo => mem_info(&mut text),
            Self::CpusOnline => writeln!(text, "{}", Ranges(task::usable_cpu_bits())),
            Self::CpusPossible => writeln!(text, "{}", Ranges(boot::info().cpu_bits())),
            Self::CpuOnline(cpu) => writeln!(text, "{}", u8::from(cpu_stage::is_online(cpu))),
            Self::Comm => writeln!(text, "{}", task::current().name()),
        };
        written.map_err(|fmt::Error| Errno::ENOMEM)?;
        Ok(text)
    }

    /// Takes what was written to it in one call.
    pub fn accept(self, bytes: &[u8]) -> Result<(), Errno> {
        let word = || core::str::from_utf8(bytes).map_or("", str::trim);
        match self {
            Self::Policy => {
                SHOOTDOWN.set_policy(Policy::from_name(word()).ok_or(Errno::EINVAL)?);
            }
            Self::Idle => {
                task::set_idle_mode(task::IdleMode::from_name(word()).ok_or(Errno::EINVAL)?);
            }
            Self::FirstWrites => FirstWrites::from_name(word())
                .ok_or(Errno::EINVAL)?
                .choose(),
            Self::Reach => match word() {
                "on" => TRACKS_SPACES.store(true, Ordering::Relaxed),
                "off" => TRACKS_SPACES.store(false, Ordering::Relaxed),
                _ => return Err(Errno::EINVAL),
            },
            Self::Latency => latency::command(bytes)?,
            Self::Backtrace => backtrace::print_all(),
            Self::DropCaches => {
                mm::file::evict(usize::MAX);
            }
            Self::Calls => (CALLS.get().ok_or(Errno::EINVAL)?.run)(word())?,
            Self::IrqOff => irqoff::keep_irqs_off(word())?,
            Self::CpuOnline(cpu) => CPU_COMMAND.get().ok_or(Errno::EINVAL)?(cpu, bytes)?,
            _ => return Err(Errno::EACCES),
        }
        Ok(())
    }
}

/// What is said behind the name of a policy that defers as well.
const DEFERS: &str = "+defer";

/// The name of a policy.
fn policy_name(policy: Policy) -> String {
    let suffix = if policy.defers() { DEFERS } else { "" };
    format!("{}{suffix}", policy.with_deferral(false).name())
}

fn stats(out: &mut String) -> fmt::Result {
    let stats = SHOOTDOWN.watch().total_stats();
    let mut stats = stats.iter();
    stats.try_for_each(|(name, value)| writeln!(out, "{name} {value}"))?;
    let files = mm::file::counters();
    writeln!(out, "file_syncs {}", files.syncs)?;
    writeln!(out, "file_pages_stored {}", files.pages_stored)?;
    writeln!(out, "file_flushes {}", files.flushes)?;
    writeln!(out, "file_pages_protected {}", files.pages_protected)?;
    writeln!(out, "file_cut_flushes {}", files.cut_flushes)?;
    writeln!(out, "file_cut_spaces {}", files.cut_spaces)?;
    writeln!(out, "spurious_kernel_faults {}", machine::spurious_faults())
}

fn info(out: &mut String) -> fmt::Result {
    writeln!(out, "cpus {}", task::cpu_count())?;
    writeln!(out, "apic {}", machine::apic_mode_name())?;
    writeln!(out, "accel_hint {}", machine::hypervisor_name())?;
    writeln!(out, "tags {}", machine::tags_a_cpu())?;
    writeln!(out, "invpcid {}", u8::from(machine::has_invpcid()))?;
    writeln!(out, "processor {}", machine::processor_name())?;
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
    // A program may have megabytes of areas: this much may be refused.
    let name_bytes = |area: &Area| {
        area.kind
            .shown()
            .map_or(0, |shown| shown.file().name().len())
    };
    let bytes = areas.iter().map(|area| LINE_BYTES + name_bytes(area)).sum();
    out.try_reserve_exact(bytes).map_err(|_| fmt::Error)?;
    for area in &areas {
        let line = format!(
            "{:x}-{:x} {}{} 00000000 00:00 0",
            area.range.start(),
            area.range.end(),
            area.prot,
            if area.kind.is_shared() { 's' } else { 'p' },
        );
        let name = match &area.kind {
            AreaKind::Heap => "[heap]",
            AreaKind::Stack => "[stack]",
            AreaKind::Shared(_) => "/dev/zero (deleted)",
            AreaKind::SharedFile(shown) | AreaKind::PrivateFile(shown) => shown.file().name(),
            AreaKind::Guests(_) => "[zerocopy]",
            AreaKind::Anonymous => "",
        };
        // Names start in the column where Linux puts them.
        writeln!(out, "{}", format!("{line:<72} {name}").trim_end())?;
    }
    Ok(())
}

fn cpu_info(out: &mut String) -> fmt::Result {
    let online = task::usable_cpu_bits();
    let is_online = |cpu: &usize| online & 1 << cpu != 0;
    let vendor = machine::vendor_name();
    let mut cpus = (0..MAX_CPUS).filter(is_online);
    cpus.try_for_each(|cpu| writeln!(out, "processor\t: {cpu}\nvendor_id\t: {vendor}\n"))
}

fn mem_info(out: &mut String) -> fmt::Result {
    let kib = |frames: usize| frames * PAGE_BYTES / 1024;
    let (total, free) = (kib(mm::frames::capacity()), kib(mm::frames::free_count()));
    writeln!(out, "MemTotal:       {total:>8} kB")?;
    writeln!(out, "MemFree:        {free:>8} kB")?;
    writeln!(out, "MemAvailable:   {free:>8} kB")
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
