//! Putting a program into an address space.

use super::elf::{Image, LoadAddress, PROGRAM_HEADER_BYTES, Segment};
use super::error::ExecError;
use super::stack::{self, StackImage};
use crate::errno::Errno;
use crate::mm::layout::{PIE_BASE, STACK_TOP};
use crate::mm::layout::{page_ceil, page_floor};
use crate::mm::{
    AreaKind, FileArea, MapError, MapRequest, MemoryFile, MemorySpace, PAGE_SIZE, Placement,
    Populate, Prot,
};
use alloc::sync::Arc;
use core::arch::x86_64::__cpuid;
use linux_raw_sys::auxvec;

/// Where user code begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserEntry {
    /// First instruction.
    pub rip: usize,
    /// Stack pointer: `argc` is there, 16-byte aligned (System V ABI, AMD64, section 3.4.1).
    pub rsp: usize,
}

/// What a new program finds on its stack.
#[derive(Clone, Copy, Debug)]
pub struct Arguments<'a, A, E> {
    /// Its arguments.
    pub argv: &'a [A],
    /// Its environment.
    pub envp: &'a [E],
    /// Unpredictable bytes for `AT_RANDOM`, the seed of stack canaries.
    pub random: [u8; 16],
}

/// Maps the program `file` into `space`, which has no user mappings yet, and the dynamic linker that it names, which `open` finds; its arguments get a fresh
/// stack.
///
/// # Errors
/// Names what is wrong with the file, or what ran out. The space is then half filled: drop it.
pub fn load(
    space: &MemorySpace,
    file: &Arc<MemoryFile>,
    arguments: Arguments<'_, impl AsRef<[u8]>, impl AsRef<[u8]>>,
    open: impl FnOnce(&str) -> Result<Arc<MemoryFile>, Errno>,
) -> Result<UserEntry, ExecError> {
    let image = Image::parse(file)?;
    let bias = bias(&image, PIE_BASE);
    map_image(space, file, &image, bias)?;
    let end = image.span().end + bias;
    space.set_heap_start(end.next_multiple_of(PAGE_SIZE));
    let entry = bias + image.entry();
    let (mut base, mut rip) = (0, entry);
    if let Some(path) = image.interpreter() {
        let file = open(path).map_err(ExecError::Interpreter)?;
        let linker = Image::parse(&file)?;
        base = self::bias(&linker, room_for(space, &linker)?);
        map_image(space, &file, &linker, base)?;
        rip = base + linker.entry();
    }
    let aux = auxiliary_vector(&image, bias, base);
    let stack = stack::build(arguments.argv, arguments.envp, &aux, arguments.random)?;
    map_stack(space, &stack)?;
    Ok(UserEntry {
        rip,
        rsp: stack.rsp,
    })
}

/// What is added to every address of the file, if it may be loaded from about that address on.
fn bias(image: &Image, near: usize) -> usize {
    match image.load_address() {
        LoadAddress::Fixed => 0,
        LoadAddress::Anywhere => near.next_multiple_of(align(image)),
    }
}

fn align(image: &Image) -> usize {
    let aligns = image.segments().map(|segment| segment.align);
    aligns.max().unwrap_or(PAGE_SIZE)
}

/// Where there is room for such an image now.
fn room_for(space: &MemorySpace, image: &Image) -> Result<usize, ExecError> {
    let too_big = ExecError::Memory(MapError::NoMemory);
    let len = image.span().end.checked_add(align(image)).ok_or(too_big)?;
    let found = space.map(MapRequest {
        addr: 0,
        len,
        prot: Prot::NONE,
        placement: Placement::Anywhere,
        populate: Populate::OnDemand,
        kind: AreaKind::Anonymous,
    })?;
    space.unmap(found, len)?;
    Ok(found)
}

fn map_image(
    space: &MemorySpace,
    file: &Arc<MemoryFile>,
    image: &Image,
    bias: usize,
) -> Result<(), ExecError> {
    let mut segments = image.segments();
    segments.try_for_each(|segment| map_segment(space, file, bias, &segment))
}

/// The pages of the file, and behind them pages of zeroes.
fn map_segment(
    space: &MemorySpace,
    file: &Arc<MemoryFile>,
    bias: usize,
    segment: &Segment,
) -> Result<(), ExecError> {
    let outside = ExecError::BadSegment("outside user memory");
    let start = segment.start.checked_add(bias).ok_or(outside)?;
    let end = start.checked_add(segment.bytes).ok_or(outside)?;
    let of_file = start + segment.file_bytes;
    let first = page_floor(start);
    let border = match segment.file_bytes {
        0 => first,
        _ => page_ceil(of_file).ok_or(outside)?,
    };
    let shown = FileArea::new(file.clone(), page_floor(segment.offset), false);
    let parts = [
        (first, border, AreaKind::PrivateFile(shown)),
        (border, page_ceil(end).ok_or(outside)?, AreaKind::Anonymous),
    ];
    for (addr, end, kind) in parts {
        if addr >= end {
            continue;
        }
        let mapped = space.map(MapRequest {
            addr,
            len: end - addr,
            prot: segment.prot,
            placement: Placement::FixedIfFree,
            populate: Populate::OnDemand,
            kind,
        });
        if mapped == Err(MapError::Forbidden) {
            return Err(ExecError::BadSegment("below the lowest mappable address"));
        }
        mapped?;
    }
    // What follows the segment's bytes in their last page is zeroes, as far as it may be written to.
    if segment.prot.write() && of_file < border {
        let zeroes = [0; PAGE_SIZE];
        space.write_initial(of_file, &zeroes[..border - of_file])?;
    }
    Ok(())
}

fn map_stack(space: &MemorySpace, stack: &StackImage) -> Result<(), ExecError> {
    space.map(MapRequest {
        addr: STACK_TOP - stack::INITIAL_BYTES,
        len: stack::INITIAL_BYTES,
        prot: Prot::READ_WRITE,
        placement: Placement::FixedIfFree,
        populate: Populate::OnDemand,
        kind: AreaKind::Stack,
    })?;
    space.write_initial(stack.rsp, &stack.bytes)?;
    Ok(())
}

/// The entries that do not depend on the stack's own contents. There is no vDSO, so no
/// `AT_SYSINFO_EHDR`: programs then make real system calls for the time.
fn auxiliary_vector(image: &Image, bias: usize, base: usize) -> [(u32, usize); 14] {
    // CPUID leaf 1, EDX (Intel SDM vol. 2A).
    let hwcap = __cpuid(1).edx as usize;
    let headers = match image.headers_address() {
        0 => 0,
        address => bias.wrapping_add(address),
    };
    [
        (auxvec::AT_PHDR, headers),
        (auxvec::AT_PHENT, PROGRAM_HEADER_BYTES),
        (auxvec::AT_PHNUM, image.header_count()),
        (auxvec::AT_PAGESZ, PAGE_SIZE),
        (auxvec::AT_ENTRY, bias + image.entry()),
        (auxvec::AT_BASE, base),
        (auxvec::AT_FLAGS, 0),
        (auxvec::AT_UID, 0),
        (auxvec::AT_EUID, 0),
        (auxvec::AT_GID, 0),
        (auxvec::AT_EGID, 0),
        (auxvec::AT_SECURE, 0),
        (auxvec::AT_HWCAP, hwcap),
        (auxvec::AT_CLKTCK, 100),
    ]
}
