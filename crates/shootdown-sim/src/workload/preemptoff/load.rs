//! [`Load`]: what threads and devices do, and where each figure comes from.

use std::fmt;

use crate::timed::{Origin, ParameterError};

/// What the machine of table T3 is made to do. Times have their unit in their names.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Load {
    /// Length of an interval, for each of which the longest span is kept.
    pub interval_ms: f64,
    /// Low-priority threads of each CPU.
    pub workers: f64,
    /// Operations a second of all threads of the busiest CPU.
    pub busiest_per_s: f64,
    /// How many times fewer the idlest CPU has; the others lie between, in equal ratios.
    pub idlest_fraction: f64,
    /// Pages of an unmapping, at most.
    pub most_pages: f64,
    /// Interrupts of devices, a second and CPU. Their handlers count as spans, as tracers of preemption count them.
    pub body_per_s: f64,
    /// The median of their lengths.
    pub body_median_us: f64,
    /// The standard deviation of the logarithm of their lengths.
    pub body_sigma: f64,
    /// Long sections of drivers with interrupts off, a second and CPU. They are no spans of their own.
    pub tail_per_s: f64,
    /// The shortest of these (Pareto's x_m).
    pub tail_least_us: f64,
    /// Pareto's alpha: the smaller, the heavier the tail.
    pub tail_alpha: f64,
    /// No section is longer.
    pub tail_cut_us: f64,
    /// How long the lock of the page tables is held for the change alone.
    pub lock_hold_us: f64,
    /// Share of flushes that are waited for under that lock (not under `best`), in percent.
    pub under_lock_percent: f64,
    /// What a called function takes on its target.
    pub function_us: f64,
    /// Period of the FIFO thread that each CPU has.
    pub fifo_period_us: f64,
    /// Time slice of low-priority threads.
    pub slice_us: f64,
    /// One turn of a spin loop, in place of the machine's `relax_ns`.
    pub spin_turn_ns: f64,
}

/// One figure of a load.
#[derive(Clone, Copy)]
pub struct LoadFigure {
    /// Its name, which ends in the unit.
    pub name: &'static str,
    /// What it is.
    pub about: &'static str,
    /// The value where nothing else is said.
    pub value: f64,
    /// Where that comes from.
    pub origin: Origin,
    least: f64,
    most: f64,
    get: fn(&Load) -> f64,
    set: fn(&mut Load, f64),
}

impl fmt::Debug for LoadFigure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

macro_rules! figures {
    ($($field:ident = $value:literal in $least:literal..=$most:literal, $about:literal, $origin:ident $why:literal;)+) => {
        /// All figures of a load, in the order in which they are printed.
        pub static LOAD_FIGURES: &[LoadFigure] = &[$(LoadFigure {
            name: stringify!($field),
            about: $about,
            value: $value,
            origin: Origin::$origin($why),
            least: $least,
            most: $most,
            get: |load| load.$field,
            set: |load, value| load.$field = value,
        },)+];

        impl Default for Load {
            fn default() -> Self {
                Self { $($field: $value,)+ }
            }
        }
    };
}

figures! {
    interval_ms = 100.0 in 1.0..=100_000.0, "interval of which the longest span is kept",
        Assumed "table T3 does not say; shorter ones with higher rates have the same maxima";
    workers = 2.0 in 1.0..=8.0, "low-priority threads of each CPU",
        Assumed "more than one, so that a second task can call while the first waits";
    busiest_per_s = 260.0 in 0.01..=100_000.0, "operations a second on the busiest CPU",
        Fitted "before: p99 of the maxima 16.72 ms";
    idlest_fraction = 0.03 in 0.0001..=1.0, "operations of the idlest CPU, of the busiest one's",
        Assumed "spread so that the medians of CPUs differ as published, 43 to 257 us";
    most_pages = 8.0 in 1.0..=32.0, "pages of an unmapping, at most; each is dropped by itself",
        Assumed "most unmappings are small; whole spaces are another operation";
    body_per_s = 300.0 in 0.0..=100_000.0, "interrupts of devices, a second and CPU",
        Assumed "a quiet machine";
    body_median_us = 10.0 in 0.1..=10_000.0, "median of their lengths",
        Assumed "with sigma, longest of an interval 40 to 60 us, as table T3 has it";
    body_sigma = 0.75 in 0.0..=3.0, "standard deviation of the logarithm of their lengths",
        Assumed "with the median, longest of an interval 40 to 60 us, as table T3 has it";
    tail_per_s = 6.0 in 0.0..=10_000.0, "long sections with interrupts off, a second and CPU",
        Assumed "only its product with the operations counts";
    tail_least_us = 250.0 in 1.0..=50_000.0, "the shortest of these (Pareto's x_m)",
        Published "table T3: 100 to 250 us";
    tail_alpha = 1.5 in 0.5..=5.0, "Pareto's alpha",
        Published "table T3: 1 to 1.5";
    tail_cut_us = 50_000.0 in 1.0..=1_000_000.0, "none is longer",
        Published "table T3: cut at 50 ms";
    lock_hold_us = 2.0 in 0.0..=10_000.0, "page-table lock held for the change alone",
        Assumed "some ten entries";
    under_lock_percent = 0.7 in 0.0..=100.0, "flushes waited for under that lock, not under best",
        Fitted "published: p99 of the maxima 1.56 ms, its residual lock contention";
    function_us = 0.5 in 0.0..=10_000.0, "what a called function takes",
        Assumed "a few cache lines";
    fifo_period_us = 10_000.0 in 100.0..=10_000_000.0, "period of each CPU's FIFO thread",
        Assumed "a control loop at 100 Hz";
    slice_us = 4000.0 in 10.0..=1_000_000.0, "time slice of low-priority threads",
        Assumed "one tick of Linux at 250 Hz";
    spin_turn_ns = 1000.0 in 1.0..=1_000_000.0, "one turn of a spin loop",
        Assumed "coarser than the machine's relax_ns, for the simulator's sake: waits end up to that much later";
}

