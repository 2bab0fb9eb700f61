//! Tests that bad input gets an error that says what to do about it, and leaves no thread.

mod common;

use std::io::{self, ErrorKind};
use std::time::Duration;

use common::{MS, PATIENCE, alone, settled_threads, threads, wait_for};
use morpheus_runtime::{BuildError, Builder, Link, Mechanism};

/// Returns the error of a builder that must fail, and checks that the attempt leaves no thread.
#[track_caller]
fn refused(set: impl FnOnce(&mut Builder)) -> BuildError {
    let before = settled_threads();
    let mut builder = Builder::new_multi_thread();
    set(&mut builder);
    let error = match builder.try_build() {
        Ok(runtime) => panic!("was built: {runtime:?}"),
        Err(error) => error,
    };
    assert!(
        wait_for(PATIENCE, || threads() <= before),
        "threads are left"
    );
    error
}

#[track_caller]
fn says(error: &BuildError, words: &[&str]) {
    let text = error.to_string();
    for word in words {
        assert!(text.contains(word), "{word:?} is not in {text:?}");
    }
}

#[test]
fn zero_workers() {
    let _alone = alone();
    let error = refused(|builder| {
        builder.worker_threads(0);
    });
    assert!(matches!(error, BuildError::NoWorkers));
    says(&error, &["worker_threads", "at least 1"]);
}

/// In a process of its own, whose variables no other test reads.
#[test]
fn the_environment_says_how_many_workers() {
    const NAME: &str = "the_environment_says_how_many_workers";
    if !common::is_child() {
        for value in ["3", "0", "many"] {
            common::in_child(NAME, &[("TOKIO_WORKER_THREADS", value)]);
        }
        return;
    }
    let value = std::env::var("TOKIO_WORKER_THREADS").unwrap();
    let asked = Builder::new_multi_thread().worker_threads(2).build();
    assert_eq!(asked.unwrap().metrics().workers, 2, "the program first");
    if value == "3" {
        let runtime = Builder::new_multi_thread().build().unwrap();
        assert_eq!(runtime.metrics().workers, 3);
        return;
    }
    let error = refused(|_| {});
    assert!(matches!(error, BuildError::BadWorkersVariable { .. }));
    says(&error, &["TOKIO_WORKER_THREADS", &value, "at least 1"]);
    // One thread needs no number, and does not read it.
    Builder::new_current_thread().build().unwrap();
}

#[test]
fn a_zero_budget() {
    let _alone = alone();
    let error = refused(|builder| {
        builder.budget(Duration::ZERO);
    });
    assert!(matches!(error, BuildError::NoBudget));
    says(&error, &["budget", "zero"]);
}

#[test]
fn absurd_counts() {
    let _alone = alone();
    for (workers, spares) in [
        (1_000_000, None),
        (2, Some(1_000_000)),
        (usize::MAX, None),
        (1, Some(usize::MAX)),
    ] {
        let error = refused(|builder| {
            builder.worker_threads(workers);
            if let Some(spares) = spares {
                builder.max_spares(spares);
            }
        });
        assert!(
            matches!(error, BuildError::TooManyWorkers { .. }),
            "{error}"
        );
        says(&error, &["workers", "spares", "4096"]);
    }
}

#[test]
fn a_reserve_larger_than_the_spares() {
    let _alone = alone();
    let error = refused(|builder| {
        builder.max_spares(3).reserve(4);
    });
    assert!(matches!(
        error,
        BuildError::ReserveTooLarge {
            reserve: 4,
            max_spares: 3,
            ..
        }
    ));
    says(&error, &["reserve of 4", "3 spares", "max_spares"]);
}

