//! ELF files with a PVH note: where they go in memory and where they begin (Xen, "x86/HVM direct boot ABI").

use super::memory::Memory;

const IDENTITY: &[u8] = b"\x7fELF\x02\x01";
const HEADER_BYTES: usize = 64;
const PROGRAM_HEADER_BYTES: usize = 56;
const LOAD: u32 = 1;
const NOTE: u32 = 4;
/// The note with the address of the 32-bit entry, and its owner.
const PHYS32_ENTRY: u32 = 18;
const OWNER: &[u8] = b"Xen\0";

/// Where a kernel is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// The first instruction.
    pub entry: u32,
    /// One past the last byte.
    pub end: u64,
}

/// A segment, from its program header.
struct Segment {
    kind: u32,
    offset: u64,
    physical: u64,
    file_bytes: u64,
    memory_bytes: u64,
}

/// Puts the kernel in memory.
///
/// # Errors
/// What is wrong with the file.
pub fn load(image: &[u8], memory: &mut Memory) -> Result<Loaded, String> {
    let (mut entry, mut end) = (None, 0);
    for segment in segments(image)? {
        let bytes = image
            .get(segment.offset as usize..)
            .and_then(|rest| rest.get(..segment.file_bytes as usize))
            .ok_or("it ends before its segments")?;
        match segment.kind {
            LOAD => {
                let after = segment.physical.saturating_add(segment.memory_bytes);
                if after > memory.bytes() || !memory.write(segment.physical, bytes) {
                    return Err(format!("it needs memory up to {after:#x}"));
                }
                end = end.max(after);
            }
            NOTE => entry = entry.or(entry_of(bytes)),
            _ => {}
        }
    }
    let entry = entry.ok_or("it has no PVH note")?;
    Ok(Loaded { entry, end })
}

fn segments(image: &[u8]) -> Result<Vec<Segment>, &'static str> {
    if !image.starts_with(IDENTITY) || image.len() < HEADER_BYTES {
        return Err("it is not a 64-bit ELF file");
    }
    let start = long(image, 32) as usize;
    let count = usize::from(u16::from_le_bytes([image[56], image[57]]));
    let headers = image
        .get(start..)
        .and_then(|rest| rest.get(..count * PROGRAM_HEADER_BYTES))
        .ok_or("it ends before its program headers")?;
    let segment = |header: &[u8]| Segment {
        kind: word(header, 0),
        offset: long(header, 8),
        physical: long(header, 24),
        file_bytes: long(header, 32),
        memory_bytes: long(header, 40),
    };
    Ok(headers
        .chunks_exact(PROGRAM_HEADER_BYTES)
        .map(segment)
        .collect())
}

/// The entry, if these notes tell it: sizes of owner and contents, the type, owner, contents, each padded to four bytes.
fn entry_of(mut notes: &[u8]) -> Option<u32> {
    while notes.len() >= 12 {
        let [owner, contents] = [0, 4].map(|at| word(notes, at) as usize);
        let kind = word(notes, 8);
        let from = 12usize.checked_add(owner.checked_next_multiple_of(4)?)?;
        let next = from.checked_add(contents.checked_next_multiple_of(4)?)?;
        let is_it = kind == PHYS32_ENTRY && notes.get(12..12 + owner) == Some(OWNER);
        if is_it && contents >= 4 {
            return notes.get(from..from + 4).map(|bytes| word(bytes, 0));
        }
        notes = notes.get(next..)?;
    }
    None
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from(word(bytes, at)) | u64::from(word(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(kind: u32, contents: &[u8]) -> Vec<u8> {
        let sizes = [4, contents.len() as u32, kind];
        let head = sizes.into_iter().flat_map(u32::to_le_bytes);
        head.chain(OWNER.iter().copied())
            .chain(contents.iter().copied())
            .collect()
    }

    #[test]
    fn the_entry_is_found_among_notes() {
        let notes = [note(1, &[9; 8]), note(PHYS32_ENTRY, &[4, 3, 2, 1])].concat();
        assert_eq!(entry_of(&notes), Some(0x0102_0304));
        assert_eq!(entry_of(&notes[..30]), None);
        assert_eq!(entry_of(&note(PHYS32_ENTRY, &[])), None);
    }

    #[test]
    fn what_is_no_kernel_is_refused() {
        let mut memory = Memory::new(1 << 20).unwrap();
        for image in [&b""[..], b"#!/bin/sh", &[IDENTITY, &[0xff; 90]].concat()] {
            assert!(load(image, &mut memory).is_err());
        }
    }
}
