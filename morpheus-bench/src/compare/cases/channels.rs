//! tokio's channels: many to one, request and reply, one to many.

use super::{Body, Countdown, Stage, shares};
use crate::compare::spawner::Spawner;

use tokio::sync::{broadcast, mpsc, oneshot, watch};

/// Tasks that send.
const SENDERS: u64 = 5;
/// Messages that find room before a sender waits.
const ROOM: usize = 100;
/// Tasks that ask.
const ASKING: u64 = 8;
/// Tasks that wait for a value.
pub const WATCHING: u64 = 20;
/// Tasks that get each message.
const LISTENING: u64 = 10;
/// Messages before the sender waits for all to have got them: a receiver that falls behind would lose some.
const AT_ONCE: u64 = 32;
/// Messages got of those.
pub const BROADCAST: u64 = LISTENING * AT_ONCE;

/// Many tasks send to one that counts.
pub fn mpsc<S: Spawner>(stage: &Stage) -> Result<Body, String> {
    Ok(stage.in_task::<S, _>(|n| async move {
        let (sender, mut receiver) = mpsc::channel::<u64>(ROOM);
        for share in shares(n, SENDERS) {
            let sender = sender.clone();
            S::spawn(async move {
                for _ in 0..share {
                    if sender.send(1).await.is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut got = 0;
        while let Some(one) = receiver.recv().await {
            got += one;
        }
        got
    }))
}

/// One task answers what the others ask.
pub fn request_reply<S: Spawner>(stage: &Stage) -> Result<Body, String> {
    let (sender, mut requests) = mpsc::channel::<oneshot::Sender<u64>>(ROOM);
    let _context = stage.runtime.enter();
    S::spawn(async move {
        while let Some(request) = requests.recv().await {
            let _ = request.send(1);
        }
    });
    let ask = move |times: u64| {
        let sender = sender.clone();
        async move {
            let mut answered = 0;
            for _ in 0..times {
                let (reply, answer) = oneshot::channel();
                if sender.send(reply).await.is_ok() {
                    answered += answer.await.unwrap_or(0);
                }
            }
            answered
        }
    };
    Ok(stage.spread::<S, _, _>(ASKING, ask))
}

/// One task sets a value, and the next when all have seen it.
pub fn watch<S: Spawner>(stage: &Stage) -> Result<Body, String> {
    let (sender, receiver) = watch::channel((0, Countdown::new(0)));
    let _context = stage.runtime.enter();
    for _ in 0..WATCHING {
        let mut receiver = receiver.clone();
        S::spawn(async move {
            let mut last: u64 = 0;
            while receiver.changed().await.is_ok() {
                let (value, countdown) = receiver.borrow_and_update().clone();
                // One that was missed is not counted, and then the run is given up.
                if value == last + 1 {
                    countdown.count();
                }
                last = value;
            }
        });
    }
    let sender = std::sync::Arc::new(sender);
    let mut value = 0;
    Ok(stage.in_task::<S, _>(move |n| {
        let (sender, first) = (sender.clone(), value);
        let rounds = n / WATCHING;
        value += rounds;
        async move {
            let mut done = 0;
            for round in 1..=rounds {
                let countdown = Countdown::new(WATCHING);
                sender.send_replace((first + round, countdown.clone()));
                done += countdown.ended().await;
            }
            done
        }
    }))
}

/// One task sends to many, and goes on when all have got everything.
pub fn broadcast<S: Spawner>(stage: &Stage) -> Result<Body, String> {
    let (sender, _) = broadcast::channel(AT_ONCE as usize);
    let _context = stage.runtime.enter();
    for _ in 0..LISTENING {
        let mut receiver: broadcast::Receiver<std::sync::Arc<Countdown>> = sender.subscribe();
        S::spawn(async move {
            // One that is lost is not counted, and then the run is given up.
            while let Ok(countdown) = receiver.recv().await {
                countdown.count();
            }
        });
    }
    Ok(stage.in_task::<S, _>(move |n| {
        let sender = sender.clone();
        async move {
            let mut done = 0;
            for _ in 0..n / BROADCAST {
                let countdown = Countdown::new(BROADCAST);
                for _ in 0..AT_ONCE {
                    let _ = sender.send(countdown.clone());
                }
                done += countdown.ended().await;
            }
            done
        }
    }))
}
