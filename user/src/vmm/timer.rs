//! The timer of a local APIC (SDM vol. 3A, "APIC Timer"): one count a nanosecond before it is divided.

const MASKED: u32 = 1 << 16;
const PERIODIC: u32 = 1 << 17;
/// Bits of the local vector table's entry that can be written: vector, mask, mode.
const LVT_OPEN: u32 = 0x3_00ff;

/// The timer.
#[derive(Debug)]
pub struct Timer {
    lvt: u32,
    divide: u32,
    initial: u32,
    due_ns: Option<u64>,
}

impl Timer {
    /// As after a reset.
    pub fn new() -> Self {
        Self {
            lvt: MASKED,
            divide: 0,
            initial: 0,
            due_ns: None,
        }
    }

    /// The entry of the local vector table.
    pub fn lvt(&self) -> u32 {
        self.lvt
    }

    /// Writes that.
    pub fn set_lvt(&mut self, value: u32) {
        self.lvt = value & LVT_OPEN;
    }

    /// The divide configuration register.
    pub fn divide(&self) -> u32 {
        self.divide
    }

    /// Writes that.
    pub fn set_divide(&mut self, value: u32) {
        self.divide = value & 0b1011;
    }

    /// The initial count.
    pub fn initial(&self) -> u32 {
        self.initial
    }

    /// Starts to count down from there; 0 stops it.
    pub fn start(&mut self, initial: u32, now_ns: u64) {
        self.initial = initial;
        self.due_ns = (initial != 0).then(|| now_ns + self.period_ns());
    }

    /// The count now.
    pub fn current(&self, now_ns: u64) -> u32 {
        let left_ns = self.due_ns.map_or(0, |due| due.saturating_sub(now_ns));
        (left_ns >> self.divide_shift()) as u32
    }

    /// When it interrupts next.
    pub fn due_ns(&self) -> Option<u64> {
        self.due_ns.filter(|_| self.lvt & MASKED == 0)
    }

    /// The interrupt that has become due.
    pub fn take_due(&mut self, now_ns: u64) -> Option<u8> {
        let due_ns = self.due_ns.filter(|&due| due <= now_ns)?;
        let period_ns = self.period_ns();
        // Periods that nobody looked at are not made up for.
        let missed = (now_ns - due_ns) / period_ns;
        let is_periodic = self.lvt & PERIODIC != 0;
        self.due_ns = is_periodic.then(|| due_ns + (missed + 1) * period_ns);
        (self.lvt & MASKED == 0).then_some(self.lvt as u8)
    }

    fn period_ns(&self) -> u64 {
        u64::from(self.initial) << self.divide_shift()
    }

    /// By 2, 4, 8 and so on, and by 1 last.
    fn divide_shift(&self) -> u32 {
        let code = self.divide & 0b11 | self.divide >> 1 & 0b100;
        (code + 1) % 8
    }
}

impl Default for Timer {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fires_once_or_again_and_again() {
        let mut timer = Timer::new();
        timer.set_divide(0b0011);
        timer.set_lvt(0xef);
        timer.start(10, 1000);
        assert_eq!((timer.due_ns(), timer.current(1000)), (Some(1160), 10));
        assert_eq!(
            (timer.take_due(1159), timer.take_due(1160)),
            (None, Some(0xef))
        );
        assert_eq!((timer.due_ns(), timer.current(2000)), (None, 0));
        timer.set_lvt(PERIODIC | 0xef);
        timer.start(10, 2000);
        assert_eq!(timer.take_due(2500), Some(0xef));
        assert_eq!(timer.due_ns(), Some(2640));
    }

    #[test]
    fn a_masked_timer_counts_and_is_silent() {
        let mut timer = Timer::new();
        timer.set_divide(0b1011);
        timer.start(100, 0);
        assert_eq!((timer.due_ns(), timer.current(40)), (None, 60));
        assert_eq!(timer.take_due(100), None);
    }
}
