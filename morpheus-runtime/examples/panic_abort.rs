//! Slow watched futures in a program that is built with `panic = "abort"`: a panic that is caught elsewhere ends it.
//!
//! Tokio refuses some calls by a panic. This program polls slow futures at each place where tokio does so, and
//! exits with 0 only if nothing panicked. The step "panic = abort" of `cargo xtask test --all` runs it:
//!
//! ```sh
//! CARGO_PROFILE_DEV_PANIC=abort CARGO_TARGET_DIR=target/panic-abort cargo run -p morpheus-runtime --example panic_abort
//! ```

use std::future::Future;
use std::time::Duration;

use morpheus_runtime::{Builder, Runtime, Watch as _};
use tokio::runtime::Handle;
use tokio::task::LocalSet;

const MS: Duration = Duration::from_millis(1);
/// Longer than all of it takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
/// A user that nothing else on this machine runs as, so that only this program's threads count.
const UID: u32 = 64_125;

fn main() {
    if cfg!(panic = "unwind") {
        eprintln!("this program is built with panic = \"unwind\", and shows nothing");
        std::process::exit(2);
    }
    std::thread::spawn(|| {
        std::thread::sleep(PATIENCE);
        eprintln!("not done within {PATIENCE:?}");
        std::process::exit(1);
    });
    let morpheus = Builder::new_multi_thread()
        .worker_threads(2)
        .max_spares(4)
        .build()
        .unwrap();
    let plain = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    on_workers(&morpheus, plain.handle());
    without_a_worker(&morpheus, plain.handle());
    with_another_runtime_entered(&morpheus, plain.handle());
    with_no_more_threads(&morpheus, plain.handle());
    println!("done");
}

/// Becomes known as slow by its third poll, and is 7 then.
fn slow(label: &'static str) -> impl Future<Output = u32> + Send {
    let slow = async {
        for _ in 0..8 {
            burn(20 * MS);
            tokio::task::yield_now().await;
        }
        7
    };
    slow.watched(label)
}

/// Computes until the calling thread has used this much CPU time.
fn burn(cpu: Duration) {
    let own_ns = || {
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: `time` is writable for the whole call.
        unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    };
    let until = own_ns() + cpu;
    while own_ns() < until {
        for _ in 0..1000 {
            std::hint::spin_loop();
        }
    }
}

/// Runs six at once, as tasks.
fn six(handle: &Handle, label: &'static str) {
    let tasks: Vec<_> = (0..6).map(|_| handle.spawn(slow(label))).collect();
    for task in tasks {
        assert_eq!(handle.block_on(task).unwrap(), 7, "{label}");
    }
    println!("{label}: ok");
}

fn on_workers(morpheus: &Runtime, plain: &Handle) {
    six(morpheus.handle(), "tasks");
    let handoffs = morpheus.metrics().handoff_polls;
    assert!(handoffs > 0, "workers other than the first still hand off");
    six(plain, "tasks on a plain runtime");
}

fn current_thread() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

fn without_a_worker(morpheus: &Runtime, plain: &Handle) {
    for (name, result) in [
        ("block_on", morpheus.block_on(slow("block_on"))),
        (
            "block_on of a plain runtime",
            plain.block_on(slow("block_on, plain")),
        ),
        (
            "a current-thread runtime",
            current_thread().block_on(slow("current thread")),
        ),
        (
            "a LocalSet",
            morpheus.block_on(LocalSet::new().run_until(slow("LocalSet"))),
        ),
        (
            "a LocalSet on a current-thread runtime",
            current_thread().block_on(LocalSet::new().run_until(async {
                let task = tokio::task::spawn_local(slow("LocalSet, current thread"));
                task.await.unwrap()
            })),
        ),
    ] {
        assert_eq!(result, 7, "{name}");
        println!("{name}: ok");
    }
}

/// On a current-thread runtime, so that the flavor that tokio tells is that of another one.
async fn enters(handle: &Handle, label: &'static str) -> u32 {
    let _entered = handle.enter();
    slow(label).await
}

fn with_another_runtime_entered(morpheus: &Runtime, plain: &Handle) {
    for handle in [morpheus.handle(), plain] {
        assert_eq!(current_thread().block_on(enters(handle, "entered")), 7);
        // The same on a blocking thread, and inside a worker.
        let entered = handle.clone();
        let blocking = handle.spawn_blocking(move || {
            current_thread().block_on(enters(&entered, "entered, blocking thread"))
        });
        assert_eq!(handle.block_on(blocking).unwrap(), 7);
        let entered = handle.clone();
        let task = handle.spawn(async move {
            tokio::task::block_in_place(|| {
                current_thread().block_on(enters(&entered, "entered, worker"))
            })
        });
        assert_eq!(handle.block_on(task).unwrap(), 7);
    }
    println!("another runtime entered: ok");
}

/// A pool without a thread that can start none is refused by a panic, too. Only users without rights have such a limit.
fn with_no_more_threads(morpheus: &Runtime, plain: &Handle) {
    // The pool of a plain runtime has had calls: a new one has no thread.
    let fresh = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    fresh.block_on(fresh.spawn(async {})).unwrap();
    let limit = libc::rlimit {
        rlim_cur: 1,
        rlim_max: 1,
    };
    // SAFETY: numbers, an empty group list, and a limit that is readable; glibc changes all threads.
    let is_limited = unsafe {
        libc::geteuid() == 0
            && libc::setgroups(0, std::ptr::null()) == 0
            && libc::setgid(UID) == 0
            && libc::setuid(UID) == 0
            && libc::setrlimit(libc::RLIMIT_NPROC, &raw const limit) == 0
    };
    if !is_limited {
        println!("no more threads: left out, for it needs root");
        return;
    }
    assert!(std::thread::Builder::new().spawn(|| ()).is_err());
    six(morpheus.handle(), "no more threads");
    six(fresh.handle(), "no more threads, new plain runtime");
    six(plain, "no more threads, plain runtime");
}