impl LoadFigure {
    /// The figure with this name.
    ///
    /// # Errors
    /// There is none.
    pub fn named(name: &str) -> Result<&'static Self, ParameterError> {
        LOAD_FIGURES
            .iter()
            .find(|figure| figure.name == name)
            .ok_or_else(|| ParameterError::unknown(name, LOAD_FIGURES.iter().map(|it| it.name)))
    }

    /// Its value in `load`.
    pub fn get(&self, load: &Load) -> f64 {
        (self.get)(load)
    }

    /// Gives it a value.
    ///
    /// # Errors
    /// The value makes no sense.
    pub fn set(&self, load: &mut Load, value: f64) -> Result<(), String> {
        if !(self.least..=self.most).contains(&value) {
            return Err(format!(
                "{} takes {} to {}",
                self.name, self.least, self.most
            ));
        }
        (self.set)(load, value);
        Ok(())
    }
}

impl Load {
    /// Operations a second of the threads of one CPU.
    pub(super) fn operations_per_s(&self, cpu: usize, cpus: usize) -> f64 {
        let place = cpu as f64 / (cpus.max(2) - 1) as f64;
        self.busiest_per_s * self.idlest_fraction.powf(place)
    }

    /// How long a device's handler takes.
    pub(super) fn body_ps(&self, random: &mut fastrand::Rng) -> u64 {
        // Box and Muller's way to a normal deviate.
        let radius = (-2.0 * (1.0 - random.f64()).ln()).sqrt();
        let deviate = radius * (std::f64::consts::TAU * random.f64()).cos();
        self.cut(self.body_median_us * (self.body_sigma * deviate).exp())
    }

    /// The length of a long section.
    pub(super) fn tail_ps(&self, random: &mut fastrand::Rng) -> u64 {
        self.cut(self.tail_least_us * (1.0 - random.f64()).powf(-1.0 / self.tail_alpha))
    }

    fn cut(&self, length_us: f64) -> u64 {
        picoseconds(length_us.min(self.tail_cut_us))
    }
}

pub(super) fn picoseconds(time_us: f64) -> u64 {
    (time_us * 1e6).round() as u64
}

/// When something comes again that comes so often on average (exponential).
pub(super) fn pause_ps(per_s: f64, random: &mut fastrand::Rng) -> u64 {
    match per_s > 0.0 {
        true => picoseconds(-(1.0 - random.f64()).ln() / per_s * 1e6).max(1),
        false => u64::MAX / 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_is_a_field_of_its_own_and_senseless_values_are_refused() {
        let mut load = Load::default();
        for figure in LOAD_FIGURES {
            assert_eq!(figure.get(&load), figure.value, "{figure:?}");
            assert!(figure.set(&mut load, f64::NAN).is_err());
            assert!(figure.set(&mut load, -1.0).is_err());
            figure.set(&mut load, figure.most).unwrap();
        }
        for figure in LOAD_FIGURES {
            assert_eq!(figure.get(&load), figure.most, "{figure:?}");
        }
        assert!(LoadFigure::named("alpha").is_err());
    }

    #[test]
    fn sections_have_the_lengths_that_the_table_gives() {
        let (load, mut random) = (Load::default(), fastrand::Rng::with_seed(1));
        let mut sorted = |draw: fn(&Load, &mut fastrand::Rng) -> u64| {
            let mut lengths: Vec<u64> = (0..20_001).map(|_| draw(&load, &mut random)).collect();
            lengths.sort_unstable();
            lengths
        };
        let body = sorted(Load::body_ps);
        assert!(
            body[10_000].abs_diff(10_000_000) < 200_000,
            "{}",
            body[10_000]
        );
        // In half of all intervals, the longest of 30 is below what one is below with this probability.
        let longest = body[(20_000.0 * 0.5f64.powf(1.0 / 30.0)) as usize];
        assert!((40_000_000..60_000_000).contains(&longest), "{longest}");
        let tail = sorted(Load::tail_ps);
        assert!(tail[0] >= 250_000_000 && tail[20_000] <= 50_000_000_000);
        // Half of them are below x_m times two to the power of 1 / alpha.
        assert!(
            tail[10_000].abs_diff(396_850_000) < 10_000_000,
            "{}",
            tail[10_000]
        );
    }
}
