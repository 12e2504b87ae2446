//! Checks that a program can run on the reference kernel before anything is booted.

use std::path::Path;

use object::elf::{EM_X86_64, ET_DYN, ET_EXEC, FileHeader64, PT_INTERP, PT_LOAD};
use object::endian::Endianness;
use object::read::elf::{FileHeader, ProgramHeader};

use crate::failure::{Failure, Outcome};

const HOW_TO_BUILD: &str = "give a static x86-64 Linux program, for instance from cargo build --target x86_64-unknown-linux-musl";

/// Why an image cannot run.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Defect {
    #[error("not an ELF file")]
    NotElf,
    #[error("a 32-bit ELF file")]
    Not64Bit,
    #[error("an ELF file for another processor (machine {0})")]
    WrongMachine(u16),
    #[error("not executable (an ELF file of type {0})")]
    NotExecutable(u16),
    #[error("truncated: it ends before {0}")]
    Truncated(&'static str),
    #[error("dynamically linked (it asks for the loader {0})")]
    Dynamic(String),
}

/// Reads a program and checks it; the error names the file, the cause and the remedy.
pub fn read(path: &Path) -> Outcome<Vec<u8>> {
    let metadata = std::fs::metadata(path).map_err(|error| {
        Failure::input(
            format!("cannot read the program {}: {error}", path.display()),
            HOW_TO_BUILD,
        )
    })?;
    if !metadata.is_file() {
        let cause = format!("the program {} is not a regular file", path.display());
        return Err(Failure::input(cause, HOW_TO_BUILD));
    }
    let image = std::fs::read(path).map_err(|error| {
        Failure::input(
            format!("cannot read the program {}: {error}", path.display()),
            HOW_TO_BUILD,
        )
    })?;
    check(&image).map_err(|defect| {
        Failure::input(
            format!("the program {} is {defect}", path.display()),
            HOW_TO_BUILD,
        )
    })?;
    Ok(image)
}

/// Checks a whole image: a static (or static-pie) x86-64 executable whose segments are all there.
pub fn check(image: &[u8]) -> Result<(), Defect> {
    check_ident(image)?;
    let header = FileHeader64::<Endianness>::parse(image)
        .map_err(|_| Defect::Truncated("the end of its header"))?;
    let endian = header.endian().map_err(|_| Defect::NotElf)?;
    let machine = header.e_machine(endian);
    if machine != EM_X86_64 {
        return Err(Defect::WrongMachine(machine.0));
    }
    let kind = header.e_type(endian);
    if kind != ET_EXEC && kind != ET_DYN {
        return Err(Defect::NotExecutable(kind.0));
    }
    let segments = header
        .program_headers(endian, image)
        .map_err(|_| Defect::Truncated("the end of its program headers"))?;
    for segment in segments {
        let bytes = segment
            .data(endian, image)
            .map_err(|()| Defect::Truncated("the end of its segments"))?;
        if segment.p_type(endian) == PT_INTERP {
            let loader = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
            return Err(Defect::Dynamic(
                String::from_utf8_lossy(loader).into_owned(),
            ));
        }
    }
    if !segments
        .iter()
        .any(|segment| segment.p_type(endian) == PT_LOAD)
    {
        return Err(Defect::NotExecutable(kind.0));
    }
    Ok(())
}

/// The first bytes decide between "something else" and "an ELF file, but".
fn check_ident(image: &[u8]) -> Result<(), Defect> {
    const MAGIC: &[u8] = b"\x7fELF";
    const CLASS_64: u8 = 2;
    let start = image.get(..MAGIC.len()).unwrap_or(image);
    if start != MAGIC {
        let is_cut = !image.is_empty() && MAGIC.starts_with(image);
        return Err(if is_cut {
            Defect::Truncated("the end of its header")
        } else {
            Defect::NotElf
        });
    }
    match image.get(MAGIC.len()) {
        None => Err(Defect::Truncated("the end of its header")),
        Some(&CLASS_64) => Ok(()),
        Some(_) => Err(Defect::Not64Bit),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A whole little program: header, one PT_LOAD and, when asked for, one PT_INTERP.
    fn image(machine: u16, kind: u16, loader: Option<&str>) -> Vec<u8> {
        let mut bytes = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let segments: u16 = if loader.is_some() { 2 } else { 1 };
        bytes.extend(kind.to_le_bytes());
        bytes.extend(machine.to_le_bytes());
        bytes.extend(1u32.to_le_bytes());
        bytes.extend(0x40_0000u64.to_le_bytes());
        bytes.extend(64u64.to_le_bytes());
        bytes.extend(0u64.to_le_bytes());
        bytes.extend(0u32.to_le_bytes());
        for half in [64u16, 56, segments, 64, 0, 0] {
            bytes.extend(half.to_le_bytes());
        }
        let data_at = 64 + 56 * u64::from(segments);
        push_segment(&mut bytes, 1, data_at, 16);
        if let Some(loader) = loader {
            push_segment(&mut bytes, 3, data_at, loader.len() as u64 + 1);
            bytes.extend(loader.as_bytes());
        }
        bytes.resize(bytes.len() + 32, 0);
        bytes
    }

    fn push_segment(bytes: &mut Vec<u8>, kind: u32, offset: u64, size: u64) {
        bytes.extend(kind.to_le_bytes());
        bytes.extend(5u32.to_le_bytes());
        for word in [offset, 0x40_0000, 0x40_0000, size, size, 0x1000] {
            bytes.extend(word.to_le_bytes());
        }
    }

    #[test]
    fn static_programs_pass() {
        assert_eq!(check(&image(62, 2, None)), Ok(()));
        assert_eq!(check(&image(62, 3, None)), Ok(()));
    }

    #[test]
    fn dynamic_program_names_its_loader() {
        let defect = check(&image(62, 3, Some("/lib/ld.so"))).unwrap_err();
        assert_eq!(defect, Defect::Dynamic("/lib/ld.so".into()));
    }

    #[test]
    fn every_truncation_is_refused() {
        let whole = image(62, 2, None);
        for length in 1..whole.len() - 16 {
            let defect = check(&whole[..length]).unwrap_err();
            assert!(
                matches!(defect, Defect::Truncated(_)),
                "{length} bytes: {defect}"
            );
        }
    }

    #[test]
    fn other_files_are_told_apart() {
        assert_eq!(check(b""), Err(Defect::NotElf));
        assert_eq!(check(b"#!/bin/sh\n"), Err(Defect::NotElf));
        assert_eq!(check(&image(183, 2, None)), Err(Defect::WrongMachine(183)));
        assert_eq!(check(&image(62, 1, None)), Err(Defect::NotExecutable(1)));
        let mut narrow = image(62, 2, None);
        narrow[4] = 1;
        assert_eq!(check(&narrow), Err(Defect::Not64Bit));
    }
}
