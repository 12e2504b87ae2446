//! [`ratio`]: by which factor one set of independent figures differs from another, with an interval that has the true factor in 95 of 100 cases.
//!
//! The factor is Hodges and Lehmann's: the median of the ratios of all pairs. The interval consists of the ratios that a two-sided
//! Mann-Whitney test does not reject; its distribution is exact, without a normal approximation, since there are few boots.

/// What may be wrong in all, on both sides.
const ALPHA: f64 = 0.05;
/// More figures than this add nothing but time.
const MOST: usize = 40;

/// A factor and where it may lie.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// The least.
    pub low: f64,
    /// The estimate.
    pub middle: f64,
    /// The greatest.
    pub high: f64,
}

impl Interval {
    /// Whether it has 1 in it: then nothing is shown.
    pub fn has_one(&self) -> bool {
        self.low <= 1.0 && 1.0 <= self.high
    }
}

/// The factor from one set to another; none if there are too few figures for any interval, or one is not above 0.
pub fn ratio(from: &[f64], to: &[f64]) -> Option<Interval> {
    let is_positive = |value: &f64| *value > 0.0 && value.is_finite();
    if !from.iter().chain(to).all(is_positive) {
        return None;
    }
    let (from, to) = (&from[..from.len().min(MOST)], &to[..to.len().min(MOST)]);
    let outside = pairs_outside(from.len(), to.len())?;
    let pair = |to: &f64| from.iter().map(move |from| to / from).collect::<Vec<f64>>();
    let mut ratios: Vec<f64> = to.iter().flat_map(pair).collect();
    ratios.sort_by(f64::total_cmp);
    let last = ratios.len() - 1;
    let middle = (ratios[last / 2] * ratios[ratios.len() / 2]).sqrt();
    Some(Interval {
        low: ratios[outside],
        middle,
        high: ratios[last - outside],
    })
}

/// How many of the sorted pairs lie outside on each side; none if even one would be too many.
fn pairs_outside(m: usize, n: usize) -> Option<usize> {
    let chances = chances(m, n);
    let mut below = 0.0;
    let mut within = chances.iter().take_while(|chance| {
        below += *chance;
        below <= ALPHA / 2.0
    });
    let count = within.by_ref().count();
    // As many statistics as are rejected, so many pairs.
    count.checked_sub(1)
}

/// The chance of each value of Mann and Whitney's U, if both sets come from the same distribution.
fn chances(m: usize, n: usize) -> Vec<f64> {
    // The largest of all is of the first set, and then exceeds all n of the second, or it is of the second.
    let mut of_fewer: Vec<Vec<f64>> = vec![vec![1.0]; n + 1];
    for i in 1..=m {
        let mut row: Vec<Vec<f64>> = vec![vec![1.0]];
        for j in 1..=n {
            let all = (i + j) as f64;
            let mut chances = vec![0.0; i * j + 1];
            for (u, chance) in of_fewer[j].iter().enumerate() {
                chances[u + j] += chance * i as f64 / all;
            }
            for (u, chance) in row[j - 1].iter().enumerate() {
                chances[u] += chance * j as f64 / all;
            }
            row.push(chances);
        }
        of_fewer = row;
    }
    of_fewer.pop().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chances_are_those_of_the_tables() {
        let four = chances(4, 4);
        assert!((four[0] - 1.0 / 70.0).abs() < 1e-12);
        assert!((four.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        assert_eq!(four.len(), 17);
        // Critical values of the two-sided test at 5 %: 0, 2, 8 and 23 are rejected.
        for (size, critical) in [(4, 0), (5, 2), (7, 8), (10, 23)] {
            assert_eq!(pairs_outside(size, size), Some(critical), "{size}");
        }
        assert_eq!(pairs_outside(3, 3), None);
        assert_eq!(pairs_outside(0, 5), None);
    }

    #[test]
    fn what_differs_is_told_from_what_does_not() {
        let slow = [100.0, 101.0, 99.0, 102.0, 98.0];
        let fast = slow.map(|ns| ns / 2.0);
        let interval = ratio(&slow, &fast).unwrap();
        assert!(interval.high < 0.55 && interval.low > 0.45, "{interval:?}");
        assert!((interval.middle - 0.5).abs() < 0.01);
        let again = ratio(&slow, &[101.0, 97.0, 100.0, 103.0, 99.5]).unwrap();
        assert!(again.has_one(), "{again:?}");
    }

    #[test]
    fn too_few_figures_and_figures_of_nothing_have_no_interval() {
        assert_eq!(ratio(&[1.0, 2.0], &[9.0, 9.0]), None);
        assert_eq!(ratio(&[0.0; 5], &[9.0; 5]), None);
        assert_eq!(ratio(&[], &[]), None);
    }
}
