//! The reference kernel's function names, for the backtraces of its panics: the kernel finds them as
//! `/boot/System.map` in its initial file system, in the format of `nm`.

use std::fmt::Write;
use std::path::Path;

use object::endian::Endianness;
use object::read::elf::ElfFile64;
use object::{Object, ObjectSymbol, SymbolKind};

/// The table of an ELF image; None when it has no symbols, and backtraces show addresses only.
pub fn table(image: &Path) -> Option<String> {
    let image = std::fs::read(image).ok()?;
    of_image(&image)
}

fn of_image(image: &[u8]) -> Option<String> {
    let mut text = String::new();
    for symbol in ElfFile64::<Endianness>::parse(image).ok()?.symbols() {
        // Assembler labels have no type but name code as well.
        let is_label = symbol.size() == 0 && symbol.kind() != SymbolKind::File;
        let is_code = symbol.kind() == SymbolKind::Text || is_label;
        let Ok(name) = symbol.name_bytes().map(String::from_utf8_lossy) else {
            continue;
        };
        let is_word = !name.is_empty() && !name.contains(char::is_whitespace);
        if is_code && is_word && !symbol.is_undefined() {
            let _ = writeln!(text, "{:016x} t {name}", symbol.address());
        }
    }
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_runs_has_its_start_in_its_table() {
        let image = std::env::current_exe().unwrap();
        let table = table(&image).expect("test binaries have symbols");
        // The C library's start-up code names its source file.
        assert!(!table.contains(" crtstuff.c\n"));
        let mut lines = table.lines();
        // Names of Rust's functions may be gone: they are inlined, or folded with others.
        let line = lines.find(|line| line.ends_with(" main"));
        let line = line.expect("every program has a main");
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
