//! Everything on one thread: `spawn_local`, a `LocalSet`, and tasks that never move.

use std::cell::RefCell;
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use tokio::task::{LocalSet, spawn_local, yield_now};

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let here = thread::current().id();
    let there = tokio::spawn(async { thread::current().id() })
        .await
        .unwrap();
    println!("on this thread: {}", here == there);
    println!("{:?}", tokio::runtime::Handle::current().runtime_flavor());

    let order = Rc::new(RefCell::new(Vec::new()));
    let local = LocalSet::new();
    let noted = order.clone();
    local
        .run_until(async move {
            let tasks: Vec<_> = (0..3)
                .map(|number| {
                    let noted = noted.clone();
                    spawn_local(async move {
                        for step in 0..2 {
                            noted.borrow_mut().push((number, step));
                            yield_now().await;
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
        })
        .await;
    println!("{:?}", order.borrow());

    let late = tokio::time::timeout(Duration::from_millis(2), std::future::pending::<()>()).await;
    println!("late: {}", late.is_err());
    let elsewhere = tokio::task::spawn_blocking(move || thread::current().id() != here);
    println!("blocking elsewhere: {}", elsewhere.await.unwrap());
}
