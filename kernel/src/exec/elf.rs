//! Reading ELF headers: nothing in the file is believed before it is checked.
//!
//! Section headers are ignored, as Linux does: a program runs without them, however broken they are.

use super::error::ExecError;
use crate::mm::{PAGE_SIZE, Prot, USER_END};
use elf::abi::{EM_X86_64, ET_DYN, ET_EXEC, PF_R, PF_W, PF_X, PT_INTERP, PT_LOAD, PT_PHDR};
use elf::endian::LittleEndian;
use elf::file::{Class, FileHeader};
use elf::segment::{ProgramHeader, SegmentTable};

const HEADER_BYTES: usize = 64;
/// `e_phentsize` of every 64-bit ELF file.
pub const PROGRAM_HEADER_BYTES: usize = 56;
/// Most program headers; real programs have about ten.
const MAX_PROGRAM_HEADERS: usize = 128;

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
        let header = checked(header)?;
        let [count, bytes] = [header.e_phnum, header.e_phentsize].map(usize::from);
        if bytes != PROGRAM_HEADER_BYTES || count == 0 || count > MAX_PROGRAM_HEADERS {
            return Err(ExecError::BadSegment("number or size of program headers"));
        }
        let headers_offset = header.e_phoff as usize;
        let image = Self {
            file,
            headers: slice(file, headers_offset, count * PROGRAM_HEADER_BYTES)?,
            headers_offset,
            entry: header.e_entry as usize,
            load_address: match header.e_type {
                ET_EXEC => LoadAddress::Fixed,
                _ => LoadAddress::Anywhere,
            },
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
        if let Some(own) = self.raw().find(|header| header.p_type == PT_PHDR) {
            return own.p_vaddr as usize;
        }
        let (start, bytes) = (self.headers_offset as u64, self.headers.len() as u64);
        let holds = |header: &ProgramHeader| {
            let end = header.p_offset + header.p_filesz;
            header.p_offset <= start && start + bytes <= end
        };
        let holder = self.loaded().find(holds);
        holder.map_or(0, |header| {
            (header.p_vaddr + (start - header.p_offset)) as usize
        })
    }

    /// The parts to load. All were checked by [`parse`](Self::parse).
    pub fn segments(&self) -> impl Iterator<Item = Segment<'a>> {
        let file = self.file;
        let loaded = self.loaded().filter(|header| header.p_memsz > 0);
        loaded.filter_map(move |header| segment(&header, file).ok())
    }

    fn check_segments(&self) -> Result<(), ExecError> {
        if self.raw().any(|header| header.p_type == PT_INTERP) {
            return Err(ExecError::Dynamic);
        }
        let mut end = 0;
        for header in self.loaded() {
            let segment = segment(&header, self.file)?;
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
        let what = "the entry point is in no executable segment";
        match executable.into_iter().any(holds) {
            true => Ok(()),
            false => Err(ExecError::BadSegment(what)),
        }
    }

    /// Those of segments to load.
    fn loaded(&self) -> impl Iterator<Item = ProgramHeader> + use<'a> {
        self.raw().filter(|header| header.p_type == PT_LOAD)
    }

    /// All program headers.
    fn raw(&self) -> impl Iterator<Item = ProgramHeader> + use<'a> {
        SegmentTable::new(LittleEndian, Class::ELF64, self.headers).iter()
    }
}

fn segment<'a>(header: &ProgramHeader, file: &'a [u8]) -> Result<Segment<'a>, ExecError> {
    let bad = |why| Err(ExecError::BadSegment(why));
    let (start, bytes) = (header.p_vaddr as usize, header.p_memsz as usize);
    let (offset, file_bytes) = (header.p_offset as usize, header.p_filesz as usize);
    let align = PAGE_SIZE.max(header.p_align as usize);
    if !align.is_power_of_two() {
        return bad("alignment is not a power of two");
    }
    if file_bytes > bytes {
        return bad("more bytes in the file than in memory");
    }
    let end = start.checked_add(bytes);
    if end.is_none_or(|end| end > USER_END) {
        return bad("outside user memory");
    }
    if offset % PAGE_SIZE != start % PAGE_SIZE {
        return bad("file offset and address differ within the page");
    }
    Ok(Segment {
        start,
        bytes,
        data: slice(file, offset, file_bytes)?,
        prot: rights(header.p_flags),
        align,
    })
}

/// The header, of which word size, byte order, processor and type are right.
fn checked(raw: &[u8]) -> Result<FileHeader<LittleEndian>, ExecError> {
    match (raw[4], raw[5]) {
        (2, 1) => {}
        (1, _) => return Err(ExecError::ThirtyTwoBit),
        (2, 2) => return Err(ExecError::BigEndian),
        _ => return Err(ExecError::NotElf),
    }
    let header = FileHeader::parse_tail((LittleEndian, Class::ELF64, 0, 0), &raw[16..]);
    let header = header.map_err(|_| ExecError::Truncated)?;
    match (header.e_machine, header.e_type) {
        (EM_X86_64, ET_EXEC | ET_DYN) => Ok(header),
        (EM_X86_64, other) => Err(ExecError::NotProgram(other)),
        (machine, _) => Err(ExecError::WrongMachine(machine)),
    }
}

fn rights(flags: u32) -> Prot {
    let right = |bit, right| if flags & bit != 0 { right } else { Prot::NONE };
    let (read, write) = (right(PF_R, Prot::READ), right(PF_W, Prot::WRITE));
    read.with(write).with(right(PF_X, Prot::EXEC))
}

fn slice(file: &[u8], offset: usize, bytes: usize) -> Result<&[u8], ExecError> {
    let end = offset.checked_add(bytes).ok_or(ExecError::Truncated)?;
    file.get(offset..end).ok_or(ExecError::Truncated)
}
