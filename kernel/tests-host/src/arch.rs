//! Shim of `arch`: one CPU, and a kernel half without anything.

/// Shim of per-CPU data.
pub mod percpu {
    /// The only CPU.
    pub fn cpu_id() -> shootdown::CpuId {
        shootdown::CpuId::new(0)
    }

    /// Nobody preempts the only CPU.
    pub fn preempt_count() -> u32 {
        0
    }
}

/// Shim of the kernel's page tables.
pub mod paging {
    /// A root that nobody loads.
    pub fn kernel_root() -> shootdown::Root {
        shootdown::Root(0)
    }

    /// Recognizable entries, so that tests see them in every root.
    pub fn kernel_half() -> [u64; 256] {
        core::array::from_fn(|index| 0x8000_0000_0000_0000 | (index as u64) << 12 | 1)
    }
}

/// Shim of user memory access.
pub mod uaccess {
    /// A failed access.
    #[derive(Debug)]
    pub struct Fault;
}
