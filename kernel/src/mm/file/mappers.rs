//! [`Mappers`]: the address spaces that map a file.

use crate::mm::error::MapError;
use crate::mm::space::MemorySpace;
use crate::sync::Mutex;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

/// Every address space that maps a part of the file, and some that did.
///
/// One is added under its own lock, before anybody can write to the file through it, and removed under that lock by
/// whoever finds that it maps nothing of the file any more.
#[derive(Debug)]
pub(super) struct Mappers {
    list: Mutex<Vec<Weak<MemorySpace>>>,
}

impl Mappers {
    /// Nobody.
    pub const fn new() -> Self {
        Self {
            list: Mutex::new(Vec::new()),
        }
    }

    /// Adds a space whose lock the caller has, unless it is there.
    pub fn add(&self, space: &MemorySpace) -> Result<(), MapError> {
        let mut list = self.list.lock();
        if list.iter().any(|known| Weak::ptr_eq(known, &space.this)) {
            return Ok(());
        }
        list.retain(|known| known.strong_count() > 0);
        list.try_reserve(1).map_err(|_| MapError::NoMemory)?;
        list.push(space.this.clone());
        Ok(())
    }

    /// Removes a space whose lock the caller has.
    pub fn remove(&self, space: &MemorySpace) {
        let mut list = self.list.lock();
        list.retain(|known| !Weak::ptr_eq(known, &space.this));
    }

    /// Those that are there now.
    pub fn all(&self) -> Result<Vec<Arc<MemorySpace>>, MapError> {
        let list = self.list.lock();
        let mut all = Vec::new();
        all.try_reserve_exact(list.len())
            .map_err(|_| MapError::NoMemory)?;
        all.extend(list.iter().filter_map(Weak::upgrade));
        Ok(all)
    }
}
