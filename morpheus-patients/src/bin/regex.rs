//! A handler that searches a big text with a regular expression.

use std::process::ExitCode;
use std::sync::Arc;

use morpheus_patients::clock::Stopwatch;
use morpheus_patients::{handler, service};
use regex::Regex;

/// Nothing in it is a fixed text that a search could look for first.
const ADDRESS: &str = r"[a-z0-9.]+ [a-z]+ [a-z.]*[0-9]+ (at|dot) [a-z]+";
/// How long the text is.
const LENGTH: usize = 5 << 20;

/// Counts the addresses in a text.
#[inline(never)]
fn count_addresses(address: &Regex, text: &str) -> usize {
    let count = address.find_iter(text).count(); // CULPRIT
    count.max(1)
}

async fn report(address: &Regex, text: &str) {
    let stopwatch = Stopwatch::start();
    let count = count_addresses(address, text);
    stopwatch.stop();
    handler::answer(count).await;
}

async fn requests(shared: Arc<(Regex, String)>) {
    let (address, text) = &*shared;
    loop {
        handler::request().await;
        report(address, text).await;
    }
}

fn main() -> ExitCode {
    service::run("regex", || {
        let sentence =
            "please write to jane.doe99 at example or call 555 01 23 dot before noon on friday\n";
        let text = sentence.repeat(LENGTH / sentence.len());
        let shared = Arc::new((Regex::new(ADDRESS)?, text));
        handler::start(|_| requests(Arc::clone(&shared)));
        Ok(())
    })
}
