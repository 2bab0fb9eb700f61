//! What can be switched off in Morpheus's scheduler: its program says so itself, so that no copy of the list grows old.

use std::process::{Command, Stdio};

use super::case::Case;
use super::contender::Contender;

/// The scheduler as it is, and again: the same program by both of its names. What these differ by is chance.
pub const SAME: [&str; 2] = ["morpheus", "scx_morpheus"];
/// The program's option.
pub const WITHOUT: &str = "--without";
/// The first of the features that schedule the whole machine; those before it are about the workers of applications.
const FIRST: &str = "tiers";
/// What they are measured by.
pub const CASES: [Case; 8] = [
    Case::Throughput,
    Case::Latency,
    Case::Burst,
    Case::Longrun,
    Case::Mixed,
    Case::Deadline,
    Case::Ipc,
    Case::Messaging,
];

/// The scheduler as it is, twice, and without each of these features: in the order in which they are measured. All that
/// schedule the whole machine where none is named.
///
/// # Errors
/// When the program cannot be asked, or does not know one of them.
pub fn contenders(named: &[String]) -> Result<Vec<Contender>, String> {
    let [own, again] = SAME.map(str::parse::<Contender>);
    let own = own?;
    let program = own.program().ok_or("no program")??;
    let told = Command::new(&program)
        .arg("--help")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{} cannot be asked: {error}", program.display()))?;
    let known = parse(&String::from_utf8_lossy(&told.stdout));
    let chosen = choose(&known, named)?;
    let without = |feature: &String| format!("{} {WITHOUT} {feature}", SAME[0]).parse();
    let mut all: Vec<Contender> = chosen.iter().map(without).collect::<Result<_, _>>()?;
    // Not beside each other: what changes with time is in what they differ by.
    all.insert(all.len() / 2, again?);
    all.insert(0, own);
    Ok(all)
}

/// The values of the option in the program's long help: `- name: what it is`, beneath it and above the next one.
fn parse(help: &str) -> Vec<String> {
    let lines = help.lines().map(str::trim);
    let own = lines.skip_while(|line| !is_option(line) || !line.contains(WITHOUT));
    own.skip(1)
        .take_while(|line| !is_option(line))
        .filter_map(|line| line.strip_prefix("- ")?.split_once(':'))
        .map(|(name, _)| name.to_owned())
        .collect()
}

fn is_option(line: &str) -> bool {
    line.starts_with('-') && !line.starts_with("- ")
}

fn choose(known: &[String], named: &[String]) -> Result<Vec<String>, String> {
    if let Some(other) = named.iter().find(|name| !known.contains(name)) {
        return Err(format!(
            "--ablation {other}: the scheduler has no such feature; it has {}",
            known.join(", ")
        ));
    }
    if !named.is_empty() {
        return Ok(named.to_vec());
    }
    let first = known.iter().position(|name| name == FIRST);
    first
        .map(|first| known[first..].to_vec())
        .ok_or_else(|| "the scheduler's --help names no feature to switch off".into())
}

/// The feature that a scheduler of this name is without, where it is Morpheus's and as it is but for that.
pub fn missing(name: &str) -> Option<&str> {
    let rest = name.strip_prefix(SAME[0])?.trim_start();
    let feature = rest.strip_prefix(WITHOUT)?.trim_start();
    (!feature.is_empty() && !feature.contains([' ', ','])).then_some(feature)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELP: &str = "\
Options:
      --observe
          See --without

          Possible values:
          - no: not this

      --without <MECHANISM>
          Switch a mechanism off

          Possible values:
          - request: Polls are asked: to yield
          - tiers:   Tasks are known
          - deficit: One has its turn

          [alias: --off]

      --mode <MODE>
          Possible values:
          - enforce: x
";

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn the_list_is_the_programs() {
        assert_eq!(parse(HELP), words("request tiers deficit"));
        assert!(parse("nothing").is_empty());
    }

    #[test]
    fn those_of_the_machine_or_those_that_are_named() {
        let known = parse(HELP);
        assert_eq!(choose(&known, &[]).unwrap(), words("tiers deficit"));
        let one = words("request");
        assert_eq!(choose(&known, &one).unwrap(), one);
        let error = choose(&known, &words("speed")).unwrap_err();
        assert!(error.contains("it has request, tiers"), "{error}");
        assert!(choose(&[], &[]).is_err());
    }

    #[test]
    fn what_a_name_is_without() {
        assert_eq!(missing("morpheus --without tiers"), Some("tiers"));
        for other in [
            "morpheus",
            "morpheus --without",
            "morpheus --without a,b",
            "morpheus --without a --without b",
            "default",
        ] {
            assert_eq!(missing(other), None, "{other}");
        }
    }
}