/// The error that programs for tokio's builder get has the typed error inside.
#[test]
fn an_error_of_the_system_library_has_the_typed_one_inside() {
    let _alone = alone();
    let socket = "/nowhere/broker.sock";
    type Set = fn(&mut Builder);
    let cases: [(Set, ErrorKind); 5] = [
        (
            |builder| {
                builder.worker_threads(0);
            },
            ErrorKind::InvalidInput,
        ),
        (
            |builder| {
                builder.worker_threads(5000);
            },
            ErrorKind::InvalidInput,
        ),
        (
            |builder| {
                builder.budget(Duration::ZERO);
            },
            ErrorKind::InvalidInput,
        ),
        (
            |builder| {
                builder.max_spares(1).reserve(2);
            },
            ErrorKind::InvalidInput,
        ),
        (
            |builder| {
                builder.max_spares(0).link(Link::Required);
            },
            ErrorKind::NotFound,
        ),
    ];
    for (set, kind) in cases {
        let mut builder = Builder::new_multi_thread();
        builder.link_socket(socket);
        set(&mut builder);
        let error = builder.build().unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        let inner = error.get_ref().unwrap();
        let typed: &BuildError = inner.downcast_ref().unwrap();
        assert_eq!(error.to_string(), typed.to_string());
        // Also in async code, where tokio lets no runtime be dropped.
        let tokio = tokio::runtime::Builder::new_current_thread().build();
        let again = tokio.unwrap().block_on(async { builder.try_build() });
        assert_eq!(typed.to_string(), again.unwrap_err().to_string());
    }
    let few = BuildError::TooFewThreads {
        available: 1,
        needed: 3,
    };
    assert_eq!(io::Error::from(few).kind(), ErrorKind::QuotaExceeded);
    // Tokio's own, with its number.
    let error = io::Error::from(BuildError::Tokio(io::Error::from_raw_os_error(
        libc::EMFILE,
    )));
    assert_eq!(error.raw_os_error(), Some(libc::EMFILE));
}

/// Numbers that look absurd and mean something: as many blocking threads as there can be, a budget that is
/// never over, no thread for handoff polls, no spares.
#[test]
fn extremes_that_make_sense_are_taken() {
    let _alone = alone();
    let panics = common::own_panics();
    type Set = fn(&mut Builder);
    let extremes: [(&str, Set); 9] = [
        ("blocking threads", |builder| {
            builder.max_blocking_threads(usize::MAX);
        }),
        ("handoffs", |builder| {
            builder.max_handoffs(usize::MAX);
        }),
        ("budget", |builder| {
            builder.budget(Duration::MAX);
        }),
        ("grace", |builder| {
            builder.grace(Duration::MAX);
        }),
        ("no grace", |builder| {
            builder.grace(Duration::ZERO);
        }),
        ("tiny budget", |builder| {
            builder.budget(Duration::from_nanos(1));
        }),
        ("no handoffs", |builder| {
            builder.max_handoffs(0);
        }),
        ("no spares", |builder| {
            builder.max_spares(0);
        }),
        ("no blocking threads of its own", |builder| {
            builder.max_blocking_threads(1);
        }),
    ];
    for (name, set) in extremes {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(1).max_spares(2);
        set(&mut builder);
        let built = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| builder.build()));
        let runtime = built
            .unwrap_or_else(|panic| panic!("{name}: {}", common::panic_text(&*panic)))
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let task = runtime.spawn(async {
            common::become_hog().await;
            tokio::time::sleep(MS).await;
            tokio::task::spawn_blocking(|| 7).await.unwrap()
        });
        assert_eq!(
            runtime.block_on(common::in_time(task)).unwrap(),
            7,
            "{name}"
        );
    }
    assert_eq!(common::own_panics(), panics, "not even in the controller");
}

/// Hogs without a thread for handoff polls, where the last spare is kept for other tasks, are polled inline, and none
/// waits for ever.
#[test]
fn hogs_without_threads_for_handoffs_still_finish() {
    let _alone = alone();
    for spares in [0, 1, 2] {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .max_spares(spares)
            .max_handoffs(0)
            .build()
            .unwrap();
        let tasks: Vec<_> = (0..6)
            .map(|_| {
                runtime.spawn(async {
                    for _ in 0..4 {
                        common::become_hog().await;
                    }
                })
            })
            .collect();
        for task in tasks {
            runtime.block_on(common::in_time(task)).unwrap();
        }
        assert_eq!(runtime.metrics().handoff_polls, 0, "{spares} spares");
    }
}

/// A builder can be used again, after success and after failure.
#[test]
fn a_builder_can_be_used_again() {
    let _alone = alone();
    let mut builder = Builder::new_multi_thread();
    assert!(builder.worker_threads(0).build().is_err());
    builder.worker_threads(1).max_spares(1);
    let (one, two) = (builder.build().unwrap(), builder.build().unwrap());
    for runtime in [&one, &two] {
        assert_eq!(runtime.block_on(runtime.spawn(async { 7 })).unwrap(), 7);
    }
}

#[test]
fn a_mechanism_that_does_not_exist() {
    let error = "canaries".parse::<Mechanism>().unwrap_err().to_string();
    for mechanism in Mechanism::ALL {
        assert!(
            error.contains(mechanism.name()),
            "{mechanism} is not in {error:?}"
        );
    }
}
