//! Shim of `arch`: one CPU.

/// Shim of per-CPU data.
pub mod percpu {
    /// The only CPU.
    pub fn cpu_id() -> shootdown::CpuId {
        shootdown::CpuId::new(0)
    }
}
