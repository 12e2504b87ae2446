//! `/dev/zerocopy` of the reference kernel, as programs use it. Other kernels have no such device.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;

use super::abi::{CALL, CALL_WRITES, Call, DEVICE, REGISTER, Register, WAIT, Wait};
use crate::machine;

/// A service. Forked processes have it too.
#[derive(Debug)]
pub struct Service {
    device: File,
}

/// What the server may do with a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lending {
    /// Read it.
    Reading,
    /// Write to it, too.
    Writing,
}

impl Service {
    /// A new service; `None` on kernels without the device.
    pub fn open() -> io::Result<Option<Self>> {
        match OpenOptions::new().read(true).write(true).open(DEVICE) {
            Ok(device) => Ok(Some(Self { device })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The number of its descriptor.
    pub fn descriptor(&self) -> i32 {
        self.device.as_raw_fd()
    }

    /// Makes the calling thread the server of the one CPU that it is pinned to.
    pub fn register(&self, mode: u32, max_pages: u32) -> io::Result<Register> {
        let mut argument = Register {
            mode,
            max_pages,
            ..Register::default()
        };
        self.request(REGISTER, &mut argument)?;
        Ok(argument)
    }

    /// Answers `result` to the request served so far, if any, and waits for the next one.
    ///
    /// The buffer is at `address` up to the next wait; memory there is the clients', who may change it at any time.
    pub fn wait(&self, result: i64) -> io::Result<Wait> {
        let mut argument = Wait {
            result,
            ..Wait::default()
        };
        self.request(WAIT, &mut argument)?;
        Ok(argument)
    }

    /// Lends `length` bytes from `buffer` to the server of this CPU, for `op`; what it answered.
    ///
    /// # Safety
    /// 1. With [`Lending::Writing`], the server may write to these bytes: no reference says otherwise. The kernel refuses
    ///    addresses that are not the caller's.
    pub unsafe fn call(
        &self,
        buffer: *mut u8,
        length: usize,
        op: u64,
        lending: Lending,
    ) -> io::Result<i64> {
        let flags = match lending {
            Lending::Reading => 0,
            Lending::Writing => CALL_WRITES,
        };
        let mut argument = Call {
            buffer: buffer.addr() as u64,
            length: length as u64,
            op,
            flags,
            ..Call::default()
        };
        self.request(CALL, &mut argument)?;
        Ok(argument.result)
    }

    fn request<T>(&self, request: u32, argument: &mut T) -> io::Result<()> {
        let pointer: *mut T = argument;
        // SAFETY: the request's structure is the pointer's, and what it lends the caller of `call` answers for.
        machine::done(unsafe {
            libc::ioctl(self.device.as_raw_fd(), request as libc::Ioctl, pointer)
        })
    }
}
