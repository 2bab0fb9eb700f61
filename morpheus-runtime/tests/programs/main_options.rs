//! `#[tokio::main]` with options, in a function that returns a result, and with what it reads from its runtime.

use std::collections::BTreeSet;
use std::error::Error;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::JoinSet;

#[tokio::main(flavor = "multi_thread", worker_threads = 3)]
async fn main() -> Result<(), Box<dyn Error>> {
    let handle = Handle::current();
    println!("{}", handle.runtime_flavor() == RuntimeFlavor::MultiThread);

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        text
    });
    tasks.spawn_on(
        async move {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(b"over the wire").await.unwrap();
            "sent".to_owned()
        },
        &handle,
    );
    tasks.spawn_blocking(|| "blocking".to_owned());
    let texts: BTreeSet<String> = tasks.join_all().await.into_iter().collect();
    println!("{texts:?}");

    let parsed: u32 = "42".parse()?;
    println!("{parsed}");
    Err("the end".into())
}
