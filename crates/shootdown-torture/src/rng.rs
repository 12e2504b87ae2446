//! Random numbers: one stream a worker, the same for the same seed.

/// A SplitMix64 stream (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014): one word of state, which a
/// record can keep between steps.
#[derive(Clone, Debug)]
pub struct Rng(u64);

/// The golden ratio, as SplitMix64 steps by it.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

impl Rng {
    /// The stream of `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The stream with number `stream` of `seed`.
    pub fn stream(seed: u64, stream: u64) -> Self {
        Self(mix(seed).wrapping_add(mix(stream.wrapping_mul(STEP))))
    }

    pub(crate) const fn state(&self) -> u64 {
        self.0
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }

    /// A number below `bound`, which is not zero. The bias of the remainder is of no interest here.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next_u64() % bound
    }

    /// True once in `times` on average.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}

/// A bijection that spreads neighbouring numbers.
pub(crate) const fn mix(value: u64) -> u64 {
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

#[cfg(test)]
mod tests {
    use super::Rng;

    #[test]
    fn the_same_seed_gives_the_same_stream_and_another_stream_differs() {
        let take = |mut rng: Rng| [rng.next_u64(), rng.next_u64(), rng.next_u64()];
        assert_eq!(take(Rng::stream(7, 1)), take(Rng::stream(7, 1)));
        assert_ne!(take(Rng::stream(7, 1)), take(Rng::stream(7, 2)));
        assert_ne!(take(Rng::stream(7, 1)), take(Rng::stream(8, 1)));
    }

    /// The published first output for state zero.
    #[test]
    fn it_is_splitmix() {
        assert_eq!(Rng::new(0).next_u64(), 0xe220_a839_7b1d_cdaf);
    }
}
