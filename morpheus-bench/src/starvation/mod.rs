//! The benchmark `starvation`: tasks that compute or block inside one poll, and what the others see of it.
//!
//! `main` reads the command line (`config`) and measures every runtime in a child process of its own
//! (`supervise`), so that one that stands still cannot spoil the next. The child (`child`, `run`)
//! puts the `workload` on: hogs (`hog`), innocents (`busy`, `mix`), clients, and the two probes,
//! an outside wake (`wake`) and timers (`sleepers`). The answer (`result`, `log`) becomes rows of
//! `figures` and a `closing` sentence. With `--suite` all cases of the table of `bars` are measured and judged (`suite`).

mod bars;
mod blocker;
mod busy;
mod child;
mod closing;
mod config;
mod figures;
mod go;
mod hog;
mod lifo;
mod log;
mod main;
mod mix;
mod quota;
mod result;
mod run;
mod sleepers;
mod suite;
mod supervise;
mod title;
mod workload;

pub use main::main;
