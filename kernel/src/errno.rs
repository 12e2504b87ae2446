//! Linux error numbers, the failure type of everything that user programs can ask for.

use core::fmt;
use linux_raw_sys::errno;

/// A Linux error number.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Errno(u32);

/// Names the error numbers that this kernel returns.
macro_rules! names {
    ($($name:ident),* $(,)?) => {
        #[allow(missing_docs, reason = "the names are the manual's: errno(3)")]
        #[allow(dead_code, reason = "one list for all modules")]
        impl Errno {
            $(pub const $name: Self = Self(errno::$name);)*
        }

        impl fmt::Debug for Errno {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.0 {
                    $(errno::$name => f.write_str(stringify!($name)),)*
                    other => write!(f, "errno {other}"),
                }
            }
        }
    };
}

names! {
    E2BIG, EACCES, EAFNOSUPPORT, EAGAIN, EBADF, EBUSY, ECHILD, EDEADLK, EEXIST, EFAULT, EFBIG, EINTR, EINVAL, EIO,
    EISDIR, ELOOP, EMFILE, ENAMETOOLONG, ENFILE, ENODEV, ENOENT, ENOEXEC, ENOLCK, ENOMEM, ENOSPC, ENOSYS, ENOTDIR, ENOTEMPTY, ENOTTY, ENXIO,
    EOPNOTSUPP, EOVERFLOW, EPERM, EPIPE, ERANGE, EROFS, ESHUTDOWN, ESPIPE, ESRCH, ETIMEDOUT,
}

impl Errno {
    /// Never seen by user mode: a signal came first. The call is made again or becomes EINTR.
    /// Linux's `ERESTARTSYS` has the same number, which no error has.
    pub const RESTART: Self = Self(512);

    /// The value of RAX that reports this error.
    pub const fn as_return(self) -> u64 {
        -(self.0 as i64) as u64
    }
}
