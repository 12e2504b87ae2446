//! Reading newc cpio archives, the format of an initramfs (Linux, `buffer-format.rst`).

use core::fmt;

const HEADER_BYTES: usize = 110;
const TRAILER: &[u8] = b"TRAILER!!!";

/// One member of an archive.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Path without leading `/` or `./`.
    pub name: &'a [u8],
    /// Type and permission bits, as `st_mode`.
    pub mode: u32,
    /// When it was last modified, in seconds since the epoch.
    pub modified: u32,
    /// Contents.
    pub data: &'a [u8],
}

impl Entry<'_> {
    /// When it was last modified, in nanoseconds since the epoch.
    pub fn modified_ns(&self) -> u64 {
        u64::from(self.modified) * 1_000_000_000
    }
}

impl fmt::Debug for Entry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name.utf8_chunks().next();
        let name = name.map_or("", |chunk| chunk.valid());
        let (mode, bytes) = (self.mode, self.data.len());
        write!(f, "{name} (mode {mode:o}, {bytes} bytes)")
    }
}

/// The archive is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArchiveError {
    /// No newc header where one should be, at this offset.
    BadHeader(usize),
    /// It ends inside the member at this offset.
    Truncated(usize),
    /// It ends without its trailer.
    NoTrailer,
}

impl fmt::Display for ArchiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadHeader(at) => write!(f, "no newc cpio header at offset {at}"),
            Self::Truncated(at) => write!(f, "cpio archive ends inside the member at offset {at}"),
            Self::NoTrailer => f.write_str("cpio archive ends without its trailer"),
        }
    }
}

impl core::error::Error for ArchiveError {}

/// The members of an archive, in order; ends at the trailer or at the first error.
#[derive(Clone, Debug)]
pub struct Members<'a> {
    archive: &'a [u8],
    offset: usize,
    ended: bool,
}

impl<'a> Members<'a> {
    /// All members of `archive`.
    pub const fn new(archive: &'a [u8]) -> Self {
        Self {
            archive,
            offset: 0,
            ended: false,
        }
    }

    /// The next member; `None` for the trailer.
    fn read(&mut self) -> Result<Option<Entry<'a>>, ArchiveError> {
        let start = self.offset;
        if start >= self.archive.len() {
            return Err(ArchiveError::NoTrailer);
        }
        let header = take(self.archive, &mut self.offset, HEADER_BYTES, start)?;
        if !matches!(&header[..6], b"070701" | b"070702") {
            return Err(ArchiveError::BadHeader(start));
        }
        let field = |index| hex(header, index).ok_or(ArchiveError::BadHeader(start));
        let (mode, modified) = (field(1)?, field(5)?);
        let (data_bytes, name_bytes) = (field(6)?, field(11)?);
        let name = take(self.archive, &mut self.offset, name_bytes as usize, start)?;
        self.offset = self.offset.next_multiple_of(4);
        let data = take(self.archive, &mut self.offset, data_bytes as usize, start)?;
        self.offset = self.offset.next_multiple_of(4);
        let name = name
            .strip_suffix(b"\0")
            .ok_or(ArchiveError::BadHeader(start))?;
        Ok((name != TRAILER).then_some(Entry {
            name: normal(name),
            mode,
            modified,
            data,
        }))
    }
}

impl<'a> Iterator for Members<'a> {
    type Item = Result<Entry<'a>, ArchiveError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let entry = self.read().transpose();
        self.ended = !matches!(entry, Some(Ok(_)));
        entry
    }
}

/// A path in the form of [`Entry::name`]: no leading slashes or `./`, no trailing slash.
pub fn normal(path: &[u8]) -> &[u8] {
    let mut path = path;
    loop {
        path = match path {
            [b'/', rest @ ..] | [b'.', b'/', rest @ ..] | [rest @ .., b'/'] => rest,
            [b'.'] => &[],
            _ => return path,
        };
    }
}

fn take<'a>(
    archive: &'a [u8],
    offset: &mut usize,
    bytes: usize,
    member: usize,
) -> Result<&'a [u8], ArchiveError> {
    let end = offset.checked_add(bytes);
    let taken = end.and_then(|end| archive.get(*offset..end));
    let taken = taken.ok_or(ArchiveError::Truncated(member))?;
    *offset += bytes;
    Ok(taken)
}

/// The header's hexadecimal field of this index (8 digits each, behind the 6-byte magic).
fn hex(header: &[u8], index: usize) -> Option<u32> {
    let digits = &header[6 + 8 * index..][..8];
    digits.iter().try_fold(0u32, |value, digit| {
        Some(value << 4 | char::from(*digit).to_digit(16)?)
    })
}
