//! `/proc/shootdown/irqoff`: keeps interrupts off on purpose, as the drivers of real machines do.
//!
//! A tool of the reference kernel for measuring what others suffer from that. It does not serve the engine's inbox meanwhile,
//! because those drivers do not either.

use crate::errno::Errno;
use crate::irq;
use crate::time;

/// The longest that is taken: heavy tails are cut there.
const MOST_NS: u64 = 50_000_000;

/// Keeps interrupts off on this CPU for the number of nanoseconds that was written to the file, and spins.
///
/// # Errors
/// EINVAL for anything but a decimal number up to 50,000,000.
pub(super) fn keep_irqs_off(text: &str) -> Result<(), Errno> {
    let span_ns: u64 = text.parse().map_err(|_| Errno::EINVAL)?;
    if span_ns > MOST_NS {
        return Err(Errno::EINVAL);
    }
    let state = irq::save();
    time::spin_ns(span_ns);
    irq::restore(state);
    Ok(())
}
