//! [`Opaque`]: memory of C's that holds a value, and says whether it does.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::status::{
    Outcome, SHOOTDOWN_ALREADY, SHOOTDOWN_BUSY, SHOOTDOWN_INVALID, SHOOTDOWN_NOT_INITIALISED,
    SHOOTDOWN_NULL,
};

/// What a piece of memory of C's may hold.
///
/// # Safety
/// 1. Its storage is at least as large and as aligned as [`Opaque<Self>`] (asserted by [`Opaque::at`]).
pub(crate) unsafe trait Stored: Sized {
    /// As C knows the memory.
    type Storage;
    /// What the memory says when it holds the value; no two kinds have the same.
    const MARK: u64;
}

/// Memory that C has given. All bits are valid before it holds anything.
#[repr(C)]
pub(crate) struct Opaque<T> {
    mark: AtomicU64,
    value: UnsafeCell<MaybeUninit<T>>,
}

/// As C gives it.
const EMPTY: u64 = 0;
/// Somebody writes or takes the value.
const CHANGING: u64 = 1;

impl<T: Stored> Opaque<T> {
    /// The memory behind a pointer of C's.
    ///
    /// # Errors
    /// The pointer is null or not aligned.
    ///
    /// # Safety
    /// 1. If not null and aligned, it leads to a `T::Storage` that C has zeroed at first, only functions of this library write, and
    ///    that stays as long as the answer is used.
    pub(crate) unsafe fn at<'a>(storage: *const T::Storage) -> Outcome<&'a Self> {
        const {
            assert!(size_of::<Opaque<T>>() <= size_of::<T::Storage>());
            assert!(align_of::<Opaque<T>>() <= align_of::<T::Storage>());
        }
        let this = storage.cast::<Self>();
        check_pointer(this)?;
        // SAFETY: duty 1; the storage is large enough, and all bits are valid.
        Ok(unsafe { &*this })
    }

    /// The value.
    pub(crate) fn get(&self) -> Outcome<&T> {
        // ORDERING: acquires the value; pairs with `fill`.
        if self.mark.load(Ordering::Acquire) != T::MARK {
            return Err(SHOOTDOWN_NOT_INITIALISED);
        }
        // SAFETY: the pointer is that of our own cell; who takes the value has a duty of C's that nobody uses it.
        let value = unsafe { &*self.value.get() };
        // SAFETY: the mark says that it was written.
        Ok(unsafe { value.assume_init_ref() })
    }

    /// Puts in what `make` makes, unless it holds something.
    pub(crate) fn fill(&self, make: impl FnOnce() -> T) -> Outcome {
        self.try_fill(|| Ok(make()))
    }

    /// The same where it may be refused: then the memory stays empty.
    pub(crate) fn try_fill(&self, make: impl FnOnce() -> Outcome<T>) -> Outcome {
        self.change(EMPTY).map_err(|_| SHOOTDOWN_ALREADY)?;
        let made = make().inspect_err(|_| self.mark.store(EMPTY, Ordering::Release))?;
        let value = self.value.get();
        // SAFETY: nobody else looks while the mark says that it changes.
        unsafe { value.write(MaybeUninit::new(made)) };
        // ORDERING: publishes the value; pairs with `get` and `take`.
        self.mark.store(T::MARK, Ordering::Release);
        Ok(())
    }

    /// Takes the value out, and leaves the memory as it was at first.
    pub(crate) fn take(&self) -> Outcome<T> {
        self.change(T::MARK).map_err(|found| match found {
            CHANGING => SHOOTDOWN_BUSY,
            _ => SHOOTDOWN_NOT_INITIALISED,
        })?;
        // SAFETY: nobody else looks while the mark says that it changes, and the bits stay without meaning.
        let value = unsafe { self.value.get().read() };
        self.mark.store(EMPTY, Ordering::Release);
        // SAFETY: the mark said that it was written.
        Ok(unsafe { value.assume_init() })
    }

    /// Changes the value in its place.
    pub(crate) fn change_value<R>(&self, change: impl FnOnce(&mut T) -> R) -> Outcome<R> {
        self.change(T::MARK).map_err(|found| match found {
            CHANGING => SHOOTDOWN_BUSY,
            _ => SHOOTDOWN_NOT_INITIALISED,
        })?;
        // SAFETY: nobody else looks while the mark says that it changes.
        let value = unsafe { &mut *self.value.get() };
        // SAFETY: the mark said that it was written.
        let result = change(unsafe { value.assume_init_mut() });
        // ORDERING: as in `fill`.
        self.mark.store(T::MARK, Ordering::Release);
        Ok(result)
    }

    fn change(&self, from: u64) -> Result<u64, u64> {
        // ORDERING: acquires the value; pairs with `fill`, and with the end of `take`.
        self.mark
            .compare_exchange(from, CHANGING, Ordering::Acquire, Ordering::Relaxed)
    }
}

/// Whether a pointer of C's may lead to a `T`, as far as can be seen.
pub(crate) fn check_pointer<T>(pointer: *const T) -> Outcome {
    match pointer {
        _ if pointer.is_null() => Err(SHOOTDOWN_NULL),
        _ if !pointer.is_aligned() => Err(SHOOTDOWN_INVALID),
        _ => Ok(()),
    }
}
