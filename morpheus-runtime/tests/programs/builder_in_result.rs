//! A runtime that a builder makes in a function with `?`, and everything that is done with a runtime.

use std::io;
use std::thread;
use std::time::Duration;

use tokio::runtime::{self, Builder};

fn run() -> io::Result<()> {
    let rt = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .thread_name("x")
        .thread_stack_size(3 * 1024 * 1024)
        .thread_keep_alive(Duration::from_secs(1))
        .max_blocking_threads(8)
        .global_queue_interval(31)
        .event_interval(61)
        .on_thread_start(|| ())
        .on_thread_stop(|| ())
        .build()?;
    let name = || thread::current().name().map(str::to_owned);
    println!("{:?}", rt.block_on(rt.spawn(async move { name() }))?);
    println!("{:?}", rt.block_on(rt.spawn_blocking(name))?);
    println!("{}", rt.block_on(async { 1 + 1 }));
    {
        let _entered = rt.enter();
        let task = tokio::spawn(async { "spawned within enter" });
        println!("{}", rt.block_on(task)?);
    }
    let handle: runtime::Handle = rt.handle().clone();
    let other = thread::spawn(move || handle.block_on(async { tokio::spawn(async { 3 }).await }));
    println!("{}", other.join().unwrap()?);
    println!("{}", rt.metrics().num_workers());
    end(rt);
    Ok(())
}

fn end(rt: runtime::Runtime) {
    rt.spawn(std::future::pending::<()>());
    rt.shutdown_timeout(Duration::from_millis(100))
}

fn main() -> io::Result<()> {
    run()?;
    let rt = runtime::Builder::new_multi_thread()
        .enable_io()
        .enable_time()
        .build()?;
    rt.spawn_blocking(|| thread::sleep(Duration::from_millis(1)));
    rt.shutdown_background();
    println!("the end");
    Ok(())
}
