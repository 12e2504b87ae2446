//! Writing the interrupt command register.
//!
//! # Ordering
//!
//! A target must see every store that the initiator made before it sent. In xAPIC mode the register
//! is uncacheable memory, and such writes come after all earlier stores (SDM vol. 3A, "Memory
//! Ordering"). In x2APIC mode WRMSR to an APIC register does not serialise and may complete before
//! earlier stores are visible (SDM vol. 3A, "MSR Access in x2APIC Mode"). MFENCE makes them visible;
//! LFENCE after it keeps the WRMSR, which is no memory access and so not ordered by MFENCE, from
//! starting sooner. A multicast of several commands fences once, before the first.
//!
//! Not done: leaving the fence out on AMD processors, as Linux does since 6.8. It costs little beside
//! the interrupt, and this crate has not measured what it would save.
//!
//! # Two halves
//!
//! In xAPIC mode the destination is a second register, and writing the low half sends. An interrupt
//! handler on this CPU that sends in between would change the destination. Therefore waiting for
//! idle, high half and low half happen with interrupts off; between two polls interrupts get through
//! if they were on. An NMI handler must not send in xAPIC mode.

use super::error::SendError;
use super::icr::{ApicId, Command, Destination, PENDING, StartupPage, Vector};
use super::local::LocalApic;
use super::map::ApicMap;
use super::mode::ApicMode;
use super::port::Port;
use super::register::Register;
use super::sender::IpiSender;

/// How often the "pending" bit is read before giving up: some milliseconds at least, at 30 ns or
/// more per uncached read. A healthy controller clears it within a microsecond.
pub(super) const IDLE_POLLS: u32 = 100_000;

/// The destination field of an xAPIC command has 8 bits.
const XAPIC_FIELD: u32 = 0xff;

impl<P: Port> IpiSender<P> {
    /// Interrupts a destination with a vector.
    ///
    /// # Errors
    ///
    /// [`SendError::Busy`], in xAPIC mode only; nothing was sent.
    ///
    /// # Panics
    ///
    /// In xAPIC mode, for a destination of more than 8 bits.
    #[inline]
    pub fn send(&self, to: Destination, vector: Vector) -> Result<(), SendError> {
        self.order_before_send();
        self.command(to, Command::Fixed(vector))
    }

    /// Interrupts the CPUs with these indices (bit `i` of word `w` is CPU `64 * w + i`) with as few
    /// commands as the map's delivery mode allows. The initiator may be among them.
    ///
    /// # Errors
    ///
    /// [`SendError::Unmapped`]: nothing was sent. [`SendError::Busy`]: some targets may have been
    /// interrupted; sending to all of them again is harmless.
    ///
    /// # Panics
    ///
    /// If the map is [configured](ApicMap::configure) for the other mode: its destinations would name
    /// other CPUs here.
    pub fn send_many<const N: usize>(
        &self,
        map: &ApicMap<N>,
        initiator: usize,
        targets: &[u64],
        vector: Vector,
    ) -> Result<(), SendError> {
        self.multicast(map, initiator, targets, Command::Fixed(vector))
    }

    /// Signals a remote action request ([`rar`](crate::rar)) to CPUs, as [`IpiSender::send_many`] interrupts them.
    ///
    /// # Errors
    ///
    /// As for [`IpiSender::send_many`].
    ///
    /// # Panics
    ///
    /// As for [`IpiSender::send_many`].
    ///
    /// # Safety
    ///
    /// 1. All CPUs that are online in the map carry out remote actions
    ///    ([`RarTable::start`](crate::rar::RarTable::start)): the delivery mode is reserved elsewhere.
    pub(crate) unsafe fn send_remote_action<const N: usize>(
        &self,
        map: &ApicMap<N>,
        initiator: usize,
        targets: &[u64],
    ) -> Result<(), SendError> {
        self.multicast(map, initiator, targets, Command::RemoteAction)
    }

    fn multicast<const N: usize>(
        &self,
        map: &ApicMap<N>,
        initiator: usize,
        targets: &[u64],
        command: Command,
    ) -> Result<(), SendError> {
        let delivery = map.delivery();
        assert!(
            delivery.fits(self.mode),
            "{delivery:?} does not fit {:?}",
            self.mode
        );
        let plan = map.plan(initiator, targets)?;
        self.order_before_send();
        for to in plan {
            self.command(to, command)?;
        }
        Ok(())
    }

