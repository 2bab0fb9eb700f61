//! The forms of `#[tokio::test]`.

use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::{Handle, RuntimeFlavor};

#[tokio::test]
async fn plain() {
    assert_eq!(
        Handle::current().runtime_flavor(),
        RuntimeFlavor::CurrentThread
    );
    let here = thread::current().id();
    assert_eq!(
        tokio::spawn(async { thread::current().id() })
            .await
            .unwrap(),
        here
    );
}

#[tokio::test(flavor = "current_thread")]
async fn current_thread() -> Result<(), std::num::ParseIntError> {
    let seven: u32 = "7".parse()?;
    assert_eq!(tokio::spawn(async move { seven }).await.unwrap(), 7);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn multi_thread() {
    assert_eq!(
        Handle::current().runtime_flavor(),
        RuntimeFlavor::MultiThread
    );
    assert_eq!(tokio::task::spawn_blocking(|| 7).await.unwrap(), 7);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_workers() {
    let barrier = std::sync::Arc::new(std::sync::Barrier::new(2));
    let tasks: Vec<_> = (0..2)
        .map(|_| {
            let barrier = barrier.clone();
            tokio::spawn(async move { barrier.wait().is_leader() })
        })
        .collect();
    let mut leaders = 0;
    for task in tasks {
        leaders += u32::from(task.await.unwrap());
    }
    assert_eq!(leaders, 1);
}

#[tokio::test(start_paused = true)]
async fn paused() {
    let (began, real) = (tokio::time::Instant::now(), Instant::now());
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(began.elapsed().as_secs(), 3600);
    assert!(real.elapsed() < Duration::from_secs(60));
}

#[tokio::test]
#[should_panic(expected = "on purpose")]
async fn panics() {
    panic!("on purpose");
}

#[tokio::test]
#[ignore = "for no reason"]
async fn ignored() {}

#[tokio::test]
async fn fails() {
    assert_eq!(
        Handle::current().runtime_flavor(),
        RuntimeFlavor::MultiThread
    );
}
