//! Memory calls.

use linux_raw_sys::general as linux;

use super::args::Args;
use super::dispatch::Outcome;
use crate::addr::{PAGE_BYTES, USER_END};
use crate::arch::uaccess;
use crate::errno::Errno;
use crate::fs::Mappable;
use crate::mm::{
    self, Advice, AreaKind, Destination, MapRequest, MemorySpace, Placement, Populate, Prot,
    SharedArea,
};
use crate::task::Current;
use alloc::sync::Arc;

fn space() -> Result<Arc<MemorySpace>, Errno> {
    mm::current().ok_or(Errno::ENOMEM)
}

fn prot_argument(bits: usize) -> Result<Prot, Errno> {
    Prot::from_linux(bits).ok_or(Errno::EINVAL)
}

pub(super) fn mmap(me: &Current, a: &Args) -> Outcome {
    let prot = prot_argument(a.usize(2))?;
    let flags = a.u32(3);
    let populate = if flags & linux::MAP_POPULATE != 0 {
        Populate::Now
    } else {
        Populate::OnDemand
    };
    let request = MapRequest {
        addr: a.usize(0),
        len: a.usize(1),
        prot,
        placement: placement(flags),
        populate,
        kind: AreaKind::Anonymous,
    };
    let shared = match flags & linux::MAP_TYPE {
        linux::MAP_PRIVATE => false,
        linux::MAP_SHARED | linux::MAP_SHARED_VALIDATE => true,
        _ => return Err(Errno::EINVAL),
    };
    if flags & linux::MAP_ANONYMOUS != 0 {
        return map_zeroes(request, shared);
    }
    let offset = a.u64(5);
    if !offset.is_multiple_of(PAGE_BYTES as u64) {
        return Err(Errno::EINVAL);
    }
    let file = me.process().files.lock().get(a.i32(4))?;
    match file.mappable()? {
        Mappable::Zeroes => map_zeroes(request, shared),
        // Writes to a file through memory are not supported.
        Mappable::Bytes(_) if shared && prot.write() => Err(Errno::EACCES),
        Mappable::Bytes(bytes) => map_bytes(request, bytes, offset),
    }
}

/// Memory of its own contents.
fn map_zeroes(request: MapRequest, shared: bool) -> Outcome {
    let kind = if shared {
        AreaKind::Shared(SharedArea::new().ok_or(Errno::ENOMEM)?)
    } else {
        AreaKind::Anonymous
    };
    Ok(space()?.map(MapRequest { kind, ..request })?)
}

fn placement(flags: u32) -> Placement {
    if flags & linux::MAP_FIXED_NOREPLACE != 0 {
        Placement::FixedIfFree
    } else if flags & linux::MAP_FIXED != 0 {
        Placement::Fixed
    } else {
        Placement::Anywhere
    }
}

/// A private mapping of a file that never changes: a copy, made at once.
fn map_bytes(request: MapRequest, bytes: &[u8], offset: u64) -> Outcome {
    let space = space()?;
    let at = space.map(MapRequest {
        prot: Prot::READ_WRITE,
        kind: AreaKind::File,
        ..request.clone()
    })?;
    let start = usize::try_from(offset)
        .unwrap_or(usize::MAX)
        .min(bytes.len());
    let bytes = &bytes[start..];
    let copied = uaccess::copy_to_user(at, &bytes[..bytes.len().min(request.len)]);
    let done = copied
        .map_err(Errno::from)
        .and_then(|()| Ok(space.protect(at, request.len, request.prot)?));
    if let Err(errno) = done {
        // Another thread may have changed the mapping meanwhile; then so be it.
        let _gone = space.unmap(at, request.len);
        return Err(errno);
    }
    Ok(at)
}

pub(super) fn munmap(a: &Args) -> Outcome {
    space()?.unmap(a.usize(0), a.usize(1))?;
    Ok(0)
}

pub(super) fn mprotect(a: &Args) -> Outcome {
    let prot = prot_argument(a.usize(2))?;
    let (addr, len) = (a.usize(0), a.usize(1));
    if len == 0 && addr.is_multiple_of(PAGE_BYTES) {
        return Ok(0);
    }
    space()?.protect(addr, len, prot)?;
    Ok(0)
}

pub(super) fn mremap(a: &Args) -> Outcome {
    let destination = match a.u32(3) {
        0 => Destination::Stay,
        linux::MREMAP_MAYMOVE => Destination::MayMove,
        flags if flags == linux::MREMAP_MAYMOVE | linux::MREMAP_FIXED => {
            Destination::Fixed(a.usize(4))
        }
        _ => return Err(Errno::EINVAL),
    };
    Ok(space()?.remap(a.usize(0), a.usize(1), a.usize(2), destination)?)
}

pub(super) fn madvise(a: &Args) -> Outcome {
    let advice = Advice::from_linux(a.usize(2)).ok_or(Errno::EINVAL)?;
    let (addr, len) = (a.usize(0), a.usize(1));
    if len == 0 && addr.is_multiple_of(PAGE_BYTES) {
        return Ok(0);
    }
    space()?.advise(addr, len, advice)?;
    Ok(0)
}

pub(super) fn brk(a: &Args) -> Outcome {
    Ok(space()?.brk(a.usize(0).min(USER_END)))
}
