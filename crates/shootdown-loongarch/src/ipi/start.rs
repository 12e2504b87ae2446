//! Mailboxes, and starting CPUs by them.

use super::{CoreId, Ipi, Port, Register, Vector};

/// One of the four mailboxes of a CPU, 64 bits each.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mailbox {
    /// Where a CPU that waits in the boot ROM finds the address to begin at.
    Zero,
    /// The second.
    One,
    /// The third.
    Two,
    /// The fourth.
    Three,
}

impl Mailbox {
    const fn register(self) -> Register {
        match self {
            Self::Zero => Register::MailBox0,
            Self::One => Register::MailBox1,
            Self::Two => Register::MailBox2,
            Self::Three => Register::MailBox3,
        }
    }
}

/// How long [`Ipi::start_cpu`] tries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Patience {
    /// How often it sends.
    pub attempts: u32,
    /// How often it looks for the answer after each.
    pub looks: u32,
}

/// A CPU did not answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoAnswer;

/// The bit of Mail_Send that waits until the half is written: else the two could arrive in either order.
const WAIT: u64 = 1 << 31;

impl<P: Port> Ipi<P> {
    /// Writes a mailbox of another CPU: the upper half first, which has arrived before the lower one is sent. It waits for the registers of that CPU, not for what it
    /// executes. For boot: not where interrupts must stay short.
    ///
    /// # Safety
    ///
    /// 1. What `target` does with the value breaks none of Rust's rules: one that waits in the boot ROM goes on there, once it is interrupted.
    pub unsafe fn send_mail(&self, target: CoreId, mailbox: Mailbox, value: u64) {
        let first_half = u64::from(mailbox.register() as u32 - Register::MailBox0 as u32) / 8 * 2;
        for (half, data) in [(1, value >> 32), (0, value & 0xffff_ffff)] {
            let place = (first_half + half) << 2 | u64::from(target.0) << 16;
            // SAFETY: 1. the duty of the caller.
            unsafe {
                self.port
                    .write64(Register::MailSend, data << 32 | WAIT | place)
            };
        }
    }

    /// What is in a mailbox of this CPU.
    pub fn mail(&self, mailbox: Mailbox) -> u64 {
        self.port.read64(mailbox.register())
    }

    /// Writes zero to a mailbox of this CPU.
    pub fn clear_mail(&self, mailbox: Mailbox) {
        // SAFETY: 1. this CPU runs already.
        unsafe { self.port.write64(mailbox.register(), 0) };
    }

    /// Has a CPU that waits in the boot ROM begin at the physical address `entry`: writes it to mailbox 0 and sends [`Vector::START`], again and again until `has_answered` says so.
    ///
    /// Once is not enough: a CPU clears its mailbox when it comes into the boot ROM, and what was there before is lost (QEMU 10). An answer is what the code at `entry` stores when it begins;
    /// that code clears the mailbox, and takes vectors that are pending as sent for nothing ([`Ipi::enable`] forgets them).
    ///
    /// # Errors
    ///
    /// [`NoAnswer`] if there was none for as long as `patience` says. The CPU may still begin later.
    ///
    /// # Safety
    ///
    /// 1. The code at `entry` may begin on `target`, in direct address translation mode and with no stack.
    /// 2. `target` has not begun, or has answered: one that runs takes the vector as an interrupt.
    pub unsafe fn start_cpu(
        &self,
        target: CoreId,
        entry: u64,
        patience: Patience,
        mut has_answered: impl FnMut() -> bool,
    ) -> Result<(), NoAnswer> {
        for _ in 0..patience.attempts {
            // SAFETY: 1. duty 1 of the caller.
            unsafe { self.send_mail(target, Mailbox::Zero, entry) };
            self.send(target, Vector::START);
            for _ in 0..patience.looks {
                if has_answered() {
                    return Ok(());
                }
                self.port.relax();
            }
        }
        Err(NoAnswer)
    }
}
