//! Programs without what is for debuggers only, nine tenths of them: firmware reads a stick slowly.

use object::elf::FileHeader64;
use object::endian::Endianness;
use object::read::elf::{FileHeader, ProgramHeader};

/// Where an ELF header names the table of sections, and how many bytes of it say how many there are (System V ABI, "ELF
/// Header": e_shoff; e_shnum and e_shstrndx).
const SECTIONS_AT: std::ops::Range<usize> = 40..48;
const SECTION_COUNTS: std::ops::Range<usize> = 60..64;

/// An ELF image with its segments and without its sections; anything else as it is.
pub fn stripped(image: &[u8]) -> Vec<u8> {
    let mut image = image.to_vec();
    if let Some(end) = segments_end(&image).filter(|&end| end <= image.len()) {
        image.truncate(end);
        image[SECTIONS_AT].fill(0);
        image[SECTION_COUNTS].fill(0);
    }
    image
}

/// One past the last byte of the headers and of all segments.
fn segments_end(image: &[u8]) -> Option<usize> {
    let header = FileHeader64::<Endianness>::parse(image).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, image).ok()?;
    let table = header.e_phoff(endian) + size_of_val(segments) as u64;
    let ends = segments
        .iter()
        .map(|segment| segment.p_offset(endian) + segment.p_filesz(endian));
    usize::try_from(ends.max()?.max(table)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program;

    #[test]
    fn a_program_stays_one_and_becomes_smaller() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let bare = stripped(&own);
        assert!(bare.len() < own.len());
        // It is no static program, but what is said of it is the same, and its segments are all there.
        assert_eq!(program::check(&bare), program::check(&own));
        assert_eq!(stripped(&bare), bare);
    }

    #[test]
    fn what_is_no_program_stays_as_it_is() {
        assert_eq!(stripped(b"#!/bin/sh\n"), b"#!/bin/sh\n");
    }
}
