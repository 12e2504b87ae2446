//! What a thread has blocked, what is pending for it, and its alternate stack.

use linux_raw_sys::general as linux;

use super::{Signal, SignalSet};
use crate::arch::uaccess::Pod;
use crate::task::{ExitStatus, JobNews};

/// Size of a `siginfo_t`.
const SIGINFO_BYTES: usize = 128;

/// Where a signal came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Origin {
    Process { pid: u32 },
    Child { pid: u32, status: u32 },
    Timer { id: u32, overrun: u32, value: u64 },
    Queue { pid: u32, value: u64 },
    Fault { address: usize },
}

/// A signal with its particulars, as handlers see them in a `siginfo_t`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SigInfo {
    signal: Signal,
    code: i32,
    origin: Origin,
}

impl SigInfo {
    /// Sent by a process with `kill`.
    pub fn from_kill(signal: Signal, pid: u32) -> Self {
        Self {
            signal,
            code: linux::SI_USER as i32,
            origin: Origin::Process { pid },
        }
    }

    /// Sent by a process with `tkill` or `tgkill`.
    pub fn from_tkill(signal: Signal, pid: u32) -> Self {
        Self {
            signal,
            code: linux::SI_TKILL,
            origin: Origin::Process { pid },
        }
    }

    /// Sent by a timer of the process, which was due so many times more.
    pub fn from_timer(signal: Signal, id: u32, overrun: u32, value: u64) -> Self {
        Self {
            signal,
            code: linux::SI_TIMER,
            origin: Origin::Timer { id, overrun, value },
        }
    }

    /// Sent by a process that says itself where it comes from.
    pub fn from_queue(signal: Signal, code: i32, pid: u32, value: u64) -> Self {
        Self {
            signal,
            code,
            origin: Origin::Queue { pid, value },
        }
    }

    /// The timer that sent it, and how many times more it was due.
    pub fn timer(&self) -> Option<(u32, u32)> {
        match self.origin {
            Origin::Timer { id, overrun, .. } => Some((id, overrun)),
            _ => None,
        }
    }

    /// The same signal of the same timer came once more.
    fn absorb(&mut self, later: &Self) {
        let (Origin::Timer { id, overrun, .. }, Some((other, more))) =
            (&mut self.origin, later.timer())
        else {
            return;
        };
        if *id == other {
            *overrun = overrun.saturating_add(more).saturating_add(1);
        }
    }

    /// Tells a parent that its child has stopped or goes on.
    pub fn from_job(pid: u32, news: JobNews) -> Self {
        Self::about_child(pid, news.as_code_and_status())
    }

    /// Tells a parent that its child has ended, and how.
    pub fn from_child(pid: u32, how: ExitStatus) -> Self {
        Self::about_child(pid, how.as_code_and_status())
    }

    fn about_child(pid: u32, (code, status): (u32, u32)) -> Self {
        Self {
            signal: Signal::CHLD,
            code: code as i32,
            origin: Origin::Child { pid, status },
        }
    }

    /// Sent by the kernel on its own account.
    pub fn from_kernel(signal: Signal) -> Self {
        Self {
            signal,
            code: linux::SI_KERNEL as i32,
            origin: Origin::Fault { address: 0 },
        }
    }

    /// Caused by an instruction; `code` says how, `address` where.
    pub fn from_fault(signal: Signal, code: u32, address: usize) -> Self {
        Self {
            signal,
            code: code as i32,
            origin: Origin::Fault { address },
        }
    }

    /// Whether another process than this one may have sent it.
    pub fn may_be_from_another(&self, own: u32) -> bool {
        match self.origin {
            Origin::Process { pid } => pid != own,
            // What it says of itself is not checked.
            Origin::Queue { .. } => true,
            _ => false,
        }
    }

    /// Which signal.
    pub fn signal(&self) -> Signal {
        self.signal
    }

    /// The address that an instruction touched; 0 for signals that were sent.
    pub fn address(&self) -> usize {
        match self.origin {
            Origin::Fault { address } => address,
            _ => 0,
        }
    }

    /// The bytes of the `siginfo_t`: number, error (0), code, padding, then the particulars.
    pub fn to_bytes(self) -> [u8; SIGINFO_BYTES] {
        let mut bytes = [0; SIGINFO_BYTES];
        bytes[0..4].copy_from_slice(&self.signal.number().to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.code.to_ne_bytes());
        match self.origin {
            // The user that follows the number is always 0: there is only one.
            Origin::Process { pid } => bytes[16..20].copy_from_slice(&pid.to_ne_bytes()),
            Origin::Child { pid, status } => {
                bytes[16..20].copy_from_slice(&pid.to_ne_bytes());
                bytes[24..28].copy_from_slice(&status.to_ne_bytes());
            }
            Origin::Timer { id, overrun, value } => {
                bytes[16..20].copy_from_slice(&id.to_ne_bytes());
                bytes[20..24].copy_from_slice(&overrun.to_ne_bytes());
                bytes[24..32].copy_from_slice(&value.to_ne_bytes());
            }
            Origin::Queue { pid, value } => {
                bytes[16..20].copy_from_slice(&pid.to_ne_bytes());
                bytes[24..32].copy_from_slice(&value.to_ne_bytes());
            }
            Origin::Fault { address } => bytes[16..24].copy_from_slice(&address.to_ne_bytes()),
        }
        bytes
    }
}

