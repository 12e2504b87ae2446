//! Order statistics of a row's samples.

/// Median, 99th percentile and minimum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// The smallest sample.
    pub min: u64,
    /// The sample in the middle (the lower one of two).
    pub median: u64,
    /// The smallest sample that at least 99 % of all samples do not exceed.
    pub p99: u64,
    /// How many samples there were.
    pub count: usize,
}

impl Summary {
    /// Sorts `samples` and summarises them; `None` when there are none.
    pub fn of(samples: &mut [u32]) -> Option<Self> {
        samples.sort_unstable();
        let (first, count) = (*samples.first()?, samples.len());
        Some(Self {
            min: u64::from(first),
            median: u64::from(samples[rank(count, 50)]),
            p99: u64::from(samples[rank(count, 99)]),
            count,
        })
    }
}

/// The index of the nearest-rank `percent` percentile among `count` sorted samples.
fn rank(count: usize, percent: usize) -> usize {
    (count * percent).div_ceil(100).saturating_sub(1)
}

/// At most `limit` of `samples`, evenly spaced, first and last included.
///
/// Of sorted samples this keeps the distribution, which is all a reader of a record needs.
pub fn thin(samples: &[u32], limit: usize) -> Vec<u32> {
    if samples.len() <= limit {
        return samples.to_vec();
    }
    match limit {
        0 => Vec::new(),
        1 => vec![samples[samples.len() / 2]],
        _ => {
            let last = samples.len() - 1;
            (0..limit)
                .map(|index| samples[index * last / (limit - 1)])
                .collect()
        }
    }
}

/// `value / reference` rounded to three places, or `None` without a reference.
pub fn ratio(value: u64, reference: Option<u64>) -> Option<f64> {
    let reference = reference.filter(|&reference| reference != 0)?;
    Some((value as f64 / reference as f64 * 1000.0).round() / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_rank_of_a_hundred() {
        let mut samples: Vec<u32> = (1..=100).rev().collect();
        let summary = Summary::of(&mut samples).unwrap();
        assert_eq!(
            summary,
            Summary {
                min: 1,
                median: 50,
                p99: 99,
                count: 100
            }
        );
    }

    #[test]
    fn one_outlier_in_a_thousand_does_not_move_p99() {
        let mut samples = vec![7; 999];
        samples.push(1_000_000);
        assert_eq!(Summary::of(&mut samples).unwrap().p99, 7);
    }

    #[test]
    fn few_samples() {
        assert_eq!(Summary::of(&mut []), None);
        let one = Summary::of(&mut [5]).unwrap();
        assert_eq!((one.min, one.median, one.p99), (5, 5, 5));
        assert_eq!(Summary::of(&mut [9, 1]).unwrap().median, 1);
    }

    #[test]
    fn thinning_keeps_both_ends_and_the_bound() {
        let samples: Vec<u32> = (0..10_000).collect();
        let thinned = thin(&samples, 2000);
        assert_eq!((thinned.len(), thinned[0], thinned[1999]), (2000, 0, 9999));
        assert!(thinned.is_sorted());
        assert_eq!(thin(&samples, 0), Vec::<u32>::new());
        assert_eq!(thin(&samples[..3], 2000), vec![0, 1, 2]);
    }

    #[test]
    fn a_ratio_needs_a_reference() {
        assert_eq!(ratio(850, Some(1000)), Some(0.85));
        assert_eq!(ratio(850, None), None);
        assert_eq!(ratio(850, Some(0)), None);
    }
}
