//! Code of users that panics: what is called here comes back with the panic's message instead.
//!
//! Whatever a user can write is called through this, so that its panic costs what it was called for and nothing else.

use std::{
    any::Any,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
};

use futures_util::FutureExt;

/// Calls it; a panic is an error with its message. What it has touched may be half done: it is its own.
pub fn caught<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|panic| message(&*panic))
}

/// The same for what answers later. The call that makes the future may panic, too: it is made within.
pub async fn caught_later<T, F>(call: impl FnOnce() -> F) -> Result<T, String>
where
    F: Future<Output = T>,
{
    let whole = AssertUnwindSafe(async { call().await }).catch_unwind();
    whole.await.map_err(|panic| message(&*panic))
}

/// Drops a value of a user's type. A panic of its drop is told, and over.
pub fn bury<T>(what: T) {
    if let Err(panic) = caught(move || drop(what)) {
        tracing::warn!(panic, "a value panicked when it was dropped");
    }
}

/// What a panic says.
pub fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without a message").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_comes_back_with_its_message() {
        assert_eq!(caught(|| 7), Ok(7));
        assert_eq!(
            caught(|| -> u8 { panic!("so {}", "it goes") }),
            Err("so it goes".to_owned())
        );
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("tick");
            }
        }
        bury(Bomb);
    }

    #[tokio::test]
    async fn a_call_that_panics_before_it_waits_is_caught_too() {
        fn at_once() -> std::future::Ready<u8> {
            panic!("at once")
        }
        assert_eq!(caught_later(at_once).await, Err("at once".to_owned()));
        assert_eq!(caught_later(|| async { 7 }).await, Ok(7));
    }
}
