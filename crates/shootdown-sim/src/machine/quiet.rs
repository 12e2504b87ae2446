//! Panics inside a run are its result, not noise on standard error.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{self, PanicHookInfo};
use std::sync::Once;

use crate::machine::current::try_context;

thread_local! {
    static MESSAGE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// From now on a panic on a virtual CPU is kept for [`take_message`]; others print as before.
pub(crate) fn panics_are_reported_by_runs() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| match try_context() {
            Some(_) => MESSAGE.set(message_of(info)),
            None => before(info),
        }));
    });
}

/// What a panic said; with its place, if it was the last on this thread. (What it drops may have others run, which panic and are caught.)
pub(crate) fn take_message(panic: &(dyn Any + Send)) -> String {
    let last = MESSAGE.take();
    let text = panic.downcast_ref::<String>().map(String::as_str);
    match text.or_else(|| panic.downcast_ref::<&str>().copied()) {
        Some(text) if !last.starts_with(text) => text.to_owned(),
        _ => last,
    }
}

fn message_of(info: &PanicHookInfo<'_>) -> String {
    let what = info.payload_as_str().unwrap_or("panicked");
    match info.location() {
        Some(place) => format!("{what} ({}:{})", file_name(place.file()), place.line()),
        None => what.to_owned(),
    }
}

/// Without its directories, which differ from host to host.
fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
