//! From the number of a request to its function.

use alloc::sync::Arc;

use super::abi::{self, Call, Register, Wait};
use super::service::Service;
use super::{call, register, wait};
use crate::arch::uaccess::Pod;
use crate::errno::Errno;
use crate::task::Current;
use crate::user_memory::UserPtr;

// SAFETY: `repr(C)` structures of integers without padding; any bytes are values of them.
unsafe impl Pod for Register {}
// SAFETY: as above.
unsafe impl Pod for Wait {}
// SAFETY: as above.
unsafe impl Pod for Call {}

/// An `ioctl` of a service. `argument` points to the structure of the request, which is read and written.
///
/// # Errors
/// ENOTTY for unknown requests; EFAULT; as the functions of each.
pub fn request(
    service: &Arc<Service>,
    me: &Current,
    number: u32,
    argument: usize,
) -> Result<(), Errno> {
    match number {
        abi::REGISTER => through(argument, |wanted| register::register(service, me, wanted)),
        abi::WAIT => through(argument, |given| wait::wait(service, me, &given)),
        abi::CALL => through(argument, |wanted: Call| {
            let result = call::call(service, me, &wanted)?;
            Ok(Call { result, ..wanted })
        }),
        _ => Err(Errno::ENOTTY),
    }
}

fn through<T: Pod>(address: usize, work: impl FnOnce(T) -> Result<T, Errno>) -> Result<(), Errno> {
    let pointer = UserPtr::new(address);
    pointer.write(work(pointer.read()?)?)
}
