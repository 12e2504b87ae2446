//! The files of a random program, and the calls that read or write memory through them.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::memory_file;
use crate::region::PAGE_BYTES;

/// Bytes of the file that never changes.
pub const CONSTANT_BYTES: usize = 16 * PAGE_BYTES - 1000;

/// A file that changes, one that does not, and a pipe.
#[derive(Debug)]
pub struct Descriptors {
    pub file: File,
    pub constant: File,
    /// Whether the program maps private copies of it. The reference kernel cannot discard those.
    pub has_copies: bool,
    source: File,
    sink: File,
}

impl Descriptors {
    /// New ones.
    pub fn new(has_copies: bool) -> io::Result<Self> {
        let constant = memory_file::create(c"constant", CONSTANT_BYTES as u64)?;
        let bytes: Vec<u8> = (0..CONSTANT_BYTES).map(|at| (at % 251) as u8).collect();
        std::os::unix::fs::FileExt::write_all_at(&constant, &bytes, 0)?;
        let mut pipe = [0; 2];
        // SAFETY: the array is ours.
        crate::machine::done(unsafe {
            libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK)
        })?;
        // SAFETY: both were just made, and are nobody else's.
        let [source, sink] = pipe.map(|number| File::from(unsafe { OwnedFd::from_raw_fd(number) }));
        Ok(Self {
            file: memory_file::create(c"file", 0)?,
            constant,
            has_copies,
            source,
            sink,
        })
    }

    /// Has the kernel read a page of memory. False if it may not.
    pub fn read_memory(&self, page: usize, bytes: &mut [u8; PAGE_BYTES]) -> io::Result<bool> {
        match self.send(page, PAGE_BYTES) {
            Ok(PAGE_BYTES) => (&self.source).read_exact(bytes).map(|()| true),
            Ok(part) => {
                (&self.source).read_exact(&mut bytes[..part])?;
                Err(io::Error::other(format!("{part} bytes of a page")))
            }
            Err(error) if error.raw_os_error() == Some(libc::EFAULT) => {
                // Such a write takes room in the pipe on Linux before 6.18.
                self.drain()?;
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Writes memory to the pipe.
    pub fn send(&self, address: usize, bytes: usize) -> io::Result<usize> {
        // SAFETY: the kernel only reads.
        counted(unsafe { libc::write(self.sink.as_raw_fd(), pointer(address), bytes) })
    }

    /// Reads from the pipe to memory.
    pub fn receive(&self, address: usize, bytes: usize) -> io::Result<usize> {
        // SAFETY: memory of the arena, to which Rust never refers.
        counted(unsafe { libc::read(self.source.as_raw_fd(), pointer(address), bytes) })
    }

    /// What was written in the file's last page behind its end is gone: when it grows, that may show or not.
    pub fn clear_behind_the_end(&self) -> io::Result<()> {
        self.file.set_len(self.file.metadata()?.len())
    }

    /// Empties the pipe.
    pub fn drain(&self) -> io::Result<()> {
        let mut rest = [0; PAGE_BYTES];
        loop {
            match (&self.source).read(&mut rest) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads from a place in the file to memory.
    pub fn pread(&self, address: usize, bytes: usize, offset: usize) -> io::Result<usize> {
        let (file, offset) = (self.file.as_raw_fd(), offset as i64);
        // SAFETY: memory of the arena, to which Rust never refers.
        counted(unsafe { libc::pread(file, pointer(address), bytes, offset) })
    }

    /// Writes memory to a place in the file.
    pub fn pwrite(&self, address: usize, bytes: usize, offset: usize) -> io::Result<usize> {
        let (file, offset) = (self.file.as_raw_fd(), offset as i64);
        // SAFETY: the kernel only reads.
        counted(unsafe { libc::pwrite(file, pointer(address), bytes, offset) })
    }

    /// Gathers pieces of memory into the pipe.
    pub fn gather(&self, pieces: &[(usize, usize)]) -> io::Result<usize> {
        let pieces = vectors(pieces);
        // SAFETY: the kernel only reads.
        counted(unsafe {
            libc::writev(self.sink.as_raw_fd(), pieces.as_ptr(), pieces.len() as i32)
        })
    }

    /// Scatters what is in the pipe to pieces of memory.
    pub fn scatter(&self, pieces: &[(usize, usize)]) -> io::Result<usize> {
        let pieces = vectors(pieces);
        // SAFETY: memory of the arena, to which Rust never refers.
        counted(unsafe {
            libc::readv(
                self.source.as_raw_fd(),
                pieces.as_ptr(),
                pieces.len() as i32,
            )
        })
    }
}

fn vectors(pieces: &[(usize, usize)]) -> Vec<libc::iovec> {
    let vector = |&(address, bytes): &(usize, usize)| libc::iovec {
        iov_base: pointer(address),
        iov_len: bytes,
    };
    pieces.iter().map(vector).collect()
}

fn pointer(address: usize) -> *mut libc::c_void {
    std::ptr::without_provenance_mut(address)
}

fn counted(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}
