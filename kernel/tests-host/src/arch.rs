//! Shim of `arch`: CPUs that threads play, and a kernel half without anything.

#[cfg(feature = "isolation")]
#[path = "../../src/arch/cr3.rs"]
pub mod cr3;
#[path = "../../src/arch/spurious.rs"]
pub mod spurious;
#[cfg(feature = "isolation")]
pub mod tlb;
#[path = "../../src/arch/top.rs"]
pub mod top;

/// Shim of per-CPU data: of the CPU that the thread is.
pub mod percpu {
    use core::cell::Cell;
    use shootdown::CpuId;

    thread_local! {
        static CPU: Cell<u32> = const { Cell::new(0) };
        static PREEMPT_COUNT: Cell<u32> = const { Cell::new(0) };
    }

    /// The CPU that the thread is: the first one, if it does not say otherwise.
    pub fn cpu_id() -> CpuId {
        CpuId::new(CPU.get())
    }

    /// Does `work` as that CPU.
    pub fn as_cpu<R>(cpu: CpuId, work: impl FnOnce() -> R) -> R {
        let before = CPU.replace(cpu.as_u32());
        let done = work();
        CPU.set(before);
        done
    }

    /// How often preemption is disabled: by spin locks, and by the engine.
    pub fn preempt_count() -> u32 {
        PREEMPT_COUNT.get()
    }

    /// Changes it.
    pub fn set_preempt_count(count: u32) {
        PREEMPT_COUNT.set(count);
    }

    /// What entries and exits of the CPU that the thread is write to CR3.
    #[cfg(feature = "isolation")]
    mod entry {
        use core::cell::Cell;

        thread_local! {
            static CR3: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
        }

        /// Changes both, the entries' first.
        pub fn set_cr3(both: (u64, u64)) {
            CR3.set(both);
        }

        /// The entries'.
        pub fn kernel_cr3() -> u64 {
            CR3.get().0
        }

        /// The exits'.
        pub fn user_cr3() -> u64 {
            CR3.get().1
        }

        /// Changes it.
        pub fn set_user_cr3(value: u64) {
            CR3.set((kernel_cr3(), value));
        }
    }
    #[cfg(feature = "isolation")]
    pub use entry::{kernel_cr3, set_cr3, set_user_cr3, user_cr3};
}

/// Shim of the kernel's page tables.
pub mod paging {
    /// A root that nobody loads.
    pub fn kernel_root() -> shootdown::KernelRoot {
        // SAFETY: 1. to load a root is nothing here. 2. 3. there are no tables behind it, and no windows.
        unsafe { shootdown::KernelRoot::new(0) }
    }

    /// Recognizable entries, so that tests see them in every root.
    pub fn kernel_half() -> [u64; 256] {
        let mut half =
            core::array::from_fn(|index| 0x8000_0000_0000_0000 | (index as u64) << 12 | 1);
        if cfg!(feature = "isolation") {
            // Each root's own.
            half[1] = 0;
        }
        half
    }

    /// Others for user roots.
    #[cfg(feature = "isolation")]
    pub fn user_half() -> [u64; 256] {
        core::array::from_fn(|index| 0x8100_0000_0000_0000 | (index as u64) << 12 | 1)
    }
}
