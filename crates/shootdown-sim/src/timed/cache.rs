//! [`Cache`]: a set-associative cache of translations.

use shootdown::tags::Asid;

/// One cached translation, or the way to one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub(crate) tag: Asid,
    pub(crate) page: u64,
    pub(crate) frame: u64,
}

/// Which entry of a full set makes room.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Replacement {
    /// The one used least recently.
    #[default]
    LeastRecent,
    /// Any.
    Random,
}

/// Each set has its most recent entry first.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    sets: Vec<Vec<Entry>>,
    random: fastrand::Rng,
}

impl Default for Cache {
    fn default() -> Self {
        Self {
            sets: Vec::new(),
            random: fastrand::Rng::with_seed(0),
        }
    }
}

impl Cache {
    fn set(&mut self, sets: usize, page: u64) -> &mut Vec<Entry> {
        if self.sets.len() != sets {
            self.sets = vec![Vec::new(); sets];
        }
        &mut self.sets[(page % sets as u64) as usize]
    }

    pub(crate) fn find(&mut self, sets: usize, tag: Asid, page: u64) -> Option<Entry> {
        let set = self.set(sets, page);
        let index = set
            .iter()
            .position(|entry| entry.tag == tag && entry.page == page)?;
        set[..=index].rotate_right(1);
        Some(set[0])
    }

    pub(crate) fn put(
        &mut self,
        (sets, ways): (usize, usize),
        replacement: Replacement,
        entry: Entry,
    ) {
        let victim = match replacement {
            Replacement::LeastRecent => ways - 1,
            Replacement::Random => self.random.usize(..ways),
        };
        let set = self.set(sets, entry.page);
        if set.len() >= ways {
            set.remove(victim);
        }
        set.insert(0, entry);
    }

    /// All entries, in no order.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.sets.iter().flatten()
    }

    /// Drops one page of a tag.
    pub(crate) fn drop_page(&mut self, sets: usize, tag: Asid, page: u64) {
        self.set(sets, page)
            .retain(|entry| entry.tag != tag || entry.page != page);
    }

    /// Drops everything of a tag.
    pub(crate) fn drop_tag(&mut self, tag: Asid) {
        for set in &mut self.sets {
            set.retain(|entry| entry.tag != tag);
        }
    }

    /// Drops everything.
    pub(crate) fn clear(&mut self) {
        self.sets.iter_mut().for_each(Vec::clear);
    }
}
