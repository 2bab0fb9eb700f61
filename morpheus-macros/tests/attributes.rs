//! Tests the attributes as the compiler applies them, on a builder that only records the calls. The examples in the docs
//! show that they start a true runtime.

use std::fmt;

/// Replaces `morpheus_runtime`, with the functions that the expansion calls.
mod fake {
    use std::cell::RefCell;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    thread_local! {
        /// The calls to builders on this thread, oldest first. libtest runs each test on a thread of its own.
        pub static CALLS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    }

    pub struct Builder(());

    pub struct Runtime(());

    impl Builder {
        pub fn new_multi_thread() -> Builder {
            let mut builder = Builder(());
            builder.note("multi_thread".to_owned());
            builder
        }

        pub fn new_current_thread() -> Builder {
            let mut builder = Builder(());
            builder.note("current_thread".to_owned());
            builder
        }

        fn note(&mut self, call: String) -> &mut Self {
            CALLS.with_borrow_mut(|calls| calls.push(call));
            self
        }

        pub fn worker_threads(&mut self, count: usize) -> &mut Self {
            self.note(format!("worker_threads {count}"))
        }

        pub fn start_paused(&mut self, paused: bool) -> &mut Self {
            self.note(format!("start_paused {paused}"))
        }

        pub fn name(&mut self, name: &str) -> &mut Self {
            self.note(format!("name {name}"))
        }

        pub fn max_spares(&mut self, count: usize) -> &mut Self {
            self.note(format!("max_spares {count}"))
        }

        pub fn reserve(&mut self, count: usize) -> &mut Self {
            self.note(format!("reserve {count}"))
        }

        pub fn budget(&mut self, time: Duration) -> &mut Self {
            self.note(format!("budget {time:?}"))
        }

        pub fn grace(&mut self, time: Duration) -> &mut Self {
            self.note(format!("grace {time:?}"))
        }

        pub fn build(&mut self) -> Result<Runtime, super::NoThreads> {
            let refuse =
                CALLS.with_borrow(|calls| calls.iter().any(|call| call == "worker_threads 666"));
            if refuse {
                Err(super::NoThreads)
            } else {
                Ok(Runtime(()))
            }
        }
    }

    impl Runtime {
        pub fn block_on<F: Future>(&self, future: F) -> F::Output {
            let mut future = pin!(future);
            let mut context = Context::from_waker(Waker::noop());
            loop {
                if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                    return output;
                }
            }
        }
    }
}

pub struct NoThreads;

impl fmt::Display for NoThreads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no threads left")
    }
}

fn calls() -> Vec<String> {
    fake::CALLS.take()
}

#[morpheus_macros::main(crate = "crate::fake")]
async fn plain() {
    std::future::ready(()).await;
}

#[morpheus_macros::main(
    crate = "fake",
    worker_threads = 2,
    max_spares = 8,
    reserve = 1,
    budget_us = 500,
    grace_us = 2_000
)]
async fn with_options() -> Result<u32, std::num::ParseIntError> {
    let parsed: u32 = "41".parse()?;
    Ok(parsed + std::future::ready(1).await)
}

/// The values come from another macro, as in tests that are written once for each flavor.
macro_rules! of_a_macro {
    ($name:ident, $flavor:literal, $workers:literal) => {
        #[morpheus_macros::main(crate = "fake", flavor = $flavor, worker_threads = $workers)]
        async fn $name() {}
    };
}
of_a_macro!(from_a_macro, "multi_thread", 3);

#[morpheus_macros::main(crate = "fake", worker_threads = 666)]
async fn cannot_start() {}

#[morpheus_macros::main(crate = "fake")]
async fn opaque() -> impl Iterator<Item = u8> {
    [1, 2].into_iter()
}

#[morpheus_macros::main(crate = "fake")]
async fn never() -> ! {
    panic!("left by a panic")
}

#[morpheus_macros::main(crate = "fake")]
async fn with_inner_attributes() {
    #![allow(unused_variables)]
    let unused = 1;
}

#[morpheus_macros::main(crate = "fake", flavor = "current_thread")]
async fn sum<'a, T>(
    numbers: &'a [T],
    (more, mut last): (u32, Vec<u32>),
    name: &str,
) -> Result<&'a T, String>
where
    T: Copy + Into<u32>,
{
    #![allow(unused_variables)]
    let unused = 1;
    last.extend(numbers.iter().copied().map(Into::into));
    let sum = more + last.iter().sum::<u32>() + std::future::ready(1).await;
    if sum > 100 {
        return Err(format!("{name}: {sum}"));
    }
    numbers.first().ok_or(name.to_owned())
}

struct Counter(u32);

impl Counter {
    #[morpheus_macros::main(crate = "fake")]
    async fn starting_at(count: u32) -> Self {
        Self(count)
    }

