//! What a Multiboot2 loader passes ("Multiboot2 Specification version 2.0", "Boot information
//! format"): tags, each with its type and size. GRUB makes it, for machines that have firmware and no
//! PVH loader. All of it is data from outside, so every pointer is checked.

use super::fail::boot_fail;
use super::memory::{self, LOW_MEMORY_END, Ram};
use super::physical;
use super::start_info::{self, Loader};
use crate::arch::paging::DIRECT_MAP_LIMIT;
use crate::console::{self, Adapter, COLUMNS, PIXEL_BITS, Pixels, ROWS, SCREEN_MEMORY};

/// In EAX at entry.
const MAGIC: u32 = 0x36d7_6289;
/// Largest information believed.
const SIZE_LIMIT: u32 = 1 << 20;
/// Tags begin at multiples of this.
const TAG_ALIGN: u64 = 8;

/// Types of tags.
const END: u32 = 0;
const COMMAND_LINE: u32 = 1;
const MODULE: u32 = 3;
const MEMORY_MAP: u32 = 6;
const FRAMEBUFFER: u32 = 8;
const ACPI_OLD: u32 = 14;
const ACPI_NEW: u32 = 15;

/// Type and size, the header included.
type TagHeader = [u32; 2];
const HEADER_BYTES: u64 = size_of::<TagHeader>() as u64;

/// The tag of the framebuffer, as far as all its types have it.
#[repr(C)]
#[derive(Clone, Copy)]
struct Framebuffer {
    address: u64,
    /// Bytes of a row.
    pitch: u32,
    /// In characters where it shows text, in pixels elsewhere.
    width: u32,
    height: u32,
    bits: u8,
    kind: u8,
}
/// The types of framebuffers that show colours, and text.
const DIRECT_COLOUR: u8 = 1;
const EGA_TEXT: u8 = 2;

/// Reads the loader's data at physical address `at`. Boot page tables are loaded.
pub fn read(magic: u32, at: u64) -> Loader {
    if magic != MAGIC {
        boot_fail!("the loader says {magic:#x}, not Multiboot2; use GRUB's command multiboot2");
    }
    let mut loader = Loader {
        cmdline: "",
        initramfs: &[],
        rsdp: 0,
        ram: Ram::new(),
        screen: None,
    };
    let mut adapter = None;
    for (kind, content, size) in tags(at) {
        match kind {
            COMMAND_LINE => loader.cmdline = start_info::cmdline(content),
            MODULE if loader.initramfs.is_empty() => loader.initramfs = module(content),
            MEMORY_MAP => loader.ram = memory_map(content, size),
            FRAMEBUFFER => adapter = Some(content),
            // A copy of the root pointer; a newer one is better.
            ACPI_OLD if loader.rsdp == 0 => loader.rsdp = content,
            ACPI_NEW => loader.rsdp = content,
            _ => {}
        }
    }
    loader.screen = adapter.and_then(|content| screen(content, &loader.ram));
    if let Some(adapter) = loader.screen.filter(|_| loader.has_early_screen()) {
        console::show_on(adapter);
    }
    if loader.initramfs.is_empty() {
        boot_fail!("no initramfs; pass one with GRUB's command module2");
    }
    if loader.ram.is_empty() {
        boot_fail!("the loader gives no memory map; use GRUB 2");
    }
    loader
}

/// Type, where the content is, and its size, of each tag.
fn tags(at: u64) -> impl Iterator<Item = (u32, u64, u64)> {
    let Some([total, _]) = physical::read::<TagHeader>(at).filter(|head| head[0] <= SIZE_LIMIT)
    else {
        damaged();
    };
    let end = at + u64::from(total);
    let mut next = at + HEADER_BYTES;
    core::iter::from_fn(move || {
        let Some([kind, size]) = physical::read::<TagHeader>(next) else {
            damaged();
        };
        if kind == END {
            return None;
        }
        let (here, size) = (next, u64::from(size));
        next = (here + size).next_multiple_of(TAG_ALIGN);
        if size < HEADER_BYTES || next > end {
            damaged();
        }
        Some((kind, here + HEADER_BYTES, size - HEADER_BYTES))
    })
}

/// The display adapter, where it is in a mode that the console knows; without one, the console has no screen.
fn screen(content: u64, ram: &[(u64, u64)]) -> Option<Adapter> {
    let Some(screen) = physical::read::<Framebuffer>(content) else {
        damaged();
    };
    let (columns, rows) = (COLUMNS as u32, ROWS as u32);
    let size = (screen.pitch, screen.width, screen.height);
    let is_text = screen.address == SCREEN_MEMORY && size == (columns * 2, columns, rows);
    match screen.kind {
        EGA_TEXT => is_text.then_some(Adapter::Text),
        DIRECT_COLOUR if screen.bits == PIXEL_BITS => {
            // SAFETY: it is used only if it is no RAM: then it is the adapter's, as the loader says.
            let pixels = unsafe { Pixels::new(screen.address, size.0, size.1, size.2)? };
            let range = pixels.range();
            let is_ram = |&(start, end): &(u64, u64)| start < range.end && range.start < end;
            let is_usable = range.start >= LOW_MEMORY_END && range.end <= DIRECT_MAP_LIMIT;
            (is_usable && !ram.iter().any(is_ram)).then_some(Adapter::Pixels(pixels))
        }
        _ => None,
    }
}

/// The module's first byte and the one behind its last are in the tag.
fn module(content: u64) -> &'static [u8] {
    let [start, end] = physical::read::<[u32; 2]>(content).unwrap_or_else(|| damaged());
    match physical::bytes(start.into(), end.saturating_sub(start) as usize) {
        Some(bytes) => bytes,
        None => damaged(),
    }
}

/// Size and version of an entry come first.
fn memory_map(content: u64, size: u64) -> Ram {
    let [entry_bytes, _] = physical::read::<[u32; 2]>(content).unwrap_or_else(|| damaged());
    let step = u64::from(entry_bytes);
    if step < memory::ENTRY_BYTES {
        damaged();
    }
    let entries = 0..(size - HEADER_BYTES.min(size)) / step;
    let places = entries.map(|index| content + HEADER_BYTES + index * step);
    memory::ram(places).unwrap_or_else(|| damaged())
}

fn damaged() -> ! {
    boot_fail!("the loader's information is damaged; use GRUB 2")
}
