//! What programs and the kernel agree on about `/dev/zerocopy`. Both compile this file.

/// Where services are opened. Each `open` makes one; descriptors copied or inherited from it are the same service.
pub const DEVICE: &str = "/dev/zerocopy";

/// Most pages of [`Register::max_pages`]: buffers of 1 MiB.
pub const MOST_PAGES: u32 = 256;

/// [`Register::mode`]: the buffer is mapped into a window that only the server's CPU can reach.
pub const MODE_WINDOW: u32 = 0;
/// [`Register::mode`]: the buffer is mapped where all threads of the server's process can reach it.
pub const MODE_ORDINARY: u32 = 1;

/// In [`Call::flags`]: the server may write to the buffer.
pub const CALL_WRITES: u32 = 1;

/// The calling thread becomes the server of its CPU. The argument is a [`Register`].
pub const REGISTER: u32 = request(1, size_of::<Register>());
/// The server has done what it was asked for, and waits for more. The argument is a [`Wait`].
pub const WAIT: u32 = request(2, size_of::<Wait>());
/// A client asks the server of its CPU. The argument is a [`Call`].
pub const CALL: u32 = request(3, size_of::<Call>());

/// As Linux's `_IOWR('Z', number, bytes)`.
const fn request(number: u32, bytes: usize) -> u32 {
    const READ_WRITE: u32 = 3;
    READ_WRITE << 30 | (bytes as u32) << 16 | (b'Z' as u32) << 8 | number
}

/// Argument of [`REGISTER`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Register {
    /// [`MODE_WINDOW`] or [`MODE_ORDINARY`].
    pub mode: u32,
    /// Longest buffer in pages, 1 to [`MOST_PAGES`]; one that begins inside a page may touch one page more.
    pub max_pages: u32,
    /// Out: the CPU whose server the thread is now.
    pub cpu: u32,
    /// Zero.
    pub reserved: u32,
    /// Out: where the first page of each buffer is mapped.
    pub window: u64,
}

/// Argument of [`WAIT`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wait {
    /// In: what the client of the request served so far gets; ignored when there was none.
    pub result: i64,
    /// Out: where the buffer is.
    pub address: u64,
    /// Out: its bytes.
    pub length: u64,
    /// Out: the client's [`Call::op`].
    pub op: u64,
    /// Out: the thread number of the client.
    pub client: u32,
    /// Zero.
    pub reserved: u32,
}

/// Argument of [`CALL`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// The first byte that is lent.
    pub buffer: u64,
    /// How many are.
    pub length: u64,
    /// Whatever client and server agree on.
    pub op: u64,
    /// [`CALL_WRITES`] or nothing.
    pub flags: u32,
    /// Zero.
    pub reserved: u32,
    /// Out: what the server answered.
    pub result: i64,
}
