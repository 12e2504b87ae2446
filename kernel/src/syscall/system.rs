//! What the machine is, and limits.

use linux_raw_sys::general::rlimit64;

use super::args::Args;
use super::outcome::{Outcome, done};
use crate::addr;
use crate::errno::Errno;
use crate::fs::MAX_FILES;
use crate::mm;
use crate::task::{self, Current, MAX_THREADS, Tid};
use crate::time;
use crate::user_memory::UserBytes;

/// Bytes of one field of `struct utsname`.
const UTS_FIELD_BYTES: usize = 65;

/// The version of the Linux ABI that the structures here follow.
const ABI_RELEASE: &str = "6.12.0-shootdown";

const RLIM_INFINITY: u64 = u64::MAX;
const RLIMIT_COUNT: u32 = 16;

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

fn limit(resource: u32) -> Result<rlimit64, Errno> {
    use linux_raw_sys::general as linux;
    let most = match resource {
        linux::RLIMIT_STACK => mm::layout::STACK_LIMIT as u64,
        linux::RLIMIT_NOFILE => MAX_FILES as u64,
        linux::RLIMIT_NPROC => MAX_THREADS as u64,
        linux::RLIMIT_CORE => 0,
        0..RLIMIT_COUNT => RLIM_INFINITY,
        _ => return Err(Errno::EINVAL),
    };
    Ok(rlimit64 {
        rlim_cur: most,
        rlim_max: most,
    })
}

pub(super) fn getrlimit(a: &Args) -> Outcome {
    done(a.ptr(1).write(limit(a.u32(0))?))
}

/// Limits can be read; changing them is refused, as none can be raised or lowered here.
pub(super) fn prlimit64(me: &Current, a: &Args) -> Outcome {
    let known = match a.u32(0) {
        0 => true,
        pid => pid == me.process().pid().as_u32() || task::find_thread(Tid::new(pid)).is_some(),
    };
    if !known {
        return Err(Errno::ESRCH);
    }
    let old = limit(a.u32(1))?;
    if let Some(new) = a.ptr::<rlimit64>(2).read_if_some()? {
        if new.rlim_cur > new.rlim_max {
            return Err(Errno::EINVAL);
        }
        if new.rlim_cur != old.rlim_cur || new.rlim_max != old.rlim_max {
            return Err(Errno::EPERM);
        }
    }
    done(a.ptr(3).write_if_some(old))
}
