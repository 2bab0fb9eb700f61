//! Runtimes in a struct, in a static, and made without a builder.

use std::io;
use std::sync::{Arc, LazyLock};

use tokio::runtime::{EnterGuard, Handle, Runtime, TryCurrentError};
use tokio::task::JoinHandle;

static SHARED: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("a runtime"));

struct Client {
    runtime: Arc<Runtime>,
    handle: Handle,
}

impl Client {
    fn new() -> io::Result<Client> {
        let runtime = Arc::new(Runtime::new()?);
        let handle = runtime.handle().clone();
        Ok(Client { runtime, handle })
    }

    fn enter(&self) -> EnterGuard<'_> {
        self.runtime.enter()
    }

    fn start(&self, number: u32) -> JoinHandle<u32> {
        self.handle.spawn(async move { number * 2 })
    }

    fn get(&self, number: u32) -> u32 {
        self.runtime.block_on(self.start(number)).unwrap()
    }
}

fn outside() -> Result<(), TryCurrentError> {
    Handle::try_current().map(drop)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("{}", outside().unwrap_err());
    let client = Client::new()?;
    println!("{}", client.get(21));
    {
        let _entered = client.enter();
        println!("{}", Handle::current().id() == client.handle.id());
    }
    let threads: Vec<_> = (0..4)
        .map(|number| {
            std::thread::spawn(move || {
                SHARED.block_on(async move { SHARED.spawn(async move { number }).await })
            })
        })
        .collect();
    for thread in threads {
        println!("{}", thread.join().unwrap()?);
    }
    let Client { runtime, .. } = client;
    let runtime = Arc::try_unwrap(runtime).expect("the only one");
    let cancelled = runtime.spawn(std::future::pending::<()>());
    drop(runtime);
    println!("{}", SHARED.block_on(cancelled).unwrap_err().is_cancelled());
    Ok(())
}
