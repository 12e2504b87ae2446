//! Descriptors of virtual machines and their CPUs.

use alloc::sync::Arc;

use linux_raw_sys::general as linux;

use super::file::OpenFile;
use super::node::Node;
use crate::errno::Errno;
use crate::vm;

/// An open file that stands for it.
///
/// # Errors
/// ENFILE when too many files are open.
pub fn new_vm_file(object: vm::Object) -> Result<Arc<OpenFile>, Errno> {
    OpenFile::new(Node::Kvm(object), linux::O_RDWR)
}
