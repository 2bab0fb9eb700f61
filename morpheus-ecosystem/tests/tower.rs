//! Tests tower: a stack of layers whose buffer has a task of its own; limits, timeouts and retries do what they say.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use morpheus_ecosystem::{Scene, in_time, neighbour};
use tower::retry::Policy;
use tower::util::BoxCloneService;
use tower::{BoxError, Service, ServiceBuilder, ServiceExt as _, service_fn};

type Stack<Request, Answer> = BoxCloneService<Request, Answer, BoxError>;

async fn call<Request, Answer>(
    mut stack: Stack<Request, Answer>,
    request: Request,
) -> Result<Answer, BoxError> {
    stack.ready().await?.call(request).await
}

/// Retries up to this many times.
#[derive(Clone)]
struct Again(usize);

impl Policy<u32, u32, BoxError> for Again {
    type Future = std::future::Ready<()>;

    fn retry(&mut self, _: &mut u32, result: &mut Result<u32, BoxError>) -> Option<Self::Future> {
        self.0 = self.0.checked_sub(usize::from(result.is_err()))?;
        result.is_err().then(|| std::future::ready(()))
    }

    fn clone_request(&mut self, request: &u32) -> Option<u32> {
        Some(*request)
    }
}

#[morpheus_runtime::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_concurrency_limit_behind_a_buffer() {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let service = {
        let most = most.clone();
        service_fn(move |number: u32| {
            let (now, most) = (now.clone(), most.clone());
            async move {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(2)).await;
                now.fetch_sub(1, Ordering::SeqCst);
                Ok::<_, BoxError>(number * 2)
            }
        })
    };
    let stack = ServiceBuilder::new()
        .buffer(8)
        .concurrency_limit(3)
        .service(service);
    let stack = BoxCloneService::new(stack);
    let calls: Vec<_> = (0..60)
        .map(|number| (number, tokio::spawn(call(stack.clone(), number))))
        .collect();
    for (number, answer) in calls {
        assert_eq!(in_time(answer).await.unwrap().unwrap(), number * 2);
    }
    assert_eq!(most.load(Ordering::SeqCst), 3);
}

#[morpheus_runtime::test(flavor = "multi_thread", worker_threads = 2)]
async fn timeouts_and_retries() {
    let tries = Arc::new(AtomicUsize::new(0));
    let service = {
        let tries = tries.clone();
        service_fn(move |number: u32| {
            let attempt = tries.fetch_add(1, Ordering::SeqCst);
            async move {
                if attempt < 2 {
                    std::future::pending::<()>().await;
                }
                Ok::<_, BoxError>(number)
            }
        })
    };
    let stack = ServiceBuilder::new()
        .retry(Again(5))
        .timeout(Duration::from_millis(20))
        .service(service);
    let answer = in_time(call(BoxCloneService::new(stack), 42)).await;
    assert_eq!(answer.unwrap(), 42);
    assert_eq!(tries.load(Ordering::SeqCst), 3);
}

#[test]
fn a_neighbour_of_hogs() {
    let does = "one stack with a buffer for all; limits, timeouts, retries";
    neighbour("tower", does, async |stage| {
        let hogs = stage.hogs.clone();
        let service = service_fn(move |request: &'static str| {
            let hogs = hogs.clone();
            async move {
                if request == "hog" {
                    hogs.hog().await;
                }
                Ok::<_, BoxError>(request.len())
            }
        });
        let build = async {
            let stack = ServiceBuilder::new()
                .buffer(32)
                .timeout(2 * morpheus_ecosystem::PATIENCE)
                .service(service);
            BoxCloneService::new(stack)
        };
        let stack = stage.inside(build).await;
        let hog = {
            let stack = stack.clone();
            move || {
                let stack = stack.clone();
                async move { assert_eq!(call(stack, "hog").await.unwrap(), 3) }
            }
        };
        let ping = move || {
            let stack = stack.clone();
            async move { assert_eq!(call(stack, "ping").await.unwrap(), 4) }
        };
        Scene::of_tasks(&stage, hog, ping)
    });
}
