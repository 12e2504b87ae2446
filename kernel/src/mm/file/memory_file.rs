//! [`MemoryFile`]: a file whose bytes are in memory.

use super::contents::{Contents, Copy, PagePart};
use super::evict::make_room;
use super::lanes::Lanes;
use super::mappers::Mappers;
use crate::mm::error::MapError;
use crate::mm::layout::PAGE_SIZE;
use crate::mm::space::MemorySpace;
use crate::sync::{Mutex, SleepMutex, SleepMutexGuard};
use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};

/// Most such files at one time: each takes kernel heap that programs could ask for without end.
const MOST_FILES: usize = 16_384;

/// All of them, by their numbers.
static FILES: Mutex<Files> = Mutex::new(Files {
    by_number: BTreeMap::new(),
    next: 0,
});

#[derive(Debug)]
struct Files {
    by_number: BTreeMap<u64, Weak<MemoryFile>>,
    next: u64,
}

/// A file in memory. It lives as long as a name, a descriptor or a mapping refers to it.
#[derive(Debug)]
pub struct MemoryFile {
    number: u64,
    /// What `/proc/PID/maps` calls it.
    name: Arc<str>,
    /// Held by who changes the size or writes bytes by system call.
    pub(super) changing: SleepMutex<()>,
    /// Who syncs.
    pub(super) lanes: Lanes,
    pub(super) contents: Mutex<Contents>,
    pub(super) mappers: Mappers,
}

/// The right to write bytes and to change the size. Waits may happen meanwhile: of other writers, for memory of programs.
#[derive(Debug)]
pub struct Change<'a> {
    file: &'a MemoryFile,
    _turn: SleepMutexGuard<'a, ()>,
}

impl MemoryFile {
    /// A file with these bytes, which are copied as they are needed; `None` when there are too many files. The name is for people.
    pub fn new(name: impl Into<Arc<str>>, origin: &'static [u8]) -> Option<Arc<Self>> {
        let name = name.into();
        let mut files = FILES.lock();
        if files.by_number.len() >= MOST_FILES {
            return None;
        }
        let number = files.next;
        files.next += 1;
        let file = Arc::new(Self {
            number,
            name,
            changing: SleepMutex::new(()),
            lanes: Lanes::new(),
            contents: Mutex::new(Contents::of(origin)),
            mappers: Mappers::new(),
        });
        files.by_number.insert(number, Arc::downgrade(&file));
        Some(file)
    }

    /// The file with the lowest number from `number` on, and that number.
    pub(super) fn next(number: u64) -> Option<(u64, Arc<Self>)> {
        let files = FILES.lock();
        let mut rest = files.by_number.range(number..);
        rest.find_map(|(number, file)| Some((*number, file.upgrade()?)))
    }

    /// The name that it was made with.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Bytes.
    pub fn size(&self) -> u64 {
        self.contents.lock().size()
    }

    /// Bytes from `offset` on, `len` at most, and not beyond the end of a page; none at the end of the file.
    pub fn part(&self, copy: Copy, offset: u64, len: usize) -> PagePart {
        self.contents.lock().part(copy, offset, len)
    }

    /// Copies bytes from `offset` on, at most to the end of a page; how many. 0 at the end of the file.
    pub fn read(&self, copy: Copy, offset: u64, to: &mut [u8]) -> usize {
        let mut done = 0;
        // What it was made with may end within the page.
        loop {
            let at = offset + done as u64;
            let part = self.part(copy, at, to.len() - done);
            part.copy_to(&mut to[done..]);
            done += part.len();
            if part.len() == 0 || (at + part.len() as u64).is_multiple_of(PAGE_SIZE as u64) {
                return done;
            }
        }
    }

    /// Begins to write; sleeps while somebody else does. Context: as [`SleepMutex::lock`].
    pub fn change(&self) -> Change<'_> {
        Change {
            file: self,
            _turn: self.changing.lock(),
        }
    }

    /// Notes a space whose lock the caller has, and which is about to map the file.
    pub(in crate::mm) fn add_mapper(&self, space: &MemorySpace) -> Result<(), MapError> {
        self.mappers.add(space)
    }
}

impl Change<'_> {
    /// Writes bytes from `offset` on, and makes the file as long as that takes; how many.
    ///
    /// # Errors
    /// [`MapError::TooBig`], [`MapError::NoSpace`] or [`MapError::NoMemory`] before the first byte.
    pub fn write(&self, offset: u64, from: &[u8]) -> Result<usize, MapError> {
        let mut done = 0;
        while done < from.len() {
            // A page at a time: others want the lock, too.
            let at = offset.saturating_add(done as u64);
            let try_it = || self.file.contents.lock().write(at, &from[done..]);
            let written = match try_it() {
                Err(MapError::NoSpace | MapError::NoMemory) if make_room() => try_it(),
                outcome => outcome,
            };
            match written {
                Ok(more) => done += more,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    pub(super) const fn file(&self) -> &MemoryFile {
        self.file
    }

    /// The size, which nobody else can change now.
    pub fn size(&self) -> u64 {
        self.file.size()
    }
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        FILES.lock().by_number.remove(&self.number);
    }
}
