//! Keeping interrupts away from this hart, and waiting for one.

/// `sstatus.SIE` (Privileged, "Supervisor Status (sstatus) Register").
#[cfg_attr(not(target_arch = "riscv64"), allow(dead_code))]
pub(crate) const SSTATUS_SIE: usize = 1 << 1;

/// Whether interrupts were enabled when [`Port::irq_save`] ran.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "interrupts stay disabled until the state is restored"]
pub enum IrqState {
    /// Interrupts were enabled; [`Port::irq_restore`] enables them again.
    Enabled,
    /// Interrupts were disabled already; [`Port::irq_restore`] leaves them so.
    Disabled,
}

impl IrqState {
    /// The state that a value of `sstatus` describes.
    pub const fn from_sstatus(sstatus: usize) -> Self {
        if sstatus & SSTATUS_SIE != 0 {
            Self::Enabled
        } else {
            Self::Disabled
        }
    }

    /// Whether this is [`IrqState::Enabled`].
    pub const fn is_enabled(self) -> bool {
        matches!(self, Self::Enabled)
    }
}

/// Interrupts of the calling hart. `Hardware` (on `riscv64` targets) is the real thing; all methods are compiler barriers there.
pub trait Port {
    /// Disables supervisor interrupts on this hart, returns the previous state. Any context; nests.
    fn irq_save(&self) -> IrqState;
    /// Undoes the matching [`Port::irq_save`].
    ///
    /// # Safety
    ///
    /// 1. `before` is what that returned on this hart, or nothing that runs on this hart relies on interrupts being off.
    unsafe fn irq_restore(&self, before: IrqState);
    /// WFI: waits until an interrupt is pending that `sie` enables. It may return at any time, for no reason.
    ///
    /// Call it with interrupts **off**, after a last look for work: "The operation of WFI must be unaffected by the global interrupt bits"
    /// (Privileged, "Wait for Interrupt"), so none is lost between the look and the wait. The handler runs when interrupts are enabled.
    fn wait_for_interrupt(&self);
    /// FENCE.I: this hart executes no instruction from here on that it fetched before this hart saw the store to it. For
    /// `Platform::synchronise_here`: SRET does no such thing (Unprivileged, "Zifencei").
    fn synchronise(&self);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bit_one_decides() {
        assert_eq!(IrqState::from_sstatus(0b10), IrqState::Enabled);
        assert_eq!(IrqState::from_sstatus(!0b10), IrqState::Disabled);
    }
}
