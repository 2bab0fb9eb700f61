//! Shows a made-up report in the live table, a finding more each second, until `q` or Ctrl-C; then the summary. Where there is no
//! terminal, lines of progress.

#[path = "../tests/common/mod.rs"]
mod common;

use std::io;
use std::time::{Duration, Instant};

use morpheus_doctor::report::live::{Key, Live, progress_line};
use morpheus_doctor::report::text::{Look, summary};

fn main() -> io::Result<()> {
    let whole = common::service();
    let start = Instant::now();
    let so_far = || {
        let mut report = whole.clone();
        let passed = start.elapsed();
        report.length_ns = u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX);
        let findings = usize::try_from(passed.as_secs()).unwrap_or(usize::MAX);
        report.findings.truncate(findings);
        report.polls_in_all = report.findings.iter().map(|finding| finding.count).sum();
        report
    };
    if !Live::is_possible() {
        for _ in 0..3 {
            std::thread::sleep(Duration::from_secs(1));
            println!("{}", progress_line(&so_far()));
        }
    } else {
        let mut live = Live::start()?;
        loop {
            live.draw(&so_far())?;
            if live.keys(Duration::from_millis(250))? == Some(Key::End) {
                break;
            }
            assert!(
                start.elapsed() < Duration::from_secs(3600),
                "an hour is enough"
            );
        }
    }
    print!("{}", summary(&whole, Look::of_stdout()));
    Ok(())
}
