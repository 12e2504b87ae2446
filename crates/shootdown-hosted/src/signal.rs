//! The signal that stands for an interrupt.

use std::sync::OnceLock;

use crate::thread;

/// The third real-time signal that the C library leaves to programs: debuggers and profilers like the first ones.
fn number() -> libc::c_int {
    libc::SIGRTMIN() + 2
}

/// A thread of this process, as the kernel knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ThreadId(pub(crate) libc::pid_t);

impl ThreadId {
    /// The calling thread.
    pub(crate) fn mine() -> Self {
        // SAFETY: no preconditions.
        Self(unsafe { libc::gettid() })
    }

    /// Interrupts the thread; true if the kernel took the signal (its queue has a limit). Async-signal-safe.
    pub(crate) fn interrupt(self) -> bool {
        // SAFETY: no preconditions.
        let process = unsafe { libc::getpid() };
        // SAFETY: no preconditions; a thread that has ended is an error like any other.
        unsafe { libc::syscall(libc::SYS_tgkill, process, self.0, number()) == 0 }
    }
}

/// Installs the handler, once for the process.
///
/// # Errors
/// The kernel's.
pub(crate) fn install() -> std::io::Result<()> {
    static INSTALLED: OnceLock<Option<i32>> = OnceLock::new();
    let failed = INSTALLED.get_or_init(|| {
        // SAFETY: all zeroes are a valid sigaction: no flags, an empty mask, the default handler.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = handler as extern "C" fn(libc::c_int) as usize;
        action.sa_flags = libc::SA_RESTART;
        // SAFETY: a valid signal, a valid action; the handler is async-signal-safe.
        let result = unsafe { libc::sigaction(number(), &action, std::ptr::null_mut()) };
        (result != 0).then(|| std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
    });
    match failed {
        None => Ok(()),
        Some(code) => Err(std::io::Error::from_raw_os_error(*code)),
    }
}

extern "C" fn handler(_: libc::c_int) {
    // SAFETY: the C library gives every thread its own errno, always at this address.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: see above.
    let before = unsafe { *errno };
    thread::interrupted();
    // SAFETY: see above.
    unsafe { *errno = before };
}