    /// Interrupts this CPU itself.
    ///
    /// # Errors
    ///
    /// As for [`IpiSender::send`].
    pub fn send_self(&self, vector: Vector) -> Result<(), SendError> {
        match self.mode {
            ApicMode::XApic => self.write_halves(0, Command::Fixed(vector).low_to_self()),
            ApicMode::X2Apic => {
                let word = u64::from(vector.as_u8());
                // SAFETY: 1. x2APIC mode by the constructor's caller. 2. an interrupt that can be masked.
                unsafe { self.port.write_msr(Register::SelfIpi.msr(), word) };
                Ok(())
            }
        }
    }

    /// Sends a non-maskable interrupt.
    ///
    /// # Errors
    ///
    /// As for [`IpiSender::send`].
    ///
    /// # Safety
    ///
    /// 1. The targets have an NMI handler that works at any instruction boundary.
    pub unsafe fn send_nmi(&self, to: Destination) -> Result<(), SendError> {
        self.order_before_send();
        self.command(to, Command::Nmi)
    }

    /// See the module's "Ordering".
    #[inline]
    fn order_before_send(&self) {
        if self.mode == ApicMode::X2Apic {
            self.port.fence();
        }
    }

    #[inline]
    fn command(&self, to: Destination, command: Command) -> Result<(), SendError> {
        let low = command.low_to(to);
        match self.mode {
            ApicMode::XApic => {
                let field = to.field();
                assert!(field <= XAPIC_FIELD, "xAPIC cannot address {to:?}");
                self.write_halves(field << 24, low)
            }
            ApicMode::X2Apic => {
                // One 64-bit write; there is no "pending" bit in this mode.
                let word = u64::from(to.field()) << 32 | u64::from(low);
                // SAFETY: 1. x2APIC mode by the constructor's caller; `Command` sets no reserved bit.
                // 2. what can reset, start or not be masked is behind unsafe functions above.
                unsafe { self.port.write_msr(Register::CommandLow.msr(), word) };
                Ok(())
            }
        }
    }

    /// See the module's "Two halves".
    fn write_halves(&self, high: u32, low: u32) -> Result<(), SendError> {
        for _ in 0..IDLE_POLLS {
            let before = self.port.irq_save();
            // SAFETY: 1. xAPIC mode by the constructor's caller. 2. it has this register.
            let status = unsafe { self.port.read_page(Register::CommandLow.offset()) };
            let idle = status & PENDING == 0;
            if idle {
                // SAFETY: 1. and 2. as above. 3. sends nothing yet.
                unsafe { self.port.write_page(Register::CommandHigh.offset(), high) };
                // SAFETY: 1. and 2. as above. 3. what can reset, start or not be masked is behind
                // unsafe functions above.
                unsafe { self.port.write_page(Register::CommandLow.offset(), low) };
            }
            // SAFETY: 1. from `irq_save` above.
            unsafe { self.port.irq_restore(before) };
            if idle {
                return Ok(());
            }
            self.port.relax();
        }
        Err(SendError::Busy)
    }
}

impl<P: Port> LocalApic<P> {
    /// Resets a CPU into its wait-for-start-up state.
    ///
    /// # Errors
    ///
    /// As for [`IpiSender::send`].
    ///
    /// # Safety
    ///
    /// 1. The target runs no code whose sudden end would break memory safety.
    pub unsafe fn send_init(&self, to: ApicId) -> Result<(), SendError> {
        self.order_before_send();
        self.command(Destination::Physical(to), Command::Init)
    }

    /// Starts a CPU that waits after INIT, in real mode at the given page. The caller keeps to the
    /// delays of SDM vol. 3A, "Typical BSP Initialization Sequence": 10 ms after INIT, and 200 us
    /// before sending a second time. A CPU that runs already ignores it.
    ///
    /// # Errors
    ///
    /// As for [`IpiSender::send`].
    ///
    /// # Safety
    ///
    /// 1. The page holds real-mode code that is fit for the target, now and until it has left it.
    pub unsafe fn send_startup(&self, to: ApicId, page: StartupPage) -> Result<(), SendError> {
        self.order_before_send();
        self.command(Destination::Physical(to), Command::Startup(page))
    }
}
