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
    let refused = |cause: String| Failure::input(cause, HOW_TO_BUILD);
    let name = path.display();
    let unreadable = |error| refused(format!("cannot read the program {name}: {error}"));
    if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(refused(format!("the program {name} is not a regular file")));
    }
    let image = std::fs::read(path).map_err(unreadable)?;
    check(&image).map_err(|defect| refused(format!("the program {name} is {defect}")))?;
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
    const MAGIC_OF_64_BIT: &[u8] = b"\x7fELF\x02";
    let mut bytes = image.iter().zip(MAGIC_OF_64_BIT);
    match bytes.position(|(is, due)| is != due) {
        None if !image.is_empty() => Ok(()),
        Some(4) => Err(Defect::Not64Bit),
        _ => Err(Defect::NotElf),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A whole little program: header and one PT_LOAD. Other programs are refused in `tests/bad_input.rs`.
    fn image(kind: u8) -> Vec<u8> {
        let mut bytes = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
        bytes.extend([kind, 0, 62, 0, 1, 0, 0, 0]);
        for word in [0x40_0000u64, 64, 0] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend([0, 0, 0, 0, 64, 0, 56, 0, 1, 0, 64, 0, 0, 0, 0, 0]);
        bytes.extend([1, 0, 0, 0, 5, 0, 0, 0]);
        for word in [120u64, 0x40_0000, 0x40_0000, 16, 16, 0x1000] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.resize(bytes.len() + 32, 0);
        bytes
    }

    #[test]
    fn static_programs_pass_and_object_files_do_not() {
        assert_eq!(check(&image(2)), Ok(()));
        assert_eq!(check(&image(3)), Ok(()));
        assert_eq!(check(&image(1)), Err(Defect::NotExecutable(1)));
    }

    #[test]
    fn every_truncation_is_refused() {
        let whole = image(2);
        for length in 1..whole.len() - 16 {
            let defect = check(&whole[..length]).unwrap_err();
            assert!(
                matches!(defect, Defect::Truncated(_)),
                "{length} bytes: {defect}"
            );
        }
    }
}
