//! Reading ELF headers: nothing in the file is believed before it is checked.
//!
//! Section headers are ignored, as Linux does: a program runs without them, however broken they are.

use super::error::ExecError;
use crate::mm::file::Copy;
use crate::mm::{MemoryFile, PAGE_SIZE, Prot, USER_END};
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;
use elf::abi::{EM_X86_64, ET_DYN, ET_EXEC, PF_R, PF_W, PF_X, PT_INTERP, PT_LOAD, PT_PHDR};
use elf::endian::LittleEndian;
use elf::file::{Class, FileHeader};
use elf::segment::{ProgramHeader, SegmentTable};

const HEADER_BYTES: usize = 64;
/// `e_phentsize` of every 64-bit ELF file.
pub const PROGRAM_HEADER_BYTES: usize = 56;
/// Most program headers; real programs have about ten.
const MAX_PROGRAM_HEADERS: usize = 128;
/// Longest path of an interpreter.
const PATH_MAX: usize = 4096;

/// Where the file may be loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadAddress {
    /// Where its headers say.
    Fixed,
    /// Anywhere: static-pie, and what a dynamic linker links.
    Anywhere,
}

/// A checked program file.
#[derive(Clone, Debug)]
pub struct Image {
    file_bytes: usize,
    headers: Vec<u8>,
    headers_offset: usize,
    entry: usize,
    load_address: LoadAddress,
    interpreter: Option<String>,
}

/// One part of the file to be put into memory; its bounds are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// First address, before any bias.
    pub start: usize,
    /// Bytes in memory, at least one.
    pub bytes: usize,
    /// Where the contents are in the file; as far into a page as the address.
    pub offset: usize,
    /// Bytes of them; the rest is zero.
    pub file_bytes: usize,
    /// Rights.
    pub prot: Prot,
    /// Address alignment, a power of two of at least one page.
    pub align: usize,
}

impl Image {
    /// Checks a file.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn parse(file: &MemoryFile) -> Result<Self, ExecError> {
        let ident = bytes_of(file, 0, 4).map_err(|_| ExecError::NotElf)?;
        if ident != b"\x7fELF" {
            return Err(ExecError::NotElf);
        }
        let header = checked(&bytes_of(file, 0, HEADER_BYTES)?)?;
        let [count, bytes] = [header.e_phnum, header.e_phentsize].map(usize::from);
        if bytes != PROGRAM_HEADER_BYTES || count == 0 || count > MAX_PROGRAM_HEADERS {
            return Err(ExecError::BadSegment("number or size of program headers"));
        }
        let headers_offset = header.e_phoff as usize;
        let mut image = Self {
            file_bytes: usize::try_from(file.size()).unwrap_or(usize::MAX),
            headers: bytes_of(file, headers_offset, count * PROGRAM_HEADER_BYTES)?,
            headers_offset,
            entry: header.e_entry as usize,
            load_address: match header.e_type {
                ET_EXEC => LoadAddress::Fixed,
                _ => LoadAddress::Anywhere,
            },
            interpreter: None,
        };
        image.check_segments()?;
        let interpreter = image.raw().find(|header| header.p_type == PT_INTERP);
        image.interpreter = interpreter
            .map(|header| path_of(file, &header))
            .transpose()?;
        Ok(image)
    }

    /// The program that loads this one, if it names one.
    pub fn interpreter(&self) -> Option<&str> {
        self.interpreter.as_deref()
    }

    /// The addresses from the first segment to the end of the last one, before any bias.
    pub fn span(&self) -> Range<usize> {
        let start = self.segments().next().map_or(0, |first| first.start);
        let end = self
            .segments()
            .last()
            .map_or(0, |last| last.start + last.bytes);
        start..end
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
            let end = header.p_offset.saturating_add(header.p_filesz);
            header.p_offset <= start && start + bytes <= end
        };
        let holder = self.loaded().find(holds);
        holder.map_or(0, |header| {
            (header.p_vaddr + (start - header.p_offset)) as usize
        })
    }

    /// The parts to load. All were checked by [`parse`](Self::parse).
    pub fn segments(&self) -> impl Iterator<Item = Segment> {
        let loaded = self.loaded().filter(|header| header.p_memsz > 0);
        loaded.filter_map(|header| segment(&header, self.file_bytes).ok())
    }

    fn check_segments(&self) -> Result<(), ExecError> {
        let mut end = 0;
        for header in self.loaded() {
            let segment = segment(&header, self.file_bytes)?;
            if segment.start < end {
                return Err(ExecError::BadSegment("segments overlap or are not sorted"));
            }
            // The next one begins on a page of its own: two rights cannot share one.
            end = (segment.start + segment.bytes).next_multiple_of(PAGE_SIZE);
        }
        let executable = self.segments().filter(|segment| segment.prot.exec());
        let holds =
            |segment: Segment| (segment.start..segment.start + segment.bytes).contains(&self.entry);
        let what = "the entry point is in no executable segment";
        let mut executable = executable.into_iter();
        match executable.any(holds) {
            true => Ok(()),
            false => Err(ExecError::BadSegment(what)),
        }
    }

    /// Those of segments to load.
    fn loaded(&self) -> impl Iterator<Item = ProgramHeader> {
        self.raw().filter(|header| header.p_type == PT_LOAD)
    }

    /// All program headers.
    fn raw(&self) -> impl Iterator<Item = ProgramHeader> {
        SegmentTable::new(LittleEndian, Class::ELF64, &self.headers).iter()
    }
}

fn segment(header: &ProgramHeader, of_file: usize) -> Result<Segment, ExecError> {
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
    let end = offset.checked_add(file_bytes);
    if end.is_none_or(|end| end > of_file) {
        return Err(ExecError::Truncated);
    }
    Ok(Segment {
        start,
        bytes,
        offset,
        file_bytes,
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

/// The path that such a header leads to.
fn path_of(file: &MemoryFile, header: &ProgramHeader) -> Result<String, ExecError> {
    let bad = ExecError::BadSegment("path of the interpreter");
    let len = usize::try_from(header.p_filesz).unwrap_or(usize::MAX);
    if !(2..=PATH_MAX).contains(&len) {
        return Err(bad);
    }
    let mut path = bytes_of(file, header.p_offset as usize, len)?;
    if path.pop() != Some(0) || path.contains(&0) {
        return Err(bad);
    }
    String::from_utf8(path).map_err(|_| bad)
}

/// So many bytes of the file.
fn bytes_of(file: &MemoryFile, offset: usize, len: usize) -> Result<Vec<u8>, ExecError> {
    let mut bytes = alloc::vec![0; len];
    let mut done = 0;
    while done < len {
        let at = (offset as u64).saturating_add(done as u64);
        match file.read(Copy::InMemory, at, &mut bytes[done..]) {
            0 => return Err(ExecError::Truncated),
            more => done += more,
        }
    }
    Ok(bytes)
}
