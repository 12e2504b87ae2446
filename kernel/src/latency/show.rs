//! `/proc/shootdown/latency`: one line for each CPU that is online.

use alloc::string::String;
use core::fmt::{self, Write};

use shootdown::CpuId;

use super::control;
use super::record::{self, Site, Summary};
use crate::errno::Errno;

/// Does what was written to the file.
///
/// # Errors
/// EINVAL for anything but `on`, `off` and `reset`.
pub fn command(bytes: &[u8]) -> Result<(), Errno> {
    match bytes.trim_ascii() {
        b"on" => control::turn_on(),
        b"off" => control::turn_off(),
        b"reset" => control::begin_interval(),
        _ => return Err(Errno::EINVAL),
    }
    Ok(())
}

/// What was found since the last reset, on the CPUs whose bits are set.
pub fn report(out: &mut String, online: u64) -> fmt::Result {
    (0..u64::BITS)
        .filter(|cpu| online & 1 << cpu != 0)
        .try_for_each(|cpu| line(out, CpuId::new(cpu)))
}

fn line(out: &mut String, cpu: CpuId) -> fmt::Result {
    let [preempt, irq, wait] = record::read(cpu);
    write!(out, "cpu {}", cpu.index())?;
    longest(out, "preempt_off_ns", &preempt)?;
    longest(out, "irq_off_ns", &irq)?;
    writeln!(
        out,
        " preempt_off_sum_ns {} preempt_off_count {} ipi_wait_ns {}",
        preempt.sum_ns, preempt.count, wait.longest_ns
    )
}

fn longest(out: &mut String, name: &str, summary: &Summary) -> fmt::Result {
    write!(out, " {name} {} at ", summary.longest_ns)?;
    match summary.site {
        None => out.write_char('-'),
        Some(site) => place(out, site),
    }
}

fn place(out: &mut String, site: Site) -> fmt::Result {
    write!(out, "{}:{}", site.file(), site.line())
}
