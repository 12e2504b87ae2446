//! [`Config`]: what a kernel fixes when it is built.

use crate::policy::Policy;

/// What an engine is built with: [`Platform::CONFIG`](crate::Platform::CONFIG). What it is built without costs next to no instruction, and where a
/// method that needs it is called the program does not build. (`cargo build` says so; `cargo check` does not generate code, and does not see it.)
///
/// ```
/// use shootdown::{Config, Policy};
///
/// const LAPTOP: Config = Config::PLAIN.with_hotplug(true);
/// const MEASURED: Config = Config::PLAIN.with_any_policy().with_counters(true);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    pub(crate) policy: Option<Policy>,
    pub(crate) has_counters: bool,
    pub(crate) has_watchdog: bool,
    pub(crate) has_hotplug: bool,
    pub(crate) has_walks: bool,
    pub(crate) has_secondary: bool,
    pub(crate) has_reclaim: bool,
    pub(crate) has_reach: bool,
    pub(crate) has_rendezvous: bool,
    pub(crate) has_deaths: bool,
    pub(crate) has_quiet: bool,
}

impl Config {
    /// What an ordinary kernel needs: calls and flushes under [`Policy::BEST`], and reports of CPUs that do not answer.
    pub const PLAIN: Self = Self {
        policy: Some(Policy::BEST),
        has_counters: false,
        has_watchdog: true,
        has_hotplug: false,
        has_walks: false,
        has_secondary: false,
        has_reclaim: false,
        has_reach: false,
        has_rendezvous: false,
        has_deaths: false,
        has_quiet: false,
    };

    /// Everything but [deaths](Self::with_deaths) and [quiet CPUs](Self::with_quiet): for hosts that measure and compare.
    pub const FULL: Self = Self {
        policy: None,
        has_counters: true,
        has_watchdog: true,
        has_hotplug: true,
        has_walks: true,
        has_secondary: true,
        has_reclaim: true,
        has_reach: true,
        has_rendezvous: true,
        has_deaths: false,
        has_quiet: false,
    };

