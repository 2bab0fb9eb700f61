//! `#[tokio::main]` as most programs have it.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::sleep;

#[tokio::main]
async fn main() {
    let (sender, mut receiver) = mpsc::channel(4);
    for number in 0..3 {
        let sender = sender.clone();
        tokio::spawn(async move {
            sleep(Duration::from_millis(1)).await;
            sender.send(number).await.unwrap();
        });
    }
    drop(sender);
    let mut received = Vec::new();
    while let Some(number) = receiver.recv().await {
        received.push(number);
    }
    received.sort_unstable();
    println!("received {received:?}");
    let blocking = tokio::task::spawn_blocking(|| 6 * 7).await.unwrap();
    println!(
        "{blocking} {:?}",
        tokio::runtime::Handle::current().runtime_flavor()
    );
    let panicked = tokio::spawn(async { panic!("on purpose") })
        .await
        .unwrap_err();
    println!("panicked: {}", panicked.is_panic());
}
