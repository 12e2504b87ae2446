//! [`unfairness`]: how differently initiators fare, and quantiles.

/// Initiators whose calls take longer for some than for others: the slowest one's 99th percentile by the fastest one's.
/// 1 for one initiator, or where nothing takes any time.
pub fn unfairness(times_ps: &[Vec<u64>]) -> f64 {
    let p99s = times_ps
        .iter()
        .filter(|times_ps| !times_ps.is_empty())
        .map(|times_ps| quantile(times_ps, 990));
    let (least, most) = p99s.fold((u64::MAX, 0), |(least, most), p99| {
        (least.min(p99), most.max(p99))
    });
    match least {
        0 | u64::MAX => 1.0,
        _ => most as f64 / least as f64,
    }
}

/// The smallest value that so many thousandths do not exceed; 0 of none.
pub(crate) fn quantile(values: &[u64], per_mille: usize) -> u64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let index = (sorted.len() * per_mille / 1000).min(sorted.len().saturating_sub(1));
    sorted.get(index).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_initiator_counts_against_the_fastest() {
        assert_eq!(unfairness(&[vec![1, 4, 2], vec![3, 10, 5], vec![]]), 2.5);
        assert_eq!(unfairness(&[vec![7]]), 1.0);
        assert_eq!(unfairness(&[vec![0], vec![5]]), 1.0);
        assert_eq!(unfairness(&[]), 1.0);
    }
}