    /// The policy is this one, and stays so.
    #[must_use]
    pub const fn with_policy(mut self, policy: Policy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// The policy may be [changed](crate::Shootdown::set_policy) while the engine runs.
    #[must_use]
    pub const fn with_any_policy(mut self) -> Self {
        self.policy = None;
        self
    }

    /// Whether each CPU counts what it does ([`stats`](crate::watch::Watcher::stats)).
    #[must_use]
    pub const fn with_counters(mut self, on: bool) -> Self {
        self.has_counters = on;
        self
    }

    /// Whether waits look at the clock, and report what takes long ([`on_stall`](crate::Platform::on_stall)). Without it an interrupt that gets lost
    /// is not sent again.
    #[must_use]
    pub const fn with_watchdog(mut self, on: bool) -> Self {
        self.has_watchdog = on;
        self
    }

    /// Whether CPUs may [walk page tables](crate::user_memory::UserMemory::walk) without their lock.
    #[must_use]
    pub const fn with_walks(mut self, on: bool) -> Self {
        self.has_walks = on;
        self
    }

    /// Whether anything but CPUs may [listen](crate::secondary::SecondaryTlbs) to flushes.
    #[must_use]
    pub const fn with_secondary(mut self, on: bool) -> Self {
        self.has_secondary = on;
        self
    }

    /// Whether one flush may be for [many spaces](crate::reclaim::Reclaim).
    #[must_use]
    pub const fn with_reclaim(mut self, on: bool) -> Self {
        self.has_reclaim = on;
        self
    }

    /// Whether spaces may be [tracked](crate::reach::Reach::track), so that flushes ask those CPUs only that can have translations of what has changed.
    #[must_use]
    pub const fn with_reach(mut self, on: bool) -> Self {
        self.has_reach = on;
        self
    }

    /// Whether CPUs may come together in a [rendezvous](crate::control::CpuControl::rendezvous).
    #[must_use]
    pub const fn with_rendezvous(mut self, on: bool) -> Self {
        self.has_rendezvous = on;
        self
    }

    /// Whether CPUs may [die](crate::control::CpuControl::declare_dead). Then they may go offline, too.
    #[must_use]
    pub const fn with_deaths(mut self, on: bool) -> Self {
        self.has_deaths = on;
        self.has_hotplug |= on;
        self
    }

    /// Whether CPUs may be [quiet](crate::control::CpuControl::enter_quiet).
    #[must_use]
    pub const fn with_quiet(mut self, on: bool) -> Self {
        self.has_quiet = on;
        self
    }

    /// Whether CPUs may go [`offline`](crate::Shootdown::offline). They may come online at any time without it.
    #[must_use]
    pub const fn with_hotplug(mut self, on: bool) -> Self {
        self.has_hotplug = on;
        self
    }
}

/// Each of these calls builds with [`Config::FULL`] and does not with [`Config::PLAIN`].
#[cfg(doctest)]
mod doctests {
    macro_rules! calls {
        ($kind:literal, $config:literal: $($name:ident $call:literal;)+) => {$(
            #[doc = concat!("```", $kind, "
use shootdown::*;
struct Kernel;
unsafe impl Platform for Kernel {
    const CONFIG: Config = Config::", $config, ";
    type Cpus = Cpus<4>;
    type IrqState = ();
    fn current_cpu(&self) -> CpuId { CpuId::new(0) }
    fn irq_save(&self) {}
    unsafe fn irq_restore(&self, _: ()) {}
    fn preempt_disable(&self) {}
    unsafe fn preempt_enable(&self) {}
    fn send_ipi(&self, _: CpuId) -> Result<(), IpiRefused> { Ok(()) }
    fn local_flush(&self, _: LocalFlush) {}
    unsafe fn load_root(&self, _: u64) {}
    fn now_ns(&self) -> u64 { 0 }
}
static ENGINE: Shootdown<Kernel> = Shootdown::new(Kernel);
static MEMORY: [CpuMemory<Kernel>; 1] = [const { CpuMemory::new() }; 1];
ENGINE.attach(CpuId::new(0), &MEMORY);
ENGINE.online();
", $call, ";
```")]
            mod $name {}
        )+};
    }
    macro_rules! both {
        ($($plain:ident $full:ident $call:literal;)+) => {
            calls! { "compile_fail", "PLAIN": $($plain $call;)+ }
            calls! { "", "FULL": $($full $call;)+ }
        };
    }
    both! {
        policy any_policy "ENGINE.set_policy(Policy::BEFORE)";
        stats counters "ENGINE.watch().stats(CpuId::new(0))";
        total counters_of_all "ENGINE.watch().total_stats()";
        offline hotplug "ENGINE.offline()";
        walk walks "
let space = AddressSpace::new(&ENGINE, unsafe { Root::new(0x1000) });
drop(ENGINE.user_memory().walk(&space))";
        listen secondary "ENGINE.secondary_tlbs().listen(FlushScope::Kernel, 0)";
        no_rendezvous rendezvous "ENGINE.control().arrive()";
        reclaim reclaims "drop(reclaim::Reclaim::new(&ENGINE, Vec::<u64>::new()))";
    }
    calls! { "compile_fail", "FULL": no_deaths "unsafe { ENGINE.control().declare_dead(&CpuMask::EMPTY) }"; }
    calls! { "compile_fail", "FULL": no_quiet "ENGINE.control().leave_quiet()"; }
    calls! { "", "PLAIN.with_quiet(true)": quiet "ENGINE.control().leave_quiet()"; }
    calls! { "", "PLAIN.with_deaths(true)": deaths "unsafe { ENGINE.control().declare_dead(&CpuMask::EMPTY) }"; }
    calls! { "compile_fail", "PLAIN.with_watchdog(false)": stall "ENGINE.watch().set_stall_ns(1)"; }
    calls! { "", "PLAIN": watchdog "ENGINE.watch().set_stall_ns(1)"; }
}
