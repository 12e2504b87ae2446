//! Pseudo files: text made when it is read.

use alloc::format;
use alloc::string::String;
use core::fmt::{self, Write};

use shootdown::Policy;

use super::machine;
use crate::addr::PAGE_BYTES;
use crate::errno::Errno;
use crate::mm::{self, AreaKind};
use crate::platform::SHOOTDOWN;
use crate::task::{self, Process};

/// What a pseudo file shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pseudo {
    /// The engine's policy; writing a name changes it.
    Policy,
    /// The engine's counters, added up over all CPUs.
    Stats,
    /// Facts about machine and kernel.
    Info,
    /// The mappings of the reading process.
    Maps,
    /// Processors, as far as programs count them.
    CpuInfo,
    /// Memory.
    MemInfo,
    /// The CPUs that run, as a range.
    CpusOnline,
    /// The reading process's program name.
    Comm,
}

/// Room for this many lines with the name of the program, in `maps`.
const EXE_LINES: usize = 16;

/// Path, what it shows, permissions.
pub(super) const FILES: &[(&str, Pseudo, u32)] = &[
    ("/proc/shootdown/policy", Pseudo::Policy, 0o644),
    ("/proc/shootdown/stats", Pseudo::Stats, 0o444),
    ("/proc/shootdown/info", Pseudo::Info, 0o444),
    ("/proc/self/maps", Pseudo::Maps, 0o444),
    ("/proc/self/comm", Pseudo::Comm, 0o444),
    ("/proc/cpuinfo", Pseudo::CpuInfo, 0o444),
    ("/proc/meminfo", Pseudo::MemInfo, 0o444),
    ("/sys/devices/system/cpu/online", Pseudo::CpusOnline, 0o444),
    (
        "/sys/devices/system/cpu/possible",
        Pseudo::CpusOnline,
        0o444,
    ),
];

impl Pseudo {
    /// The text as it is now, for the running thread. ENOMEM when the kernel heap cannot hold it.
    pub fn text(self) -> Result<String, Errno> {
        let mut text = String::new();
        let written = match self {
            Self::Policy => writeln!(text, "{}", SHOOTDOWN.policy().name()),
            Self::Stats => stats(&mut text),
            Self::Info => info(&mut text),
            Self::Maps => maps(&mut text),
            Self::CpuInfo => cpu_info(&mut text),
            Self::MemInfo => mem_info(&mut text),
            Self::CpusOnline => writeln!(text, "{}", cpu_range()),
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
                let policy = Policy::from_name(name).ok_or(Errno::EINVAL)?;
                SHOOTDOWN.set_policy(policy);
                Ok(())
            }
            _ => Err(Errno::EACCES),
        }
    }
}

fn stats(out: &mut String) -> fmt::Result {
    SHOOTDOWN
        .total_stats()
        .iter()
        .try_for_each(|(name, value)| writeln!(out, "{name} {value}"))
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
    let Some(space) = mm::current() else {
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
            AreaKind::Anonymous | AreaKind::File => "",
        };
        // Names start in the column where Linux puts them.
        writeln!(out, "{}", format!("{line:<72} {name}").trim_end())?;
    }
    Ok(())
}

fn cpu_info(out: &mut String) -> fmt::Result {
    (0..task::cpu_count()).try_for_each(|cpu| {
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

fn cpu_range() -> String {
    match task::cpu_count() {
        1 => String::from("0"),
        count => format!("0-{}", count - 1),
    }
}

/// What the link `/proc/self/exe` names.
pub(super) fn exe_link(process: &Process) -> String {
    String::from(&*process.exe())
}
