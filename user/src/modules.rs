//! Modules of Linux that the lab has packed beside the program.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// Where the lab puts them.
const DIRECTORY: &str = "/boot";
/// `MODULE_INIT_COMPRESSED_FILE`.
const COMPRESSED: i32 = 4;

/// The packed module of that name, if there is one.
pub fn packed(name: &str) -> Option<PathBuf> {
    let path = Path::new(DIRECTORY).join(format!("{name}.ko.xz"));
    path.exists().then_some(path)
}

/// Loads a module, which the kernel unpacks itself.
pub fn load(path: &Path, parameters: &CStr) -> io::Result<()> {
    let module = File::open(path)?;
    let number = libc::c_long::from(module.as_raw_fd());
    // SAFETY: the parameters end with NUL; the call reads the file and touches no memory of ours.
    let status = unsafe {
        libc::syscall(
            libc::SYS_finit_module,
            number,
            parameters.as_ptr(),
            COMPRESSED,
        )
    };
    match status {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