/// An alternate signal stack, in the layout of `stack_t`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct AltStack {
    base: usize,
    flags: u32,
    padding: u32,
    size: usize,
}

// SAFETY: integers, and what would be padding is a field; any bytes are values of them.
unsafe impl Pod for AltStack {}

impl AltStack {
    /// None is set.
    pub const DISABLED: Self = Self {
        base: 0,
        flags: linux::SS_DISABLE,
        padding: 0,
        size: 0,
    };

    /// The least size that may be set.
    const LEAST_BYTES: usize = linux::MINSIGSTKSZ as usize;

    /// Checks what user mode asks for. `None` stands for EINVAL, the inner error for ENOMEM.
    pub fn checked(self) -> Option<Result<Self, TooSmall>> {
        match self.flags {
            linux::SS_DISABLE => Some(Ok(Self::DISABLED)),
            0 | linux::SS_ONSTACK if self.size < Self::LEAST_BYTES => Some(Err(TooSmall)),
            0 | linux::SS_ONSTACK => Some(Ok(Self {
                flags: 0,
                padding: 0,
                ..self
            })),
            _ => None,
        }
    }

    /// Is the stack pointer on it?
    pub fn holds(&self, rsp: usize) -> bool {
        self.is_enabled() && rsp > self.base && rsp - self.base <= self.size
    }

    /// Is there one?
    pub fn is_enabled(&self) -> bool {
        self.flags & linux::SS_DISABLE == 0
    }

    /// One past its highest byte.
    pub fn top(&self) -> usize {
        self.base.wrapping_add(self.size)
    }

    /// As user mode sees it while its stack pointer is `rsp`.
    #[must_use]
    pub fn seen_from(&self, rsp: usize) -> Self {
        let flags = if self.holds(rsp) {
            linux::SS_ONSTACK
        } else {
            self.flags
        };
        Self { flags, ..*self }
    }
}

/// The alternate stack asked for is smaller than a signal frame may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooSmall;

/// The signal state of a thread.
#[derive(Debug)]
pub struct ThreadSignals {
    /// Not delivered now.
    pub(super) blocked: SignalSet,
    /// Blocked again once a waiting call (`sigsuspend`, `ppoll`) has let a handler in.
    pub(super) saved_blocked: Option<SignalSet>,
    pending: SignalSet,
    /// Particulars of the pending signals. A signal pends once, the first wins.
    infos: [Option<SigInfo>; Signal::COUNT],
    pub(in crate::task) alt_stack: AltStack,
}

impl ThreadSignals {
    /// Nothing blocked, nothing pending, no alternate stack.
    pub const fn new() -> Self {
        Self {
            blocked: SignalSet::EMPTY,
            saved_blocked: None,
            pending: SignalSet::EMPTY,
            infos: [None; Signal::COUNT],
            alt_stack: AltStack::DISABLED,
        }
    }

    /// What a new thread of the process inherits: the blocked set only.
    pub fn for_thread(&self) -> Self {
        Self {
            blocked: self.blocked,
            ..Self::new()
        }
    }

    /// What the first thread of a child process inherits: its stacks are where those of its parent are.
    pub fn for_process(&self) -> Self {
        Self {
            alt_stack: self.alt_stack,
            ..self.for_thread()
        }
    }

    /// The blocked set.
    pub fn blocked(&self) -> SignalSet {
        self.blocked
    }

    /// The pending set, blocked ones included.
    pub fn pending(&self) -> SignalSet {
        self.pending
    }

    /// Is there a signal to deliver now?
    pub fn has_deliverable(&self) -> bool {
        !self.pending.minus(self.blocked).is_empty()
    }

    /// Adds a pending signal.
    pub(super) fn add(&mut self, info: SigInfo) {
        let place = &mut self.infos[info.signal().index()];
        match place {
            Some(first) => first.absorb(&info),
            None => *place = Some(info),
        }
        self.pending.insert(info.signal());
    }

    /// Forgets pending signals of the set.
    pub(super) fn forget(&mut self, set: SignalSet) {
        while self.take(set).is_some() {}
    }

    /// Takes the lowest-numbered pending signal among `allowed`.
    pub(in crate::task) fn take(&mut self, allowed: SignalSet) -> Option<SigInfo> {
        let wanted = SignalSet::from_bits(self.pending.bits() & allowed.bits());
        let signal = wanted.first()?;
        self.pending.remove(signal);
        self.infos[signal.index()].take()
    }

    /// Takes the next signal to deliver.
    pub(super) fn take_deliverable(&mut self) -> Option<SigInfo> {
        self.take(SignalSet::from_bits(!self.blocked.bits()))
    }
}

impl Default for ThreadSignals {
    fn default() -> Self {
        Self::new()
    }
}
