//! The reference kernel's function names, for the backtraces of its panics: the kernel finds them as
//! `/boot/System.map` in its initial file system, in the format of `nm`.

use std::fmt::Write;
use std::path::Path;

use object::elf::{FileHeader64, SHT_SYMTAB, STT_FUNC};
use object::endian::Endianness;
use object::read::elf::{FileHeader, Sym};

/// The table of an ELF image; None when it has no symbols, and backtraces show addresses only.
pub fn table(image: &Path) -> Option<String> {
    let image = std::fs::read(image).ok()?;
    of_image(&image)
}

fn of_image(image: &[u8]) -> Option<String> {
    let header = FileHeader64::<Endianness>::parse(image).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, image).ok()?;
    let symbols = sections.symbols(endian, image, SHT_SYMTAB).ok()?;
    let mut text = String::new();
    for symbol in symbols.iter() {
        // Assembler labels have no type but name code as well.
        let is_code = symbol.st_type() == STT_FUNC || symbol.st_size(endian) == 0;
        let Ok(name) = symbol.name(endian, symbols.strings()) else {
            continue;
        };
        let name = String::from_utf8_lossy(name);
        let is_defined = symbol.st_shndx(endian) != object::elf::SHN_UNDEF;
        if is_code && is_defined && !name.is_empty() && !name.contains(char::is_whitespace) {
            let _ = writeln!(text, "{:016x} t {name}", symbol.st_value(endian));
        }
    }
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_test_is_in_its_own_table() {
        let image = std::env::current_exe().unwrap();
        let table = table(&image).expect("test binaries have symbols");
        let line = table
            .lines()
            .find(|line| line.contains("this_test_is_in_its_own_table"))
            .expect("a function of this module");
        let mut words = line.split(' ');
        assert!(u64::from_str_radix(words.next().unwrap(), 16).unwrap() > 0);
        assert_eq!(words.next(), Some("t"));
    }

    #[test]
    fn files_without_symbols_have_no_table() {
        assert_eq!(of_image(b""), None);
        assert_eq!(of_image(b"\x7fELF"), None);
    }
}
