//! What a program does with the machine below it: which CPUs there are, pinning, being init.

use std::ffi::CStr;
use std::path::Path;
use std::{io, thread};

/// Prepares the file system when this process is init (pid 1).
///
/// On Linux nothing has mounted `/proc` and `/sys` then; the reference kernel always has them and accepts or
/// refuses the mounts, which makes no difference.
pub fn prepare() {
    if std::process::id() != 1 {
        return;
    }
    for (kind, place) in [(c"proc", c"/proc"), (c"sysfs", c"/sys")] {
        // SAFETY: the pointer is to a NUL-terminated string.
        let _ignored = unsafe { libc::mkdir(place.as_ptr(), 0o755) };
        let _ignored = mount(kind, place);
    }
}

/// Mounts a file system that has no device and needs no mount data.
pub fn mount(kind: &CStr, place: &CStr) -> io::Result<()> {
    let (kind, place) = (kind.as_ptr(), place.as_ptr());
    // SAFETY: all pointers are to NUL-terminated strings.
    done(unsafe { libc::mount(kind, place, kind, 0, std::ptr::null()) })
}

/// The CPUs this process may run on, in ascending order.
pub fn allowed_cpus() -> io::Result<Vec<usize>> {
    let mut set = empty_cpu_set();
    // SAFETY: `set` is a valid `cpu_set_t` of the size passed.
    done(unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) })?;
    let limit = libc::CPU_SETSIZE as usize;
    // SAFETY: `cpu` is below CPU_SETSIZE, the number of bits in the set.
    Ok((0..limit)
        .filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) })
        .collect())
}

/// What a system call's `status` means that is 0 or leaves an error.
pub fn done(status: i32) -> io::Result<()> {
    match status {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Maps anonymous private memory with these rights where nothing is, `at` that address if `flags` say so; where.
///
/// # Panics
/// With `MAP_FIXED`, which would replace what is there.
pub fn map(at: usize, bytes: usize, rights: i32, flags: i32) -> io::Result<usize> {
    assert_eq!(flags & libc::MAP_FIXED, 0, "only where nothing is");
    let flags = flags | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let wanted = std::ptr::without_provenance_mut(at);
    // SAFETY: without MAP_FIXED it replaces nothing.
    let found = unsafe { libc::mmap(wanted, bytes, rights, flags, -1, 0) };
    if found == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    Ok(found.expose_provenance())
}

/// Pins the calling thread to `cpu`; it runs there when this returns.
pub fn pin_to(cpu: usize) -> io::Result<()> {
    pin_thread_to(0, cpu)
}

/// Pins a thread by the kernel's number to `cpu`, where it runs some time later.
pub fn pin_thread_to(thread: i32, cpu: usize) -> io::Result<()> {
    pin_thread(thread, &[cpu])
}

/// Lets the calling thread run on these CPUs.
pub fn pin_to_all(cpus: &[usize]) -> io::Result<()> {
    pin_thread(0, cpus)
}

fn pin_thread(thread: i32, cpus: &[usize]) -> io::Result<()> {
    let mut set = empty_cpu_set();
    for &cpu in cpus {
        if cpu >= libc::CPU_SETSIZE as usize {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        // SAFETY: `cpu` is below CPU_SETSIZE.
        unsafe { libc::CPU_SET(cpu, &mut set) };
    }
    // SAFETY: `set` is a valid `cpu_set_t` of the size passed; pid 0 is the calling thread.
    done(unsafe { libc::sched_setaffinity(thread, size_of::<libc::cpu_set_t>(), &set) })
}

/// Runs `work` in a thread pinned to `cpu`.
///
/// # Panics
/// When `work` does, or there is no such CPU.
pub fn run_on<T: Send>(cpu: usize, work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let pinned = scope.spawn(|| {
            pin_to(cpu).unwrap();
            work()
        });
        pinned.join().unwrap()
    })
}

/// Whether this is the reference kernel: Linux has no such files.
pub fn is_reference_kernel() -> bool {
    Path::new("/proc/shootdown").exists()
}

/// Where the calling thread runs.
pub fn current_cpu() -> usize {
    // SAFETY: takes nothing, and every kernel has this call.
    unsafe { libc::sched_getcpu() as usize }
}

/// Free memory in KiB, as `/proc/meminfo` tells.
pub fn free_kib() -> io::Result<u64> {
    let info = std::fs::read_to_string("/proc/meminfo")?;
    let mut lines = info.lines();
    lines
        .find_map(|line| line.strip_prefix("MemFree:"))
        .and_then(|rest| rest.split_ascii_whitespace().next()?.parse().ok())
        .ok_or_else(|| io::Error::other("/proc/meminfo has no MemFree"))
}

/// The kernel's name and release, such as `Linux 6.12.0`.
pub fn kernel_name() -> String {
    // SAFETY: `utsname` is made of byte arrays only, for which zero is a valid value.
    let mut name: libc::utsname = unsafe { std::mem::zeroed() };
    // SAFETY: `name` is a valid `utsname` to be filled.
    if unsafe { libc::uname(&mut name) } != 0 {
        return "unknown".to_owned();
    }
    let text = |field: &[libc::c_char]| -> String {
        field
            .iter()
            .take_while(|&&c| c != 0)
            .map(|&c| c as u8 as char)
            .collect()
    };
    format!("{} {}", text(&name.sysname), text(&name.release))
}

fn empty_cpu_set() -> libc::cpu_set_t {
    // SAFETY: `cpu_set_t` is an array of integers, for which zero is a valid value.
    unsafe { std::mem::zeroed() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_may_run_on_that_cpu_only() {
        let cpus = allowed_cpus().unwrap();
        let last = *cpus.last().unwrap();
        std::thread::spawn(move || {
            pin_to(last).unwrap();
            assert_eq!(allowed_cpus().unwrap(), vec![last]);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_cpu_beyond_the_set_is_refused() {
        assert!(pin_to(libc::CPU_SETSIZE as usize).is_err());
    }
}
