//! Function names for addresses, from the file `/boot/System.map` of the initramfs.
//!
//! The linker makes the symbol table last, so the image cannot contain it without a second link. `lab`
//! puts it beside the programs instead, one line for each function: address in hexadecimal, a type
//! letter, the mangled name (the format of `nm` and of Linux's file of that name).

use core::fmt;

use crate::arch::paging;
use crate::exec::initramfs;

const FILE: &str = "boot/System.map";

/// A function, and how far into it an address is.
pub struct Symbol {
    name: &'static str,
    offset: usize,
}

impl fmt::Display for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The alternate form leaves the hash out.
        write!(
            f,
            "{:#}+{:#x}",
            rustc_demangle::demangle(self.name),
            self.offset
        )
    }
}

/// The function that holds `address`; None without the file, and for anything but kernel code.
/// Allocates nothing and takes no lock.
pub fn find(address: usize) -> Option<Symbol> {
    if !paging::is_kernel_code(address) {
        return None;
    }
    crate::boot::try_info()?;
    let file = initramfs::find(FILE)?;
    let text = core::str::from_utf8(file.data).ok()?;
    let (start, name) = text
        .lines()
        .filter_map(parse)
        .filter(|&(start, _)| start <= address)
        .max_by_key(|&(start, _)| start)?;
    Some(Symbol {
        name,
        offset: address - start,
    })
}

fn parse(line: &'static str) -> Option<(usize, &'static str)> {
    let mut words = line.split_ascii_whitespace();
    let address = usize::from_str_radix(words.next()?, 16).ok()?;
    let kind = words.next()?;
    kind.eq_ignore_ascii_case("t").then_some(())?;
    Some((address, words.next()?))
}
