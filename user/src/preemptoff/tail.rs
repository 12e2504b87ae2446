//! For how long interrupts are kept off: mostly short, now and then very long.
//!
//! The body is lognormal, the tail Pareto's, cut where drivers would have been fixed long ago. T3's authors measured on
//! real drivers; their distribution is not known, so all of its parameters are options, and printed with every result.

use std::f64::consts::TAU;
use std::time::Duration;

/// The distribution.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tail {
    /// Median of the body.
    pub body: Duration,
    /// Standard deviation of the logarithm of the body.
    pub sigma: f64,
    /// The least time of the tail.
    pub least: Duration,
    /// The exponent of the tail: the smaller, the heavier.
    pub alpha: f64,
    /// What part of all times is from the tail.
    pub share: f64,
    /// No time is longer.
    pub cut: Duration,
}

impl Default for Tail {
    fn default() -> Self {
        Self {
            body: Duration::from_micros(15),
            sigma: 0.5,
            least: Duration::from_micros(200),
            alpha: 1.2,
            share: 0.02,
            cut: Duration::from_millis(50),
        }
    }
}

impl Tail {
    /// Draws a time.
    pub fn draw(&self, random: &mut fastrand::Rng) -> Duration {
        let ns = if random.f64() < self.share {
            self.tail_ns(random.f64())
        } else {
            self.body_ns(random.f64(), random.f64())
        };
        Duration::from_nanos(ns as u64).min(self.cut)
    }

    /// By Box and Muller.
    fn body_ns(&self, first: f64, second: f64) -> f64 {
        let normal = (-2.0 * (1.0 - first).ln()).sqrt() * (TAU * second).cos();
        self.body.as_nanos() as f64 * (self.sigma * normal).exp()
    }

    /// The inverse of the distribution function of what is left of Pareto's below the cut.
    fn tail_ns(&self, uniform: f64) -> f64 {
        let (least, cut) = (self.least.as_nanos() as f64, self.cut.as_nanos() as f64);
        let beyond_cut = (least / cut).powf(self.alpha);
        let survival = 1.0 - uniform * (1.0 - beyond_cut);
        least * survival.powf(-1.0 / self.alpha)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(tail: Tail) -> Vec<Duration> {
        let mut random = fastrand::Rng::with_seed(3);
        let mut times: Vec<Duration> = (0..20_000).map(|_| tail.draw(&mut random)).collect();
        times.sort_unstable();
        times
    }

    #[test]
    fn the_body_has_its_median_and_the_tail_its_bounds() {
        let body = Tail {
            share: 0.0,
            ..Tail::default()
        };
        let median_us = sorted(body)[10_000].as_micros();
        assert!((14..=16).contains(&median_us), "{median_us}");
        let tail = Tail {
            share: 1.0,
            ..Tail::default()
        };
        let times = sorted(tail);
        assert!(times[0] >= tail.least && times[19_999] <= tail.cut);
        // Half of Pareto's times exceed least * 2^(1/alpha), here 356 us.
        let median_us = times[10_000].as_micros();
        assert!((340..=372).contains(&median_us), "{median_us}");
    }

    #[test]
    fn both_are_mixed_in_their_shares() {
        let tail = Tail::default();
        let long = sorted(tail).iter().filter(|&&t| t >= tail.least).count();
        assert!((300..=500).contains(&long), "{long} of 20000 at 2 %");
    }
}
