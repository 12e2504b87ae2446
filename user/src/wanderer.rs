//! A mapping of a file that changes its rights and its place while the kernel writes to it.
//!
//! A program that wrote to it by itself would be killed where it may not: the kernel says so instead, by `EFAULT`.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use crate::machine;
use crate::region::{PAGE_BYTES, PAGE_WORDS};

/// Places that it moves between, one after the other in memory.
const PLACES: usize = 2;
const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// The mapping. One thread [changes](Self::step) it.
#[derive(Debug)]
pub struct Wanderer {
    base: usize,
    pages: usize,
    place: AtomicUsize,
}

impl Wanderer {
    /// The first pages of a file, in the first place.
    pub fn of_file(file: &File, pages: usize) -> io::Result<Self> {
        let bytes = PLACES * pages * PAGE_BYTES;
        let base = reserve(0, bytes, 0)?;
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        let bytes = pages * PAGE_BYTES;
        // SAFETY: in place of a part of what was just reserved, to which nothing refers.
        let mapped =
            unsafe { libc::mmap(pointer(base), bytes, READ_WRITE, flags, file.as_raw_fd(), 0) };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            base,
            pages,
            place: AtomicUsize::new(0),
        })
    }

    /// Has the kernel read 8 bytes from the start of `source` to a word. False if it may not write there now.
    pub fn read_word(&self, source: &File, page: usize, word: usize) -> io::Result<bool> {
        assert!(page < self.pages && word < PAGE_WORDS);
        let to = self.start(self.place.load(Relaxed)) + (page * PAGE_WORDS + word) * 8;
        // SAFETY: the word is the mapping's, or nobody's: both places are reserved. The program itself never refers to it.
        match unsafe { libc::pread(source.as_raw_fd(), pointer(to), 8, 0) } {
            8 => Ok(true),
            -1 => match io::Error::last_os_error() {
                error if error.raw_os_error() == Some(libc::EFAULT) => Ok(false),
                error => Err(error),
            },
            read => Err(io::Error::other(format!("{read} bytes were read, not 8"))),
        }
    }

    /// Makes the next change: fewer rights, all of them again, another place.
    pub fn step(&self, turn: usize) -> io::Result<()> {
        match turn % 6 {
            0 => self.protect(libc::PROT_READ),
            3 => self.protect(libc::PROT_NONE),
            1 | 4 => self.protect(READ_WRITE),
            _ => self.go_on(),
        }
    }

    fn start(&self, place: usize) -> usize {
        self.base + place * self.pages * PAGE_BYTES
    }

    fn protect(&self, rights: i32) -> io::Result<()> {
        let start = pointer(self.start(self.place.load(Relaxed)));
        // SAFETY: all of the mapping, which the program itself never refers to.
        machine::done(unsafe { libc::mprotect(start, self.pages * PAGE_BYTES, rights) })
    }

    /// To the next place, over what reserves it; what it leaves is reserved again.
    fn go_on(&self) -> io::Result<()> {
        let here = self.place.load(Relaxed);
        let next = (here + 1) % PLACES;
        let (from, to, bytes) = (self.start(here), self.start(next), self.pages * PAGE_BYTES);
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        // SAFETY: both places are its own, and the program itself never refers to them.
        let moved = unsafe { libc::mremap(pointer(from), bytes, bytes, flags, pointer(to)) };
        if moved == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        self.place.store(next, Relaxed);
        reserve(from, bytes, libc::MAP_FIXED_NOREPLACE).map(drop)
    }
}

impl Drop for Wanderer {
    fn drop(&mut self) {
        let bytes = PLACES * self.pages * PAGE_BYTES;
        // SAFETY: both places, to which nothing refers.
        unsafe { libc::munmap(pointer(self.base), bytes) };
    }
}

fn pointer(address: usize) -> *mut libc::c_void {
    std::ptr::without_provenance_mut(address)
}

/// Addresses that nobody else is to have.
fn reserve(wished: usize, bytes: usize, flags: i32) -> io::Result<usize> {
    machine::map(wished, bytes, libc::PROT_NONE, flags)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory_file;
    use std::os::unix::fs::FileExt;

    #[test]
    fn the_kernel_writes_wherever_it_is_and_only_where_it_may() {
        let (file, source) = (
            memory_file::create(c"test", 2 * 4096).unwrap(),
            memory_file::create(c"source", 8).unwrap(),
        );
        let wanderer = Wanderer::of_file(&file, 2).unwrap();
        let allowed = (0..12).map(|turn| {
            source.write_all_at(&[turn as u8 + 1; 8], 0).unwrap();
            let is_written = wanderer.read_word(&source, 1, 3).unwrap();
            let mut bytes = [0; 8];
            file.read_exact_at(&mut bytes, 4096 + 24).unwrap();
            assert_eq!(is_written, bytes == [turn as u8 + 1; 8]);
            wanderer.step(turn).unwrap();
            is_written
        });
        let [yes, no] = [true, false];
        assert!(allowed.eq([yes, no, yes, yes, no, yes, yes, no, yes, yes, no, yes]));
    }
}
