//! [`View`]: which stores a virtual CPU knows of.

/// For each location, the number of the newest store that is known.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct View(Vec<u32>);

impl View {
    /// The newest store known at `location`.
    #[inline]
    pub fn at(&self, location: usize) -> u32 {
        self.0.get(location).copied().unwrap_or(0)
    }

    /// Learns of a store.
    #[inline]
    pub fn learn(&mut self, location: usize, store: u32) {
        if self.0.len() <= location {
            self.0.resize(location + 1, 0);
        }
        let known = &mut self.0[location];
        *known = (*known).max(store);
    }

    /// Learns all that `other` knows.
    pub fn join(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (known, theirs) in self.0.iter_mut().zip(&other.0) {
            *known = (*known).max(*theirs);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::View;

    #[test]
    fn joining_knows_what_either_knew() {
        let (mut one, mut other) = (View::default(), View::default());
        one.learn(0, 3);
        other.learn(0, 2);
        other.learn(5, 1);
        one.join(&other);
        assert_eq!((one.at(0), one.at(5), one.at(9)), (3, 1, 0));
    }
}
