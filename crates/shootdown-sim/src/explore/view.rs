//! [`View`]: which stores a virtual CPU knows of.

use std::rc::Rc;

/// How many locations there are in a part.
const PART: usize = 64;
type Part = [u32; PART];

/// For each location, the number of the newest store that is known. A copy shares all parts until either learns something; who learns all that is in
/// a part shares it, too. With many CPUs a view is long, is copied at each store that releases, and differs from most others in few parts.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct View(Vec<Rc<Part>>);

/// Whether there is nothing in `theirs` that is not in `known`.
fn covers(known: &Rc<Part>, theirs: &Rc<Part>) -> bool {
    // Without a jump between two locations: most views cover most others.
    let all_known = || {
        let pairs = known.iter().zip(&**theirs);
        pairs.fold(true, |all, (known, theirs)| all & (theirs <= known))
    };
    Rc::ptr_eq(known, theirs) || all_known()
}

impl View {
    /// The newest store known at `location`.
    #[inline]
    pub fn at(&self, location: usize) -> u32 {
        let part = self.0.get(location / PART);
        part.map_or(0, |part| part[location % PART])
    }

    /// Learns of a store.
    #[inline]
    pub fn learn(&mut self, location: usize, store: u32) {
        let part = location / PART;
        if self.0.len() <= part {
            self.0.resize(part + 1, Rc::new([0; PART]));
        }
        let known = &mut self.0[part];
        if known[location % PART] < store {
            Rc::make_mut(known)[location % PART] = store;
        }
    }

    /// Whether there is nothing to learn from `other`.
    pub fn covers(&self, other: &Self) -> bool {
        if std::ptr::eq(self, other) {
            return true;
        }
        let (theirs, unknown) = other.0.split_at(other.0.len().min(self.0.len()));
        let mut pairs = self.0.iter().zip(theirs);
        pairs.all(|(known, theirs)| covers(known, theirs))
            && unknown.iter().all(|theirs| **theirs == [0; PART])
    }

    /// Learns all that `other` knows.
    pub fn join(&mut self, other: &Self) {
        for (known, theirs) in self.0.iter_mut().zip(&other.0) {
            if covers(known, theirs) {
                continue;
            }
            if covers(theirs, known) {
                known.clone_from(theirs);
                continue;
            }
            for (known, theirs) in Rc::make_mut(known).iter_mut().zip(&**theirs) {
                *known = (*known).max(*theirs);
            }
        }
        let unknown = other.0.iter().skip(self.0.len());
        self.0.extend(unknown.cloned());
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::{PART, View};

    #[test]
    fn joining_knows_what_either_knew() {
        let (mut one, mut other) = (View::default(), View::default());
        one.learn(0, 3);
        other.learn(0, 2);
        other.learn(5, 1);
        assert!(!one.covers(&other) && !other.covers(&one));
        one.join(&other);
        assert!(one.covers(&other) && !other.covers(&one));
        assert!(View::default().covers(&View(vec![Rc::new([0; PART])])));
        assert_eq!((one.at(0), one.at(5), one.at(9)), (3, 1, 0));
    }

    #[test]
    fn views_that_share_parts_learn_apart() {
        let mut one = View::default();
        one.learn(0, 3);
        one.learn(PART, 4);
        let mut other = View::default();
        other.join(&one);
        assert!(Rc::ptr_eq(&one.0[1], &other.0[1]));
        other.learn(PART + 1, 5);
        one.learn(PART, 6);
        assert_eq!((one.at(PART), one.at(PART + 1)), (6, 0));
        assert_eq!((other.at(PART), other.at(PART + 1)), (4, 5));
        assert!(!one.covers(&other) && !other.covers(&one));
        one.join(&other);
        assert_eq!((one.at(0), one.at(PART), one.at(PART + 1)), (3, 6, 5));
        // What nobody has touched is known to all.
        other.learn(9 * PART, 0);
        assert!(one.covers(&other));
    }
}
