//! Putting a program into an address space.

use super::elf::{Image, LoadAddress, PROGRAM_HEADER_BYTES, Segment};
use super::error::ExecError;
use super::stack::{self, StackImage};
use crate::mm::layout::{PIE_BASE, STACK_TOP};
use crate::mm::{
    AreaKind, MapError, MapRequest, MemorySpace, PAGE_SIZE, Placement, Populate, Prot,
};
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

/// Loads the static or static-pie program `file` into `space`, which has no user mappings yet, with
/// `argv` and `envp` on a fresh stack. `random` are 16 unpredictable bytes for `AT_RANDOM`, the seed
/// of stack canaries.
///
/// # Errors
/// Names what is wrong with the file, or what ran out. The space is then half filled: drop it.
pub fn load(
    space: &MemorySpace,
    file: &[u8],
    argv: &[impl AsRef<[u8]>],
    envp: &[impl AsRef<[u8]>],
    random: [u8; 16],
) -> Result<UserEntry, ExecError> {
    let image = Image::parse(file)?;
    let bias = bias(&image);
    let mut end = 0;
    for segment in image.segments() {
        map_segment(space, bias, &segment)?;
        end = bias + segment.start + segment.bytes;
    }
    space.set_heap_start(end.next_multiple_of(PAGE_SIZE));
    let aux = auxiliary_vector(&image, bias);
    let stack = stack::build(argv, envp, &aux, random)?;
    map_stack(space, &stack)?;
    Ok(UserEntry {
        rip: bias + image.entry(),
        rsp: stack.rsp,
    })
}

/// What is added to every address of the file.
fn bias(image: &Image<'_>) -> usize {
    match image.load_address() {
        LoadAddress::Fixed => 0,
        LoadAddress::Anywhere => {
            let aligns = image.segments().map(|segment| segment.align);
            PIE_BASE.next_multiple_of(aligns.max().unwrap_or(PAGE_SIZE))
        }
    }
}

fn map_segment(space: &MemorySpace, bias: usize, segment: &Segment<'_>) -> Result<(), ExecError> {
    let outside = ExecError::BadSegment("outside user memory");
    let start = segment.start.checked_add(bias).ok_or(outside)?;
    let into_page = start % PAGE_SIZE;
    let mapped = space.map(MapRequest {
        addr: start - into_page,
        len: segment.bytes + into_page,
        prot: segment.prot,
        placement: Placement::FixedIfFree,
        populate: Populate::OnDemand,
        kind: AreaKind::Image,
    });
    match mapped {
        Ok(_) => {}
        Err(MapError::Forbidden) => {
            return Err(ExecError::BadSegment("below the lowest mappable address"));
        }
        Err(error) => return Err(error.into()),
    }
    space.write_initial(start, segment.data)?;
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
fn auxiliary_vector(image: &Image<'_>, bias: usize) -> [(u32, usize); 14] {
    // CPUID leaf 1, EDX (Intel SDM vol. 2A).
    let hwcap = __cpuid(1).edx as usize;
    let headers = match image.headers_address() {
        0 => 0,
        address => bias + address,
    };
    [
        (auxvec::AT_PHDR, headers),
        (auxvec::AT_PHENT, PROGRAM_HEADER_BYTES),
        (auxvec::AT_PHNUM, image.header_count()),
        (auxvec::AT_PAGESZ, PAGE_SIZE),
        (auxvec::AT_ENTRY, bias + image.entry()),
        (auxvec::AT_BASE, 0),
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
