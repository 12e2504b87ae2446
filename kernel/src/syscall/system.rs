//! What the machine is, and limits.

use linux_raw_sys::general::rlimit64;

use super::args::Args;
use super::outcome::{Outcome, done};
use super::schedule;
use crate::addr;
use crate::errno::Errno;
use crate::mm;
use crate::task::{self, Current, Limit, Process};
use crate::time;
use crate::user_memory::UserBytes;

/// Bytes of one field of `struct utsname`.
const UTS_FIELD_BYTES: usize = 65;

/// The version of the Linux ABI that the structures here follow.
const ABI_RELEASE: &str = "6.12.0-shootdown";

pub(super) fn uname(a: &Args) -> Outcome {
    let version = concat!("#1 SMP shootdown ", env!("CARGO_PKG_VERSION"));
    let (name, machine, domain) = ("shootdown", "x86_64", "(none)");
    let fields = ["Linux", name, ABI_RELEASE, version, machine, domain];
    let mut bytes = [0; UTS_FIELD_BYTES * 6];
    for (field, text) in bytes.chunks_exact_mut(UTS_FIELD_BYTES).zip(fields) {
        field[..text.len()].copy_from_slice(text.as_bytes());
    }
    done(UserBytes::new(a.usize(0), bytes.len())?.copy_from(&bytes))
}

/// `struct sysinfo`: 14 words of which some are halves; the layout is written out here because
/// the generated one hides its padding.
pub(super) fn sysinfo(a: &Args) -> Outcome {
    const BYTES: usize = 112;
    const UPTIME: usize = 0;
    const TOTAL_RAM: usize = 32;
    const FREE_RAM: usize = 40;
    const PROCESSES: usize = 80;
    const MEMORY_UNIT: usize = 104;
    let mut bytes = [0; BYTES];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    let bytes_of = |frames: usize| (frames * addr::PAGE_BYTES).to_ne_bytes();
    put(UPTIME, &(time::now_ns() / 1_000_000_000).to_ne_bytes());
    put(TOTAL_RAM, &bytes_of(mm::frames::capacity()));
    put(FREE_RAM, &bytes_of(mm::frames::free_count()));
    put(PROCESSES, &(task::thread_count() as u16).to_ne_bytes());
    put(MEMORY_UNIT, &1u32.to_ne_bytes());
    done(UserBytes::new(a.usize(0), BYTES)?.copy_from(&bytes))
}

fn to_struct(limit: Limit) -> rlimit64 {
    rlimit64 {
        rlim_cur: limit.now,
        rlim_max: limit.most,
    }
}

fn set(process: &Process, kind: u32, wanted: rlimit64) -> Result<(), Errno> {
    let limit = Limit {
        now: wanted.rlim_cur,
        most: wanted.rlim_max,
    };
    process.set_limit(kind, limit)
}

pub(super) fn getrlimit(me: &Current, a: &Args) -> Outcome {
    let limit = me.process().limit(a.u32(0))?;
    done(a.ptr(1).write(to_struct(limit)))
}

pub(super) fn setrlimit(me: &Current, a: &Args) -> Outcome {
    let wanted = a.ptr(1).read()?;
    done(set(me.process(), a.u32(0), wanted))
}

pub(super) fn prlimit64(me: &Current, a: &Args) -> Outcome {
    let wanted = a.ptr(2).read_if_some()?;
    let thread = schedule::target(me, a.u32(0))?;
    let old = thread.process().limit(a.u32(1))?;
    if let Some(wanted) = wanted {
        set(thread.process(), a.u32(1), wanted)?;
    }
    done(a.ptr(3).write_if_some(to_struct(old)))
}
