//! The local interrupt controller: its registers, interrupting other CPUs, and its timer.
//!
//! A kernel uses it in this order:
//!
//! 1. [`ApicMode::detect`], then one [`LocalApic`] in a `static` (it is `Copy`; every CPU sees its
//!    own controller through the same value).
//! 2. One [`ApicMap`] in a `static`: [`ApicMap::configure`] with [`Delivery::choose`], which heeds the firmware, then
//!    [`ApicMap::insert`] for each CPU of the firmware's table.
//! 3. On every CPU, with interrupts off: [`LocalApic::enable`], then [`ApicMap::set_online`].
//! 4. When all CPUs of the machine are up: [`ApicMap::permit_shorthand`].
//! 5. [`IpiSender::send_many`] interrupts any set of CPUs with the fewest register writes.
//!
//! A host that switches its controllers on itself uses an [`IpiSender`] in place of [`LocalApic`], and steps
//! 2, 4 and 5 only. If it writes the interrupt commands itself too, it may still want [`fence_before_ipi`].
//!
//! Sources: SDM vol. 3A, chapter "Advanced Programmable Interrupt Controller (APIC)"; APM vol. 2,
//! chapter "Advanced Programmable Interrupt Controller (APIC)".

mod delivery;
mod error;
mod icr;
mod local;
mod map;
mod mode;
mod plan;
mod port;
mod register;
mod send;
mod sender;
mod timer;

pub use delivery::{Delivery, FadtFlags};
pub use error::{ErrorStatus, MapError, SendError};
pub use icr::{ApicId, Destination, FlatId, StartupPage, Vector};
pub use local::{LocalApic, physical_base};
pub use map::ApicMap;
pub use mode::ApicMode;
pub use plan::MulticastPlan;
pub use port::{Hardware, Port, fence_before_ipi};
pub use register::Register;
pub use sender::IpiSender;
pub use timer::{TimerDivide, TimerMode, TimerRate};
