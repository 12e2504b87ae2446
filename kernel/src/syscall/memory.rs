//! Memory calls.

use linux_raw_sys::general as linux;

use super::args::Args;
use super::outcome::{Outcome, all_known, done};
use super::resident;
use crate::addr::{PAGE_BYTES, USER_END};
use crate::arch::top::region_of;
use crate::errno::Errno;
use crate::fs::Mappable;
use crate::mm::{
    Advice, AreaKind, Barrier, Destination, FileArea, MapRequest, MemorySpace, Placement, Populate,
    Prot, SharedArea, SyncWhen,
};
use crate::task::{self, Current};
use alloc::sync::Arc;

/// The flags that Linux knows in a mapping with `MAP_SHARED_VALIDATE`. (`MAP_FIXED_NOREPLACE` is not one of them.)
const KNOWN_FLAGS: u32 = linux::MAP_TYPE
    | linux::MAP_FIXED
    | linux::MAP_32BIT
    | linux::MAP_ABOVE4G
    | linux::MAP_GROWSDOWN
    | linux::MAP_DENYWRITE
    | linux::MAP_EXECUTABLE
    | linux::MAP_LOCKED
    | linux::MAP_NORESERVE
    | linux::MAP_POPULATE
    | linux::MAP_NONBLOCK
    | linux::MAP_STACK
    | linux::MAP_HUGETLB
    | linux::MAP_UNINITIALIZED
    | linux::MAP_HUGE_2MB
    | linux::MAP_HUGE_1GB;

fn space() -> Result<Arc<MemorySpace>, Errno> {
    task::current_space().ok_or(Errno::ENOMEM)
}

fn prot_argument(bits: usize) -> Result<Prot, Errno> {
    Prot::from_linux(bits).ok_or(Errno::EINVAL)
}

/// Private and expedited, for memory and for cores; the others are EINVAL, and not in the answer to the query.
pub(super) fn membarrier(a: &Args) -> Outcome {
    use linux::membarrier_cmd::{
        MEMBARRIER_CMD_PRIVATE_EXPEDITED as MEMORY,
        MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE as CORE,
        MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED as REGISTER_MEMORY,
        MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE as REGISTER_CORE,
    };
    let (command, flags, space) = (a.u32(0), a.u32(1), space()?);
    let known = [MEMORY, REGISTER_MEMORY, CORE, REGISTER_CORE].map(|command| command as u32);
    if flags != 0 {
        return Err(Errno::EINVAL);
    }
    if command == 0 {
        return Ok(known.iter().sum::<u32>() as usize);
    }
    let number = known.iter().position(|it| *it == command);
    let barrier = match number.ok_or(Errno::EINVAL)? {
        0 | 1 => Barrier::Memory,
        _ => Barrier::Core,
    };
    if command == REGISTER_MEMORY as u32 || command == REGISTER_CORE as u32 {
        space.register(barrier);
        return Ok(0);
    }
    match space.barrier(barrier) {
        true => Ok(0),
        false => Err(Errno::EPERM),
    }
}

pub(super) fn mmap(me: &Current, a: &Args) -> Outcome {
    let prot = prot_argument(a.usize(2))?;
    let flags = a.u32(3);
    let populate = match flags & linux::MAP_POPULATE {
        0 => Populate::OnDemand,
        _ => Populate::Now,
    };
    let is_reserved = flags & linux::MAP_ANONYMOUS != 0 && prot == Prot::NONE;
    let request = MapRequest {
        addr: a.usize(0),
        len: a.usize(1),
        prot,
        placement: placement(me, flags, is_reserved, a.usize(1))?,
        populate,
        kind: AreaKind::Anonymous,
    };
    let shared = match flags & linux::MAP_TYPE {
        linux::MAP_PRIVATE => false,
        linux::MAP_SHARED | linux::MAP_SHARED_VALIDATE => true,
        _ => return Err(Errno::EINVAL),
    };
    if flags & linux::MAP_ANONYMOUS != 0 {
        // As on Linux: only of a file.
        if flags & linux::MAP_TYPE == linux::MAP_SHARED_VALIDATE {
            return Err(Errno::EINVAL);
        }
        return map_zeroes(request, shared);
    }
    let offset = a.u64(5);
    if !offset.is_multiple_of(PAGE_BYTES as u64) {
        return Err(Errno::EINVAL);
    }
    let file = me.process().files.lock().get(a.i32(4))?;
    if flags & linux::MAP_TYPE == linux::MAP_SHARED_VALIDATE && flags & !KNOWN_FLAGS != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let mappable = file.mappable()?;
    file.may_read().map_err(|_| Errno::EACCES)?;
    match mappable {
        Mappable::Zeroes if shared && prot.write() && file.is_read_only() => Err(Errno::EACCES),
        Mappable::Zeroes => map_zeroes(request, shared),
        Mappable::Shared(area) => map_shared(request, area, shared && offset == 0),
        Mappable::Pages(pages) => {
            let may_write = !file.is_read_only();
            if shared && prot.write() && !may_write {
                return Err(Errno::EACCES);
            }
            let kind = match shared {
                true => AreaKind::SharedFile,
                false => AreaKind::PrivateFile,
            };
            map_pages(request, offset, |offset| {
                kind(FileArea::new(pages, offset, may_write))
            })
        }
    }
}

