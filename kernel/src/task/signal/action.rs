//! What a process does about each signal.

use linux_raw_sys::general as linux;

use super::{Signal, SignalSet};
use crate::arch::uaccess::Pod;

/// The handler field that stands for the default action.
const DEFAULT: usize = 0;
/// The handler field that stands for ignoring the signal.
const IGNORE: usize = 1;

/// One `sigaction`, in the layout of the system call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Action {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}

// SAFETY: integers without padding; any bytes are values of them.
unsafe impl Pod for Action {}

/// What happens to a signal that has no handler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DefaultAction {
    /// The process ends.
    Terminate,
    /// Nothing.
    Ignore,
    /// The process stops until SIGCONT.
    Stop,
}

impl DefaultAction {
    /// The default for this signal.
    pub fn of(signal: Signal) -> Self {
        match signal.number() {
            linux::SIGCHLD | linux::SIGURG | linux::SIGWINCH | linux::SIGCONT => Self::Ignore,
            _ if SignalSet::STOPPING.contains(signal) => Self::Stop,
            _ => Self::Terminate,
        }
    }
}

impl Action {
    const fn default_action() -> Self {
        Self {
            handler: DEFAULT,
            flags: 0,
            restorer: 0,
            mask: 0,
        }
    }

    /// Address of the handler in user memory, if there is one.
    pub fn handler(&self) -> Option<usize> {
        (self.handler != DEFAULT && self.handler != IGNORE).then_some(self.handler)
    }

    /// Is the signal dropped without anybody noticing?
    pub fn ignores(&self, signal: Signal) -> bool {
        self.handler == IGNORE
            || (self.handler == DEFAULT && DefaultAction::of(signal) == DefaultAction::Ignore)
    }

    /// Set for SIGCHLD: are children that end forgotten at once, because the process will not wait for them?
    pub fn forgets_children(&self) -> bool {
        self.handler == IGNORE || self.has_flag(linux::SA_NOCLDWAIT)
    }

    /// Is it to stop the process?
    pub fn stops(&self, signal: Signal) -> bool {
        self.handler == DEFAULT && DefaultAction::of(signal) == DefaultAction::Stop
    }

    /// Set for SIGCHLD: is only the end of children to be told, not that they stop?
    pub fn wants_ends_only(&self) -> bool {
        self.has_flag(linux::SA_NOCLDSTOP)
    }

    /// Where the handler returns to; x86-64 requires user mode to provide it.
    pub fn restorer(&self) -> Option<usize> {
        self.has_flag(linux::SA_RESTORER).then_some(self.restorer)
    }

    /// Signals blocked while the handler of `signal` runs.
    pub fn blocked_meanwhile(&self, signal: Signal) -> SignalSet {
        let mut set = SignalSet::from_bits(self.mask);
        if !self.has_flag(linux::SA_NODEFER) {
            set.insert(signal);
        }
        set.blockable()
    }

    /// Does the handler run on the alternate stack?
    pub fn on_alt_stack(&self) -> bool {
        self.has_flag(linux::SA_ONSTACK)
    }

    /// Is an interrupted system call made again after the handler?
    pub fn restarts_calls(&self) -> bool {
        self.has_flag(linux::SA_RESTART)
    }

    /// Is the handler forgotten as it is called?
    pub fn is_one_shot(&self) -> bool {
        self.has_flag(linux::SA_RESETHAND)
    }

    fn has_flag(&self, flag: u32) -> bool {
        self.flags & u64::from(flag) != 0
    }
}

/// The actions for all signals.
#[derive(Clone, Debug)]
pub struct Actions([Action; Signal::COUNT]);

impl Actions {
    /// Everything at its default.
    pub const fn new() -> Self {
        Self([Action::default_action(); Signal::COUNT])
    }

    /// The action for that signal.
    pub fn get(&self, signal: Signal) -> Action {
        self.0[signal.index()]
    }

    /// Replaces the action for that signal.
    pub fn set(&mut self, signal: Signal, action: Action) {
        self.0[signal.index()] = action;
    }

    /// Back to the default.
    pub fn reset(&mut self, signal: Signal) {
        self.0[signal.index()] = Action::default_action();
    }

    /// What is left after `execve`: handlers are gone, ignored signals stay ignored.
    #[must_use]
    pub fn after_exec(&self) -> Self {
        Self(self.0.map(|action| match action.handler {
            IGNORE => Action {
                handler: IGNORE,
                ..Action::default_action()
            },
            _ => Action::default_action(),
        }))
    }
}

impl Default for Actions {
    fn default() -> Self {
        Self::new()
    }
}
