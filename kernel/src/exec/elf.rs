//! Reading ELF headers: nothing in the file is believed before it is checked.
//!
//! Section headers are ignored, as Linux does: a program runs without them, however broken they are.

use super::error::ExecError;
use crate::mm::{PAGE_SIZE, Prot, USER_END};

const HEADER_BYTES: usize = 64;
/// `e_phentsize` of every 64-bit ELF file.
pub const PROGRAM_HEADER_BYTES: usize = 56;
/// Most program headers; real programs have about ten.
const MAX_PROGRAM_HEADERS: usize = 128;

const TYPE_EXEC: u16 = 2;
const TYPE_DYN: u16 = 3;
const MACHINE_X86_64: u16 = 62;

const SEGMENT_LOAD: u32 = 1;
const SEGMENT_INTERP: u32 = 3;
const SEGMENT_PHDR: u32 = 6;

/// Where the file may be loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadAddress {
    /// Where its headers say.
    Fixed,
    /// Anywhere: static-pie.
    Anywhere,
}

/// A checked program file.
#[derive(Clone, Copy, Debug)]
pub struct Image<'a> {
    file: &'a [u8],
    headers: &'a [u8],
    headers_offset: usize,
    entry: usize,
    load_address: LoadAddress,
}

/// One part of the file to be put into memory; its bounds are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment<'a> {
    /// First address, before any bias.
    pub start: usize,
    /// Bytes in memory, at least one.
    pub bytes: usize,
    /// Contents; the rest is zero.
    pub data: &'a [u8],
    /// Rights.
    pub prot: Prot,
    /// Address alignment, a power of two of at least one page.
    pub align: usize,
}

impl<'a> Image<'a> {
    /// Checks a file.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn parse(file: &'a [u8]) -> Result<Self, ExecError> {
        let ident = file.get(..4).ok_or(ExecError::NotElf)?;
        if ident != b"\x7fELF" {
            return Err(ExecError::NotElf);
        }
        let header = file.get(..HEADER_BYTES).ok_or(ExecError::Truncated)?;
        check_kind(header)?;
        let count = usize::from(u16_at(header, 56));
        let entry_bytes = usize::from(u16_at(header, 54));
        if entry_bytes != PROGRAM_HEADER_BYTES || count == 0 || count > MAX_PROGRAM_HEADERS {
            return Err(ExecError::BadSegment("number or size of program headers"));
        }
        let headers_offset = u64_at(header, 32);
        let headers = slice(file, headers_offset, count * PROGRAM_HEADER_BYTES)?;
        let load_address = match u16_at(header, 16) {
            TYPE_EXEC => LoadAddress::Fixed,
            _ => LoadAddress::Anywhere,
        };
        let entry = u64_at(header, 24);
        let image = Self {
            file,
            headers,
            headers_offset,
            entry,
            load_address,
        };
        image.check_segments()?;
        Ok(image)
    }

    /// Address of the first instruction, before any bias.
    pub fn entry(&self) -> usize {
        self.entry
    }

    /// Where the file may be loaded.
    pub fn load_address(&self) -> LoadAddress {
        self.load_address
    }

    /// Number of program headers.
    pub fn header_count(&self) -> usize {
        self.headers.len() / PROGRAM_HEADER_BYTES
    }

    /// Address of the program headers in memory, before any bias; 0 if they are not loaded.
    pub fn headers_address(&self) -> usize {
        if let Some(own) = self.raw().find(|header| header.kind == SEGMENT_PHDR) {
            return own.address;
        }
        let holder = self
            .raw()
            .filter(|header| header.kind == SEGMENT_LOAD)
            .find(|header| {
                let end = self.headers_offset + self.headers.len();
                header.offset <= self.headers_offset && end <= header.offset + header.file_bytes
            });
        holder.map_or(0, |header| {
            header.address + (self.headers_offset - header.offset)
        })
    }

    /// The parts to load. All were checked by [`parse`](Self::parse).
    pub fn segments(&self) -> impl Iterator<Item = Segment<'a>> {
        let file = self.file;
        self.raw()
            .filter(|header| header.kind == SEGMENT_LOAD && header.memory_bytes > 0)
            .filter_map(move |header| header.segment(file).ok())
    }

    fn check_segments(&self) -> Result<(), ExecError> {
        if self.raw().any(|header| header.kind == SEGMENT_INTERP) {
            return Err(ExecError::Dynamic);
        }
        let mut end = 0;
        for header in self.raw().filter(|header| header.kind == SEGMENT_LOAD) {
            let segment = header.segment(self.file)?;
            if segment.start < end {
                return Err(ExecError::BadSegment("segments overlap or are not sorted"));
            }
            // The next one begins on a page of its own: two rights cannot share one.
            end = (segment.start + segment.bytes).next_multiple_of(PAGE_SIZE);
        }
        let executable = self.segments().filter(|segment| segment.prot.exec());
        let holds = |segment: Segment<'_>| {
            (segment.start..segment.start + segment.bytes).contains(&self.entry)
        };
        match executable.into_iter().any(holds) {
            true => Ok(()),
            false => Err(ExecError::BadSegment(
                "the entry point is in no executable segment",
            )),
        }
    }

    fn raw(&self) -> impl Iterator<Item = RawHeader> {
        self.headers
            .chunks_exact(PROGRAM_HEADER_BYTES)
            .map(RawHeader::read)
    }
}

