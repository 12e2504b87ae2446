//! [`View`]: which stores a virtual CPU knows of.

/// For each location, the number of the newest store that is known.
#[derive(PartialEq, Eq, Default, Debug)]
pub struct View(Vec<u32>);

/// Room for so many more locations in a copy, which is made to learn something.
const ROOM: usize = 8;
/// How many locations are compared at a time.
const BLOCK: usize = 32;

impl Clone for View {
    fn clone(&self) -> Self {
        let mut copy = Vec::with_capacity(self.0.len() + ROOM);
        copy.extend_from_slice(&self.0);
        Self(copy)
    }
}

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

    /// Whether there is nothing to learn from `other`.
    pub fn covers(&self, other: &Self) -> bool {
        if std::ptr::eq(self, other) {
            return true;
        }
        let (theirs, unknown) = other.0.split_at(other.0.len().min(self.0.len()));
        // Block by block without a jump between: most views cover most others.
        let cover = |(theirs, known): (&[u32], &[u32])| {
            let pairs = theirs.iter().zip(known);
            pairs.fold(true, |all, (theirs, known)| all & (theirs <= known))
        };
        (theirs.chunks(BLOCK).zip(self.0.chunks(BLOCK))).all(cover)
            && unknown.iter().all(|theirs| *theirs == 0)
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
        assert!(!one.covers(&other) && !other.covers(&one));
        one.join(&other);
        assert!(one.covers(&other) && !other.covers(&one));
        assert!(View::default().covers(&View(vec![0, 0])));
        assert_eq!((one.at(0), one.at(5), one.at(9)), (3, 1, 0));
    }
}
