//! Plain memory: what a protocol makes exclusive, and what programs reach through translations.
//!
//! Nobody may write such a cell before everybody's earlier accesses are over and known to be. Only their numbers
//! matter: how many writes there were, and how many reads by each CPU.

use std::rc::Rc;

use shootdown::sim::Plain;

use crate::explore::Weak;

/// The writes of a plain cell; its readers are named by their CPU.
const WRITES: u16 = u16::MAX - 1;

impl Weak {
    /// A plain access to the cell at `address`.
    ///
    /// # Errors
    /// Who it races with: a write that this CPU need not have seen, or a read that need not be over.
    pub fn plain(&mut self, cpu: usize, address: usize, access: Plain) -> Result<(), String> {
        let writes = self.location(address, WRITES, || 0);
        self.check_known(cpu, writes, "a write of the same cell")?;
        match access {
            Plain::Read => self.read_translated(cpu, address),
            Plain::Write => {
                for reader in 0..self.cpus.len() {
                    if let Some(&reads) = self.names.get(&(address, reader as u16)) {
                        self.check_known(
                            cpu,
                            reads,
                            &format!("a read of the cell by cpu{reader}"),
                        )?;
                    }
                }
                self.count_plain(cpu, writes);
            }
        }
        Ok(())
    }

    /// A plain read or write through a translation: it comes after whatever the walk has seen, so only its end
    /// matters. A plain write that follows must know of it.
    pub fn read_translated(&mut self, cpu: usize, address: usize) {
        let reads = self.location(address, cpu as u16, || 0);
        self.count_plain(cpu, reads);
    }

    /// One more access to a plain cell, which publishes nothing.
    fn count_plain(&mut self, cpu: usize, at: usize) {
        let newest = self.locations[at].stores.back_mut();
        let newest = newest.expect("a location has a value");
        newest.number += 1;
        Rc::make_mut(&mut self.cpus[cpu].view).learn(at, newest.number);
    }

    fn check_known(&self, cpu: usize, location: usize, what: &str) -> Result<(), String> {
        let newest = self.locations[location]
            .stores
            .back()
            .map_or(0, |store| store.number);
        if self.cpus[cpu].view.at(location) < newest {
            return Err(format!("plain access not ordered after {what}"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use shootdown::sim::{Operation, Ordering, Plain};

    use super::Weak;

    const STORE: Operation = Operation::Store(1);

    #[test]
    fn an_unpublished_plain_write_is_a_race() {
        let mut memory = Weak::new(2);
        let flag = AtomicU64::new(0);
        memory.plain(0, 0x100, Plain::Write).unwrap();
        assert!(memory.plain(1, 0x100, Plain::Read).is_err());
        memory.access(0, &flag, STORE, Ordering::Release, 0);
        memory.access(1, &flag, Operation::Load, Ordering::Acquire, 0);
        memory.plain(1, 0x100, Plain::Read).unwrap();
        // The reader has not told that it is done.
        assert!(memory.plain(0, 0x100, Plain::Write).is_err());
        memory.access(1, &flag, Operation::Store(2), Ordering::Release, 0);
        memory.access(0, &flag, Operation::Load, Ordering::Acquire, 0);
        memory.plain(0, 0x100, Plain::Write).unwrap();
    }

    #[test]
    fn an_access_through_a_translation_must_be_over_before_the_next_write() {
        let mut memory = Weak::new(2);
        let flag = AtomicU64::new(0);
        memory.plain(0, 0x100, Plain::Write).unwrap();
        // The translation says that the cell may be read: nothing else need.
        memory.read_translated(1, 0x100);
        assert!(memory.plain(0, 0x100, Plain::Write).is_err());
        memory.access(1, &flag, STORE, Ordering::Release, 0);
        memory.access(0, &flag, Operation::Load, Ordering::Acquire, 0);
        memory.plain(0, 0x100, Plain::Write).unwrap();
    }
}
