//! Requests of virtual machines.

use super::outcome::Outcome;
use crate::errno::Errno;
use crate::fs::{self, CloseOnExec};
use crate::task::{self, Current};
use crate::vm::{Answer, Caller, Object};

/// An `ioctl` of `/dev/kvm` or of what it has made.
pub(super) fn request(me: &Current, object: &Object, number: u32, argument: usize) -> Outcome {
    let caller = Caller {
        space: task::current_space().ok_or(Errno::ENOMEM)?,
        is_interrupted: &|| me.is_interrupted(),
    };
    match object.request(&caller, number, argument)? {
        Answer::Number(number) => Ok(number),
        Answer::New(object) => add(me, object.clone()).inspect_err(|_| object.take_back()),
    }
}

/// Opens it; its descriptor.
fn add(me: &Current, object: Object) -> Outcome {
    let file = fs::new_vm_file(object)?;
    // Kept meanwhile: where there is no number left, the last one is not dropped under the lock.
    let added = me
        .process()
        .files
        .lock()
        .insert(file.clone(), CloseOnExec::Yes, 0);
    drop(file);
    added
}
