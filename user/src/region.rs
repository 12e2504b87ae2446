//! Memory whose pages are discarded while other threads look at them, that forked processes share, or that is a file's.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use crate::machine;

/// Bytes in a page; both kernels map 4 KiB pages here.
pub const PAGE_BYTES: usize = 4096;

/// 64-bit words in a page.
pub const PAGE_WORDS: usize = PAGE_BYTES / size_of::<u64>();

/// A mapping, unmapped on drop.
///
/// Its words are atomics: whatever the kernel or another thread does with the pages, reading one
/// is defined, and stays so after a discard.
#[derive(Debug)]
pub struct Region {
    base: NonNull<AtomicU64>,
    pages: usize,
}

// SAFETY: a Region is plain memory reached through atomics only, and owns its mapping.
unsafe impl Send for Region {}
// SAFETY: as above: shared access goes through atomics.
unsafe impl Sync for Region {}

impl Region {
    /// Maps `pages` zero pages, readable and writable, none of them backed yet. A forked process has a copy.
    pub fn new(pages: usize) -> io::Result<Self> {
        Self::map(pages, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)
    }

    /// The same, but forked processes have these very pages.
    pub fn shared(pages: usize) -> io::Result<Self> {
        Self::map(pages, libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1)
    }

    /// The first `pages` pages of a file: its own, which whoever maps or reads it sees.
    pub fn of_file(file: &File, pages: usize) -> io::Result<Self> {
        Self::map(pages, libc::MAP_SHARED, file.as_raw_fd())
    }

    fn map(pages: usize, flags: i32, file: i32) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let bytes = pages * PAGE_BYTES;
        // SAFETY: a mapping at an address of the kernel's choice touches no memory that exists.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, file, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // Huge pages would turn many small pages into one; a kernel without them says EINVAL.
        // SAFETY: advice on our own mapping, which has no references into it yet.
        let _ignored = unsafe { libc::madvise(base, bytes, libc::MADV_NOHUGEPAGE) };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, pages })
    }

    /// How many pages there are.
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// Word `word` of page `page`.
    #[inline(always)]
    pub fn word(&self, page: usize, word: usize) -> &AtomicU64 {
        assert!(
            page < self.pages && word < PAGE_WORDS,
            "no word {word} of page {page}"
        );
        // SAFETY: the index is inside the mapping, checked above.
        let pointer = unsafe { self.base.add(page * PAGE_WORDS + word) };
        // SAFETY: the mapping lives as long as `self`, is aligned, readable, writable, and only
        // ever accessed through atomics; zero bytes are a valid AtomicU64.
        unsafe { pointer.as_ref() }
    }

    /// All words of a page.
    pub fn page(&self, page: usize) -> &[AtomicU64; PAGE_WORDS] {
        assert!(page < self.pages, "no page {page}");
        // SAFETY: the page is inside the mapping, checked above.
        let pointer = unsafe { self.base.add(page * PAGE_WORDS) };
        // SAFETY: as in `word`, for each word of the page.
        unsafe { pointer.cast().as_ref() }
    }

    /// Where it is in this process's memory.
    pub fn address(&self) -> usize {
        self.base.as_ptr().expose_provenance()
    }

    /// Stores what was written to the first `pages` pages of a file (`msync`).
    pub fn sync(&self, pages: usize) -> io::Result<()> {
        assert!(pages <= self.pages, "the region has {} pages", self.pages);
        let bytes = pages * PAGE_BYTES;
        // SAFETY: the range is inside our own mapping, and the call changes nothing in it.
        machine::done(unsafe { libc::msync(self.base.as_ptr().cast(), bytes, libc::MS_SYNC) })
    }

    /// Discards the first `pages` pages: they read zero from now on.
    #[inline(always)]
    pub fn discard(&self, pages: usize) -> io::Result<()> {
        assert!(pages <= self.pages, "the region has {} pages", self.pages);
        let bytes = pages * PAGE_BYTES;
        // SAFETY: the range is inside our own mapping, whose words are atomics: their values
        // may change at any time.
        let status =
            unsafe { libc::madvise(self.base.as_ptr().cast(), bytes, libc::MADV_DONTNEED) };
        if status == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping that `new` made; no reference outlives `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.pages * PAGE_BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn a_discarded_page_reads_zero_and_its_neighbour_does_not() {
        let region = Region::new(2).unwrap();
        region.word(0, 3).store(7, Relaxed);
        region.word(1, 3).store(8, Relaxed);
        region.discard(1).unwrap();
        assert_eq!(
            (
                region.word(0, 3).load(Relaxed),
                region.word(1, 3).load(Relaxed)
            ),
            (0, 8)
        );
    }
}