/// A program header as the file has it.
struct RawHeader {
    kind: u32,
    flags: u32,
    offset: usize,
    address: usize,
    file_bytes: usize,
    memory_bytes: usize,
    align: usize,
}

impl RawHeader {
    fn read(raw: &[u8]) -> Self {
        Self {
            kind: u32_at(raw, 0),
            flags: u32_at(raw, 4),
            offset: u64_at(raw, 8),
            address: u64_at(raw, 16),
            file_bytes: u64_at(raw, 32),
            memory_bytes: u64_at(raw, 40),
            align: u64_at(raw, 48),
        }
    }

    fn segment<'a>(&self, file: &'a [u8]) -> Result<Segment<'a>, ExecError> {
        let bad = |why| Err(ExecError::BadSegment(why));
        let align = self.align.max(PAGE_SIZE);
        if !align.is_power_of_two() {
            return bad("alignment is not a power of two");
        }
        if self.file_bytes > self.memory_bytes {
            return bad("more bytes in the file than in memory");
        }
        let end = self.address.checked_add(self.memory_bytes);
        if end.is_none_or(|end| end > USER_END) {
            return bad("outside user memory");
        }
        if self.offset % PAGE_SIZE != self.address % PAGE_SIZE {
            return bad("file offset and address differ within the page");
        }
        Ok(Segment {
            start: self.address,
            bytes: self.memory_bytes,
            data: slice(file, self.offset, self.file_bytes)?,
            prot: rights(self.flags),
            align,
        })
    }
}

/// Word size, byte order, processor and type.
fn check_kind(header: &[u8]) -> Result<(), ExecError> {
    match (header[4], header[5]) {
        (2, 1) => {}
        (1, _) => return Err(ExecError::ThirtyTwoBit),
        (2, 2) => return Err(ExecError::BigEndian),
        _ => return Err(ExecError::NotElf),
    }
    match (u16_at(header, 18), u16_at(header, 16)) {
        (MACHINE_X86_64, TYPE_EXEC | TYPE_DYN) => Ok(()),
        (MACHINE_X86_64, other) => Err(ExecError::NotProgram(other)),
        (machine, _) => Err(ExecError::WrongMachine(machine)),
    }
}

fn rights(flags: u32) -> Prot {
    let right = |bit, right| if flags & bit != 0 { right } else { Prot::NONE };
    right(4, Prot::READ)
        .with(right(2, Prot::WRITE))
        .with(right(1, Prot::EXEC))
}

fn slice(file: &[u8], offset: usize, bytes: usize) -> Result<&[u8], ExecError> {
    let end = offset.checked_add(bytes).ok_or(ExecError::Truncated)?;
    file.get(offset..end).ok_or(ExecError::Truncated)
}

fn bytes_at<const N: usize>(raw: &[u8], at: usize) -> [u8; N] {
    core::array::from_fn(|index| raw[at + index])
}

fn u16_at(raw: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes_at(raw, at))
}

fn u32_at(raw: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes_at(raw, at))
}

fn u64_at(raw: &[u8], at: usize) -> usize {
    u64::from_le_bytes(bytes_at(raw, at)) as usize
}
