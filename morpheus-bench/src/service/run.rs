//! All measurements in their order, each of a service of its own.

use std::time::{Duration, Instant};

use super::config::Options;
use super::result::{Asked, Config, Figures, Report, Run};
use super::server::{Hash, Programs, Server};
use super::variant::Variant;
use super::wrk::{Load, Script, TAIL_S, Wrk};
use crate::host::{self, Host};
use crate::interrupt;
use crate::order::interleaved;
use crate::progress::Progress;

/// A timetable.
#[derive(Clone, Copy, Debug)]
pub struct Timetable {
    path: &'static str,
    connections: usize,
    /// Of each.
    period: Duration,
    /// Every how many is a write.
    writes: u32,
}

/// A thousand a second.
pub const PING: Timetable = Timetable {
    path: "/ping",
    connections: 8,
    period: Duration::from_millis(8),
    writes: 0,
};

/// 250 a second.
pub const DB: Timetable = Timetable {
    path: "/db",
    connections: 4,
    period: Duration::from_millis(16),
    writes: 4,
};

impl Timetable {
    /// Requests that are due each second.
    pub fn per_s(&self) -> f64 {
        self.connections as f64 / self.period.as_secs_f64()
    }

    fn load(&self, server: &Server, seconds: u32) -> Load {
        Load {
            url: server.url(self.path),
            connections: self.connections,
            period: Some(self.period),
            seconds,
            writes: self.writes,
        }
    }
}

/// What starting and ending a service takes, about.
const AROUND: Duration = Duration::from_millis(500);

/// Measures everything, or until Ctrl-C.
///
/// # Errors
/// Nothing can be measured at all; the text is for people.
pub fn measure(options: &Options, wrk: String) -> Result<Report, String> {
    // Before there is any load of ours.
    let host = Host::read();
    let programs = Programs::find(options.programs.as_deref())?;
    let script = Script::write()?;
    let hash = programs.calibrate(options.hash_ms)?;
    // Before anything is measured: a build takes both CPUs.
    for &variant in &options.only {
        programs.of(variant)?;
    }
    let each = AROUND
        + Duration::from_secs(u64::from(options.warmup) + u64::from(options.seconds + TAIL_S));
    let order = interleaved(&options.only, options.rounds);
    let mut progress = Progress::new(each * order.len() as u32, options.json);
    let mut runs = Vec::new();
    for (round, variant) in order {
        progress.say(format!(
            "round {} of {}: {variant}",
            round + 1,
            options.rounds
        ));
        let begun = Instant::now();
        let figures = one(&programs, &script, variant, hash, options, || {
            progress.tick(begun.elapsed().min(each));
        });
        // What it ended in the middle is no figure, and no failure.
        if interrupt::happened() {
            break;
        }
        progress.finish_run(each);
        runs.push(Run {
            variant,
            round: round + 1,
            failed: figures.as_ref().err().cloned(),
            figures: figures.ok(),
        });
    }
    progress.clear();
    let config = Config::new(options, hash, host::cpus(), wrk);
    let interrupted = interrupt::happened();
    Ok(Report::new(host, config, runs, interrupted))
}

/// One variant, once.
fn one(
    programs: &Programs,
    script: &Script,
    variant: Variant,
    hash: Hash,
    options: &Options,
    mut tick: impl FnMut(),
) -> Result<Figures, String> {
    let server = Server::start(programs, variant, hash)?;
    let busy = Load {
        url: server.url(options.scene.path()),
        connections: options.clients(),
        period: None,
        seconds: options.warmup + options.seconds + TAIL_S,
        writes: 0,
    };
    let ping = PING.load(&server, options.seconds);
    let db = DB.load(&server, options.seconds);

    let hogs = Wrk::start(script, &busy)?;
    let until = Instant::now() + Duration::from_secs(options.warmup.into());
    while Instant::now() < until && !interrupt::happened() {
        std::thread::sleep(Duration::from_millis(50));
        tick();
    }
    let pings = Wrk::start(script, &ping)?;
    let rows = Wrk::start(script, &db)?;
    let pings = pings.finish(&ping, &mut tick)?;
    let rows = rows.finish(&db, &mut tick)?;
    let hogs = hogs.finish(&busy, &mut tick)?;
    server.end()?;
    Ok(Figures {
        ping: Asked::of(&pings),
        db: Asked::of(&rows),
        work_per_s: hogs.answered as f64 / (hogs.duration_us.max(1) as f64 / 1e6),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timetables_are_as_dense_as_they_say() {
        assert!((PING.per_s() - 1_000.0).abs() < 1e-9);
        assert!((DB.per_s() - 250.0).abs() < 1e-9);
    }
}