/// Memory of its own contents.
fn map_zeroes(request: MapRequest, shared: bool) -> Outcome {
    let kind = match shared {
        true => AreaKind::Shared(SharedArea::new().ok_or(Errno::ENOMEM)?),
        false => AreaKind::Anonymous,
    };
    map(MapRequest { kind, ..request })
}

/// A page that the kernel has, too.
fn map_shared(request: MapRequest, area: SharedArea, is_whole: bool) -> Outcome {
    if !is_whole || request.len > PAGE_BYTES {
        return Err(Errno::EINVAL);
    }
    let kind = AreaKind::Shared(area);
    map(MapRequest { kind, ..request })
}

fn map(request: MapRequest) -> Outcome {
    let (space, placement) = (space()?, request.placement);
    let start = space.map(request)?;
    if placement == Placement::Home(None) {
        task::current().set_home(region_of(start));
    }
    Ok(start)
}

/// Below that a stack is one for signals, of the thread that maps it.
const LEAST_STACK: usize = 64 << 10;

/// A thread that shares its space has its mappings in a region of its own, but for a stack: that is another's. musl reserves one without rights (`is_reserved`) and gives
/// them afterwards, to all but its end.
fn placement(me: &Current, flags: u32, is_reserved: bool, len: usize) -> Result<Placement, Errno> {
    Ok(if flags & linux::MAP_FIXED_NOREPLACE != 0 {
        Placement::FixedIfFree
    } else if flags & linux::MAP_FIXED != 0 {
        Placement::Fixed
    } else if (flags & linux::MAP_STACK != 0 || is_reserved) && len >= LEAST_STACK {
        Placement::Fresh
    } else if space()?.is_tracked() {
        Placement::Home(me.home())
    } else {
        Placement::Anywhere
    })
}

/// The pages of a file themselves.
fn map_pages(request: MapRequest, offset: u64, kind: impl FnOnce(usize) -> AreaKind) -> Outcome {
    // Beyond it nothing can be, and no sum overflows.
    if offset >= USER_END as u64 {
        return Err(Errno::EOVERFLOW);
    }
    let kind = kind(offset as usize);
    map(MapRequest { kind, ..request })
}

pub(super) fn munmap(a: &Args) -> Outcome {
    done(space()?.unmap(a.usize(0), a.usize(1)))
}

pub(super) fn mprotect(a: &Args) -> Outcome {
    let prot = prot_argument(a.usize(2))?;
    let (addr, len) = (a.usize(0), a.usize(1));
    if len == 0 && addr.is_multiple_of(PAGE_BYTES) {
        return Ok(0);
    }
    done(space()?.protect(addr, len, prot))
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

/// `MADV_POPULATE_READ` and `MADV_POPULATE_WRITE`: the pages are there then, as if they had been read or written.
fn populate(me: &Current, a: &Args) -> Outcome {
    let space = space()?;
    if !a.usize(0).is_multiple_of(PAGE_BYTES) {
        return Err(Errno::EINVAL);
    }
    if a.usize(1) == 0 {
        return Ok(0);
    }
    let range = space.mapped(a.usize(0), a.usize(1))?;
    let write = a.u32(2) == linux::MADV_POPULATE_WRITE;
    resident::bring_in(me, &space, range, write)
        .map(|()| 0)
        .map_err(|error| match error {
            error if error.is_access_violation() => Errno::EINVAL,
            error if error.is_bus_error() => Errno::EFAULT,
            _ => Errno::ENOMEM,
        })
}

pub(super) fn madvise(me: &Current, a: &Args) -> Outcome {
    if matches!(
        a.u32(2),
        linux::MADV_POPULATE_READ | linux::MADV_POPULATE_WRITE
    ) {
        return populate(me, a);
    }
    let advice = Advice::from_linux(a.usize(2)).ok_or(Errno::EINVAL)?;
    let (addr, len) = (a.usize(0), a.usize(1));
    if len == 0 && addr.is_multiple_of(PAGE_BYTES) {
        return Ok(0);
    }
    let advised = task::with_current_space(|space| space.advise(addr, len, advice));
    done(advised.ok_or(Errno::ENOMEM)?)
}

pub(super) fn msync(a: &Args) -> Outcome {
    let flags = a.u32(2);
    all_known(
        flags,
        linux::MS_ASYNC | linux::MS_SYNC | linux::MS_INVALIDATE,
    )?;
    // Mappings and files have the same pages: nothing is ever to be invalidated.
    let when = match flags & (linux::MS_ASYNC | linux::MS_SYNC) {
        linux::MS_SYNC => SyncWhen::Now,
        both if both == linux::MS_ASYNC | linux::MS_SYNC => return Err(Errno::EINVAL),
        _ => SyncWhen::Later,
    };
    done(space()?.sync(a.usize(0), a.usize(1), when))
}

pub(super) fn brk(a: &Args) -> Outcome {
    Ok(space()?.brk(a.usize(0).min(USER_END)))
}
