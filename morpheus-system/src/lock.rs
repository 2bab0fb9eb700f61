//! A lock of a mutex whose owner may have panicked.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, also after a panic of a thread that had it.
///
/// Only for data that every thread leaves consistent, also when it panics: no code of the application runs under
/// such a lock.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mutex_is_locked_after_a_panic_under_it() {
        let mutex = Mutex::new(1);
        let panic = std::panic::catch_unwind(|| {
            let _guard = mutex.lock().unwrap();
            panic!("on purpose");
        });
        assert!(panic.is_err() && mutex.is_poisoned());
        assert_eq!(*lock(&mutex), 1);
    }
}
