//! How many requests of clients that ask again at once were served in a window.
//!
//! To count the answers in the window is wrong where many clients come at once and are served at the same pace: their answers come
//! in waves, and whether one more wave falls into the window decides. 200 requests of 25 ms on two CPUs are a wave every 2.5 s; a
//! window of 8 s has three or four, 75 or 100 requests a second of 80 that the CPUs can compute. So a request counts with that part of
//! the time from sending it to its answer that lies in the window. One without an answer is taken to last as long as its client's
//! last one, or as long as it has been under way, if that is more; the first of a client, of which nothing is known, counts as nothing.
//! That credits a service that leaves some clients waiting for many times their last answer.

use std::time::{Duration, Instant};

use super::load::Window;

/// The requests of one client, each sent when the one before was answered.
#[derive(Debug)]
pub struct Client {
    sent: Instant,
    last: Option<Duration>,
    /// In the window, of those that were answered.
    served: f64,
}

impl Client {
    /// Sent its first request.
    pub fn new(sent: Instant) -> Client {
        Client {
            sent,
            last: None,
            served: 0.0,
        }
    }

    /// Its request was answered, and the next one sent.
    pub fn answered(&mut self, now: Instant, window: Window) {
        let length = now.saturating_duration_since(self.sent);
        self.served += part(self.sent, length, window);
        self.last = Some(length);
        self.sent = now;
    }

    /// How many requests were served in the window, looked at after it.
    pub fn served(&self, now: Instant, window: Window) -> f64 {
        let age = now.saturating_duration_since(self.sent);
        let open = self.last.map(|last| part(self.sent, last.max(age), window));
        self.served + open.unwrap_or(0.0)
    }
}

/// The part of a request that lies in the window.
fn part(sent: Instant, length: Duration, window: Window) -> f64 {
    let from = sent.max(window.from);
    let end = (sent + length).min(window.end);
    if length.is_zero() {
        return f64::from(u8::from((window.from..window.end).contains(&sent)));
    }
    end.saturating_duration_since(from).as_secs_f64() / length.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    /// Requests a second in a window of 8 s, of clients whose answers all come at the same moments.
    fn in_waves(clients: u32, wave: Duration, from: Duration) -> f64 {
        let begin = Instant::now();
        let window = Window {
            from: begin + from,
            end: begin + from + 8 * S,
        };
        let mut client = Client::new(begin);
        let mut now = begin + wave;
        while now < window.end {
            client.answered(now, window);
            now += wave;
        }
        f64::from(clients) * client.served(window.end, window) / 8.0
    }

    #[test]
    fn waves_have_the_rate_of_their_requests_wherever_the_window_begins() {
        for tenths in 30..60 {
            let rate = in_waves(200, 5 * S / 2, tenths * S / 10);
            assert!((rate - 80.0).abs() < 1e-9, "{tenths}: {rate}");
            let rate = in_waves(1, S / 40, tenths * S / 10);
            assert!((rate - 40.0).abs() < 1e-6, "{tenths}: {rate}");
        }
    }

    #[test]
    fn a_request_without_an_answer_counts_as_the_last_one_or_its_age() {
        let begin = Instant::now();
        let window = Window {
            from: begin,
            end: begin + 8 * S,
        };
        let mut client = Client::new(begin);
        assert_eq!(client.served(window.end, window), 0.0, "nothing is known");
        client.answered(begin + 4 * S, window);
        assert_eq!(client.served(window.end, window), 2.0);
        // Later it is known to take longer.
        assert_eq!(client.served(begin + 12 * S, window), 1.5);
        // Before and after the window.
        let mut early = Client::new(begin - 2 * S);
        early.answered(begin - S, window);
        early.answered(begin + S, window);
        assert_eq!(early.served, 0.5);
        early.sent = window.end + S;
        assert_eq!(early.served(window.end + 2 * S, window), 0.5);
        // No time is no part of it.
        let mut at_once = Client::new(begin);
        at_once.answered(begin, window);
        assert_eq!(at_once.served, 1.0);
    }
}
