//! The command line.

use clap::Parser;
use morpheus_harness::arguments::counted;
use serde::Serialize;

use super::child::Via;
use crate::compare::Contender;
use crate::executor::Runtime;

const MORE: &str = "\
Examples:
  footprint
      Idle runtimes with 8, 32, 128 and 512 spares and with as many as by default, and tasks: one or two minutes.
  footprint --spares 8,32 --runs 50
      Two numbers of spares, with narrower intervals.
  footprint --spares 256 --workers 16
      With more workers.
  footprint --only tasks
      The memory of a task, watched and not.

Each measurement is a process of its own, which reads its memory before it builds a runtime and again when that has
served a few tasks and come to rest: the difference is the runtime's. Beside Morpheus with N spares stands tokio+N,
tokio with N more workers. Morpheus has two threads more: the controller, and a worker that is always held. All are
measured in turns, and what Morpheus takes more than tokio is the median of the rounds, with its 95 % interval from six
rounds on. The kernel maps the pages of files 16 at a time, wherever the program happens to lie: so the column 'files'
differs from run to run.

Bytes that are requested are counted by the allocator, in the thread that starts the tasks, and are exact. tokio puts a
task on whole lines of 128 bytes: what is shown is the mean over tasks of four sizes 32 bytes apart, so that every
length of the last line comes once.

The cost of spares in speed: compare --runtime morpheus+8,morpheus+32,morpheus+128,morpheus+512. With all of them in
play: starvation --runtime morpheus,tokio+32 --spares 32 --hogs 32 --hog-kind sleep.

Bars: an idle runtime with its default number of spares takes at most 1 MiB more than tokio, resident; a watched task
at most 32 bytes more than one that is not.

Exit codes: 0 measured, 1 something could not be, 2 bad usage, 130 after Ctrl-C (what was measured until then is shown).";

/// The memory that a Morpheus runtime takes, idle and for each task, compared with tokio.
#[derive(Clone, Debug, Parser, Serialize)]
#[command(name = "footprint", version, after_help = MORE, max_term_width = 110)]
pub struct Options {
    /// Numbers of spares, beside the default
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "8,32,128,512", value_parser = counted(1, 4_000))]
    pub spares: Vec<usize>,

    /// Workers of each runtime
    #[arg(long, value_name = "N", default_value = "2", value_parser = counted(1, 1_024))]
    pub workers: usize,

    /// Rounds of everything
    #[arg(long, value_name = "N", default_value = "20", value_parser = counted(1, 10_000))]
    pub runs: usize,

    /// Milliseconds that a runtime has to come to rest
    #[arg(long, value_name = "MS", default_value = "250", value_parser = counted(1, 60_000))]
    pub settle_ms: usize,

    /// Tasks that wait
    #[arg(long, value_name = "N", default_value = "10000", value_parser = counted(1, 1_000_000))]
    pub tasks: usize,

    /// Only idle runtimes, or only tasks
    #[arg(long, value_name = "PART")]
    pub only: Option<Part>,

    /// Print one JSON object and nothing else
    #[arg(long)]
    #[serde(skip)]
    pub json: bool,

    /// One measurement, of a job on stdin: how this program calls itself.
    #[arg(long, hide = true)]
    #[serde(skip)]
    pub child: bool,
}

/// The parts of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// Runtimes that have nothing to do.
    Idle,
    /// Tasks that wait.
    Tasks,
}

/// Morpheus with this many spares, or with its default.
pub fn morpheus(spares: Option<usize>) -> Contender {
    Contender {
        spares,
        ..Contender::default()
    }
}

/// tokio with this many more workers.
pub fn tokio(extra: usize) -> Contender {
    Contender {
        runtime: Runtime::tokio(extra, false),
        ..Contender::default()
    }
}

impl Options {
    /// The idle runtimes, tokio first.
    pub fn idle(&self) -> Vec<Contender> {
        if self.only == Some(Part::Tasks) {
            return Vec::new();
        }
        let mut spares = self.spares.clone();
        spares.sort_unstable();
        spares.dedup();
        let own = [None].into_iter().chain(spares.iter().copied().map(Some));
        let own = own.map(morpheus);
        let sceptics = spares.iter().copied().map(tokio);
        std::iter::once(tokio(0))
            .chain(own)
            .chain(sceptics)
            .collect()
    }

    /// On which runtime tasks are started and how: unwatched ones on tokio first.
    pub fn tasks(&self) -> Vec<(Contender, Via)> {
        if self.only == Some(Part::Idle) {
            return Vec::new();
        }
        let own = [Via::Tokio, Via::Spawn, Via::Watched, Via::WatchedAs];
        let own = own.into_iter().map(|via| (morpheus(None), via));
        std::iter::once((tokio(0), Via::Tokio)).chain(own).collect()
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use morpheus_harness::arguments::refuses;

    use super::*;

    fn options(line: &str) -> Options {
        Options::parse_from(std::iter::once("footprint").chain(line.split_whitespace()))
    }

    #[test]
    fn the_command_is_well_formed() {
        Options::command().debug_assert();
    }

    #[test]
    fn bad_input_says_what_is_right() {
        refuses::<Options>(&[
            ("--spares 0", "from 1 to 4000"),
            ("--spares 8,many", "from 1 to 4000"),
            ("--workers 0", "from 1 to 1024"),
            ("--runs 0", "from 1 to"),
            ("--tasks 0", "from 1 to"),
            ("--only speed", "idle, tasks"),
        ]);
    }

    #[test]
    fn tokio_has_as_many_threads_beside_each_number_of_spares() {
        let names = |line: &str| -> Vec<String> {
            let all = options(line).idle();
            all.iter().map(Contender::to_string).collect()
        };
        assert_eq!(
            names("--spares 32,8,32"),
            [
                "tokio",
                "morpheus",
                "morpheus+8",
                "morpheus+32",
                "tokio+8",
                "tokio+32"
            ]
        );
        assert!(names("--only tasks").is_empty());
        assert!(options("--only idle").tasks().is_empty());
        assert_eq!(options("").tasks()[0], (tokio(0), Via::Tokio));
    }
}
