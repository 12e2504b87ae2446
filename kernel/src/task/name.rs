//! Names of threads.

use core::fmt;

/// Bytes of a thread name with its terminator, as `PR_SET_NAME` has it.
pub const NAME_BYTES: usize = 16;

/// A thread name that prints itself.
#[derive(Clone, Copy, Debug)]
pub struct ThreadName([u8; NAME_BYTES]);

impl ThreadName {
    /// The name that a program at this path starts with: the last component, cut to fit.
    pub fn of_path(path: &str) -> Self {
        let file = path.rsplit('/').next().unwrap_or(path);
        let mut name = [0; NAME_BYTES];
        for (to, from) in name[..NAME_BYTES - 1].iter_mut().zip(file.bytes()) {
            *to = from;
        }
        Self(name)
    }

    /// The name in these bytes, up to a terminator.
    pub const fn from_bytes(bytes: [u8; NAME_BYTES]) -> Self {
        Self(bytes)
    }

    /// The bytes with their terminator.
    pub const fn as_bytes(&self) -> [u8; NAME_BYTES] {
        self.0
    }
}

impl fmt::Display for ThreadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.0.iter().position(|&b| b == 0).unwrap_or(NAME_BYTES);
        self.0[..end]
            .utf8_chunks()
            .try_for_each(|chunk| f.write_str(chunk.valid()))
    }
}
