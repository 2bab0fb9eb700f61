//! `cargo xtask scale`: a benchmark that changes the scheduler of the whole machine, in guests.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Args;

use crate::context::Context;
use crate::rounds::{self, Clock, Peer, Plan};

/// A round of `scale` takes two minutes for each scheduler, of which there are few.
const SCALE_LIMIT_S: u64 = 1800;
/// The prefix of the names of others' schedulers.
const SCX: &str = "scx_";
/// This project's own scheduler, which has the same prefix.
const OWN: &str = "scx_morpheus";

/// The options of `scale`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ScaleArgs {
    /// How many rounds, each in a boot of its own
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=100))]
    rounds: u16,
    /// The kernel: a series or a file, as of `cargo xtask vm`
    #[arg(long, value_name = "SERIES|PATH", default_value = "6.18")]
    kernel: String,
    /// CPUs of the guest; more than the machine has are for function, not for figures
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    cpus: u16,
    /// Under these: 'default', 'morpheus', or the command lines of programs in target/peers/bin
    #[arg(
        long,
        value_name = "NAME,…",
        value_delimiter = ',',
        default_value = "default,morpheus,scx_bpfland,scx_pandemonium"
    )]
    schedulers: Vec<String>,
    /// In the guest's own time, whatever else the host does: for suites that look for long waits, not for latencies
    #[arg(long)]
    virtual_time: bool,
    /// A guest that takes longer is lost
    #[arg(long, value_name = "S", default_value_t = SCALE_LIMIT_S, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout_s: u64,
    /// Further arguments of the benchmark; `cargo run --release --bin scale -- --help` shows them
    #[arg(
        value_name = "ARGUMENT",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    arguments: Vec<OsString>,
}

/// Measures with `scale`; ends with 0, with 1 when a figure is missing, with 130 after Ctrl-C.
pub(crate) fn scale(context: &Context, args: &ScaleArgs) -> ExitCode {
    rounds::run(context, &scale_plan(context, args))
}

fn scale_plan(context: &Context, args: &ScaleArgs) -> Plan {
    let schedulers: OsString = args.schedulers.join(",").into();
    let peers = peers(context, &args.schedulers);
    let (cpus, more) = (args.cpus, args.arguments.clone());
    Plan {
        bench: "scale",
        name: "scale",
        rounds: args.rounds,
        kernel: args.kernel.clone(),
        cpus: Box::new(move |_| cpus),
        caches: Box::new(|_| 1),
        seed: Box::new(u32::from),
        clock: if args.virtual_time {
            Clock::VIRTUAL
        } else {
            Clock::Host
        },
        complaints_count: false,
        limit_s: args.timeout_s,
        peers,
        arguments: Box::new(move |boot| {
            // Each boot is an iteration of its own: what is compared is of the same one.
            let boot = boot.to_string();
            let words = ["--iterations", "1", "--first-iteration", &boot];
            let under = [OsString::from("--schedulers"), schedulers.clone()];
            let words = words.iter().map(OsString::from);
            words.chain(under).chain(more.iter().cloned()).collect()
        }),
        table: Vec::new(),
    }
}

/// The programs of others among these, each once.
fn peers(context: &Context, schedulers: &[String]) -> Vec<Peer> {
    let mut names: Vec<&str> = schedulers
        .iter()
        .filter_map(|command| command.split_whitespace().next())
        .filter(|name| name.starts_with(SCX) && *name != OWN)
        .collect();
    names.sort_unstable();
    names.dedup();
    names
        .into_iter()
        .map(|name| Peer::installed(context, name))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use std::path::PathBuf;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: ScaleArgs,
    }

    fn context() -> Context {
        Context {
            root: "/project".into(),
            target: "/project/target".into(),
        }
    }

    fn plan(line: &str) -> Plan {
        let words = std::iter::once("scale").chain(line.split_whitespace());
        scale_plan(&context(), &Line::parse_from(words).args)
    }

    #[test]
    fn peers_are_where_cargo_installs_them_and_missing_ones_say_how() {
        let paths = |line: &str| -> Vec<PathBuf> {
            plan(line).peers.into_iter().map(|peer| peer.path).collect()
        };
        let both = ["scx_bpfland", "scx_pandemonium"]
            .map(|name| PathBuf::from(format!("/project/target/peers/bin/{name}")));
        assert_eq!(paths(""), both);
        assert!(paths("--schedulers default,morpheus,scx_morpheus").is_empty());
        let pandemonium = &plan("").peers[1];
        let expected =
            "cargo install --locked scx_pandemonium --version 5.23.1 --root /project/target/peers";
        assert!(pandemonium.advice.starts_with(expected), "{pandemonium:?}");
    }

    #[test]
    fn each_round_is_an_iteration_and_further_arguments_are_passed_on() {
        let plan = plan("--rounds 2 --schedulers default -- --only latency --duration 5");
        let expected =
            "--iterations 1 --first-iteration 2 --schedulers default --only latency --duration 5";
        let words = expected.split(' ').map(OsString::from);
        assert!((plan.arguments)(2).into_iter().eq(words));
        assert_eq!(
            (plan.rounds, plan.kernel.as_str(), (plan.cpus)(1)),
            (2, "6.18", 2)
        );
    }

    #[test]
    fn in_virtual_time_each_round_has_a_seed_of_its_own() {
        let plan = plan("--virtual-time -- --suite contention");
        assert_eq!(plan.clock, Clock::VIRTUAL);
        assert_eq!([1, 2].map(|round| (plan.seed)(round)), [1, 2]);
    }
}
