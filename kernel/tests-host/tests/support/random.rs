//! [`Random`]: what tests draw their operations from.

/// xorshift64*.
pub struct Random(u64);

impl Random {
    /// The same seed draws the same.
    pub fn new(seed: u64) -> Self {
        // Not 0, which would stay 0.
        Self(seed | 1 << 40)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, end: usize) -> usize {
        (self.next() >> 33) as usize % end
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}