    #[morpheus_macros::main(crate = "fake")]
    async fn new() -> Counter {
        Self(std::future::ready(5).await)
    }

    #[morpheus_macros::main(crate = "fake")]
    async fn count(&mut self) -> u32 {
        self.0 += std::future::ready(1).await;
        self.0
    }

    #[morpheus_macros::main(crate = "fake")]
    async unsafe fn never(self) -> ! {
        panic!("left at {}", self.0)
    }
}

struct Generic<T>(T);

impl<T: Default + Into<u64>> Generic<T> {
    #[morpheus_macros::main(crate = "fake")]
    async fn value() -> u64 {
        Self(T::default()).0.into()
    }

    #[morpheus_macros::main(crate = "fake")]
    async fn sum() -> u64 {
        T::default().into() + std::future::ready(1).await
    }
}

/// Its own name is the function's that is not `async`.
#[morpheus_macros::main(crate = "fake")]
async fn starts_itself(depth: u32) -> u32 {
    let function: fn(u32) -> u32 = starts_itself;
    match depth {
        0 => 0,
        _ => 1 + function(depth - 1),
    }
}

#[morpheus_macros::main(crate = "fake")]
async fn names_itself() -> bool {
    let function: fn() -> bool = names_itself;
    function as usize != 0
}

/// Names of the user's that the expansion must not pick up.
mod shadows {
    #![allow(non_upper_case_globals, dead_code)]
    use super::fake;

    enum Result {}
    struct Ok;
    struct Err;
    const body: () = ();
    const runtime: () = ();

    #[morpheus_macros::main(crate = "fake")]
    pub async fn shadowed() -> u8 {
        let _ = (Ok, Err, body, runtime);
        7
    }
}

#[test]
fn functions_of_a_generic_type_and_those_that_name_themselves() {
    assert_eq!((Generic::<u8>::value(), Generic::<u32>::sum()), (0, 1));
    assert_eq!(starts_itself(2), 2);
    assert!(names_itself());
}

#[test]
fn main_builds_with_the_defaults() {
    plain();
    assert_eq!(calls(), ["multi_thread"]);
}

#[test]
fn main_passes_the_options_on_and_returns_the_value() {
    assert_eq!(with_options().unwrap(), 42);
    assert_eq!(
        calls(),
        [
            "multi_thread",
            "worker_threads 2",
            "max_spares 8",
            "reserve 1",
            "budget 500µs",
            "grace 2ms"
        ]
    );
}

#[test]
fn values_may_come_from_another_macro() {
    from_a_macro();
    assert_eq!(calls(), ["multi_thread", "worker_threads 3"]);
}

#[test]
#[should_panic(expected = "morpheus: the runtime could not be started: no threads left")]
fn a_build_error_is_shown() {
    cannot_start();
}

#[test]
fn unusual_return_types() {
    assert_eq!(opaque().sum::<u8>(), 3);
    assert_eq!(shadows::shadowed(), 7);
    with_inner_attributes();
}

#[test]
fn functions_with_arguments() {
    assert_eq!(sum(&[7_u8, 8], (1, vec![2]), "few"), Ok(&7));
    assert_eq!(
        sum(&[70_u16, 80], (1, vec![2]), "many"),
        Err("many: 154".into())
    );
    assert_eq!(sum::<u32>(&[], (1, vec![]), "none"), Err("none".into()));
    assert_eq!(calls(), ["current_thread"; 3]);
    let mut counter = Counter::starting_at(Counter::new().count());
    assert_eq!((counter.count(), counter.count()), (7, 8));
    let caught = std::panic::catch_unwind(move || {
        // SAFETY: it says so for no reason.
        unsafe { counter.never() }
    });
    let text = caught.unwrap_err().downcast::<String>().unwrap();
    assert_eq!(*text, "left at 8");
}

#[test]
#[should_panic(expected = "left by a panic")]
fn a_function_that_never_returns() {
    never();
}

#[morpheus_macros::test(crate = "crate::fake")]
async fn a_test_runs_on_one_thread() {
    assert_eq!(calls(), ["current_thread"]);
}

#[morpheus_macros::test(crate = "crate::fake", start_paused = true, name = "paused")]
async fn a_test_may_begin_with_a_paused_clock() {
    assert_eq!(
        calls(),
        ["current_thread", "start_paused true", "name paused"]
    );
}

#[morpheus_macros::test(crate = "crate::fake", flavor = "multi_thread", worker_threads = 2)]
async fn a_test_may_return_a_result() -> Result<(), String> {
    assert_eq!(
        calls(),
        ["multi_thread", "worker_threads 2", "max_spares 4"]
    );
    Ok(())
}

#[morpheus_macros::test(crate = "crate::fake")]
#[should_panic(expected = "on purpose")]
async fn a_test_may_panic() {
    panic!("on purpose");
}
