//! Interrupts that the VMM sends (`KVM_INTERRUPT`), and the moment when a guest takes them.
//!
//! As on Linux without a controller in the kernel: the guest finds the interrupt at its next entry, whether it takes interrupts then or not, so the VMM
//! looks at `ready_for_interrupt_injection` first, or asks for an exit at that moment (`request_interrupt_window`). There the kernel has the
//! processor offer a virtual interrupt, which is intercepted (APM vol. 2, "Virtual Interrupts").

use super::abi::Interrupt;
use super::event;
use super::vcpu::State;
use super::vmcb::Field;
use crate::errno::Errno;

/// RFLAGS.IF.
const INTERRUPTS: u64 = 1 << 9;
/// Of INTERRUPT_SHADOW: the guest takes none before its next instruction is over.
const SHADOW: u64 = 1 << 0;

/// Of V_INTR: an interrupt waits, of the highest priority, whatever the guest's task priority.
const V_IRQ: u64 = 1 << 8;
const V_INTR_PRIO: u64 = 0xf << 16;
const V_IGN_TPR: u64 = 1 << 20;
const WINDOW: u64 = V_IRQ | V_INTR_PRIO | V_IGN_TPR;
/// The host's interrupt flag, not the guest's, says whether interrupts end the guest.
pub(super) const V_INTR_MASKING: u64 = 1 << 24;

impl State {
    /// `KVM_INTERRUPT`. One that was not delivered yet is replaced. Behind an exception that is to be delivered it waits until the guest takes it.
    ///
    /// # Errors
    /// EINVAL where there is no such vector.
    pub fn queue_interrupt(&mut self, wanted: Interrupt) -> Result<(), Errno> {
        let vector = u8::try_from(wanted.vector).map_err(|_| Errno::EINVAL)?;
        self.interrupt = None;
        match self.undelivered() {
            None | Some((event::INTERRUPT, _)) => self.inject_interrupt(vector),
            Some(_) => self.interrupt = Some(vector),
        }
        Ok(())
    }

    /// Before each entry: injects the interrupt that waits if the guest takes it now. Else the guest is left when it does, for that, or because the VMM
    /// wants to know.
    pub(super) fn place_interrupt(&mut self, vmm_wants_window: bool) {
        if self.takes_interrupts()
            && let Some(vector) = self.interrupt.take()
        {
            self.inject_interrupt(vector);
        }
        let others = self.vmcb.get(Field::V_INTR) & !WINDOW;
        let window = match vmm_wants_window || self.interrupt.is_some() {
            true => WINDOW,
            false => 0,
        };
        self.vmcb.set(Field::V_INTR, others | window);
    }

    /// What `ready_for_interrupt_injection` says: an interrupt sent now is the next thing that happens to the guest, which takes it.
    pub fn is_ready_for_interrupt(&self) -> bool {
        self.takes_interrupts() && self.interrupt.is_none()
    }

    /// RFLAGS.IF.
    pub fn has_interrupts_on(&self) -> bool {
        self.vmcb.get(Field::RFLAGS) & INTERRUPTS != 0
    }

    /// `interrupt_bitmap`: the interrupt that was not delivered yet.
    pub fn interrupt_bitmap(&self) -> [u64; 4] {
        let mut bitmap = [0; 4];
        let injected = match self.undelivered() {
            Some((event::INTERRUPT, vector)) => Some(vector),
            _ => None,
        };
        if let Some(vector) = injected.or(self.interrupt) {
            bitmap[usize::from(vector) / 64] = 1 << (vector % 64);
        }
        bitmap
    }

    /// The same as the VMM has it: the lowest is sent, and of none nothing is changed.
    pub fn set_interrupt_bitmap(&mut self, bitmap: &[u64; 4]) {
        let lowest = bitmap.iter().position(|&word| word != 0);
        if let Some(word) = lowest {
            let vector = 64 * word as u32 + bitmap[word].trailing_zeros();
            let sent = self.queue_interrupt(Interrupt { vector });
            debug_assert!(sent.is_ok(), "four words have 256 bits");
        }
    }

    /// Whether one waits that the guest takes now.
    pub(super) fn is_interrupt_next(&self) -> bool {
        self.interrupt.is_some() && self.takes_interrupts()
    }

    fn takes_interrupts(&self) -> bool {
        self.has_interrupts_on() && !self.has_shadow() && !self.has_event()
    }

    /// The guest takes nothing before its next instruction is over.
    pub fn has_shadow(&self) -> bool {
        self.vmcb.get(Field::INTERRUPT_SHADOW) & SHADOW != 0
    }

    fn inject_interrupt(&mut self, vector: u8) {
        self.set_event(event::INTERRUPT, vector.into(), 0);
    }
}
