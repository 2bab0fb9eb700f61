//! Current-thread runtimes by the builder: one after another, within another runtime, and shared by threads.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::task::LocalSet;

fn small() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_time().build()
}

fn main() -> io::Result<()> {
    let (one, two) = (small()?, small()?);
    let task = one.spawn(async { "spawned before anything runs" });
    println!("{}", two.block_on(async { 7 }));
    println!("{}", task.is_finished());
    println!("{}", one.block_on(task)?);
    println!(
        "{}",
        two.block_on(async { tokio::spawn(async { 8 }).await })?
    );

    let local = LocalSet::new();
    let value = Rc::new(9);
    let nine = one.block_on(
        local.run_until(async move { tokio::task::spawn_local(async move { *value }).await }),
    )?;
    println!("{nine}");

    let two = Arc::new(two);
    let borrowed = two.clone();
    let within = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let ten = within.spawn(async move {
        tokio::task::block_in_place(|| {
            borrowed.block_on(async { tokio::spawn(async { 10 }).await })
        })
    });
    println!("{}", within.block_on(ten)??);

    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        one.block_on(async { one.block_on(async {}) });
    }));
    println!("a runtime within a runtime: {}", caught.is_err());

    let (shared, count) = (Arc::new(one), Arc::new(AtomicU32::new(0)));
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let (shared, count) = (shared.clone(), count.clone());
            thread::spawn(move || {
                shared.block_on(async {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                    let counted = tokio::spawn(async move { count.fetch_add(1, Ordering::SeqCst) });
                    counted.await.unwrap();
                });
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    println!("{}", count.load(Ordering::SeqCst));

    struct OnDrop;
    impl Drop for OnDrop {
        fn drop(&mut self) {
            println!("dropped with its runtime");
        }
    }
    let on_drop = OnDrop;
    shared.spawn(async move {
        std::future::pending::<()>().await;
        drop(on_drop);
    });
    drop(shared);
    println!("the end");
    Ok(())
}
