//! `#[tokio::main]` on functions that are not `main`: with arguments, generic, a method, unsafe.

use std::fmt::Debug;

#[tokio::main(flavor = "current_thread")]
async fn add(a: u32, (b, c): (u32, u32), mut rest: Vec<u32>, name: &str) -> String {
    rest.push(a + b + c);
    tokio::task::yield_now().await;
    format!("{name}: {rest:?}")
}

#[tokio::main(flavor = "multi_thread", worker_threads = 1)]
async fn show<T: Debug + Send + 'static, const N: usize>(values: [T; N]) -> String
where
    T: Clone,
{
    let task = tokio::spawn(async move { format!("{values:?}") });
    task.await.unwrap()
}

struct Service(u32);

impl Service {
    #[tokio::main(flavor = "current_thread")]
    async fn call(&mut self) -> Result<u32, std::num::ParseIntError> {
        self.0 += "1".parse::<u32>()?;
        Ok(self.0)
    }
}

#[tokio::main(flavor = "current_thread")]
async unsafe fn read(value: *const u32) -> u32 {
    // SAFETY: the caller's.
    unsafe { *value }
}

#[tokio::main]
async fn numbers() -> impl Iterator<Item = u32> {
    #![allow(unused_variables)]
    let unused = 1;
    1..4
}

#[tokio::main(flavor = "current_thread")]
async fn early(stop: bool) -> u32 {
    if stop {
        return 1;
    }
    2
}

fn main() {
    println!("{}", add(1, (2, 3), vec![4], "sum"));
    println!("{}", show([1, 2]));
    let mut service = Service(1);
    println!("{:?} {:?}", service.call(), service.call());
    let value = 7;
    // SAFETY: `value` is there for the whole call.
    println!("{}", unsafe { read(&raw const value) });
    println!("{:?}", numbers().collect::<Vec<_>>());
    println!("{} {}", early(true), early(false));
}
