//! [`Order`]: whose turn is next.

/// Whose turn is next.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Order {
    /// One after the other.
    RoundRobin,
    /// Drawn; space number `n` with a weight of `n` to the minus this power.
    Zipf(f64),
}

impl Order {
    /// So many turns of so many spaces. A space that is drawn twice in a row goes on without a switch, which is no
    /// turn.
    pub(crate) fn turns(
        self,
        spaces: usize,
        turns: usize,
        random: &mut fastrand::Rng,
    ) -> Vec<usize> {
        let Self::Zipf(power) = self else {
            return (0..turns).map(|turn| turn % spaces).collect();
        };
        let mut sum = 0.0;
        let sums: Vec<f64> = (1..=spaces)
            .map(|rank| {
                sum += (rank as f64).powf(-power);
                sum
            })
            .collect();
        let mut drawn: Vec<usize> = Vec::with_capacity(turns);
        while drawn.len() < turns {
            let point = random.f64() * sum;
            let next = sums.partition_point(|sum| *sum <= point).min(spaces - 1);
            if drawn.last() != Some(&next) {
                drawn.push(next);
            }
        }
        drawn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_follows_himself_and_the_first_come_most_often() {
        let mut random = fastrand::Rng::with_seed(1);
        let turns = Order::Zipf(1.0).turns(10, 5000, &mut random);
        assert!(turns.windows(2).all(|pair| pair[0] != pair[1]));
        let count = |space| turns.iter().filter(|turn| **turn == space).count();
        let counts: Vec<usize> = (0..10).map(count).collect();
        assert!(
            counts[0] > counts[2] && counts[2] > counts[9] && counts[9] > 0,
            "{counts:?}"
        );
    }

    #[test]
    fn round_robin_needs_no_chance() {
        let turns = Order::RoundRobin.turns(3, 7, &mut fastrand::Rng::with_seed(1));
        assert_eq!(turns, [0, 1, 2, 0, 1, 2, 0]);
    }
}
