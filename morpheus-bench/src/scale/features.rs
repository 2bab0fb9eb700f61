//! The features of Morpheus's scheduler that can be switched: its program says so itself, so that no copy of the list grows old.

use std::process::{Command, Stdio};

use super::contender::{Contender, OWN};

/// The program's option.
const WITHOUT: &str = "--without";
/// And for what is off unless it is asked for; the program's help says "unless --with" of those.
const WITH: &str = "--with";
/// The program's option: else a scheduler would know tasks from the ones that were measured before it.
pub const WITHOUT_DATABASE: &str = "--no-procdb";

/// A feature, and whether the scheduler has it when nothing is said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feature {
    pub name: String,
    pub is_on: bool,
}

impl Feature {
    /// The one that a scheduler of this name is without, or has beside the others, where it is Morpheus's and else as it is.
    pub fn of(scheduler: &str) -> Option<Feature> {
        let words: Vec<&str> = scheduler.split_whitespace().collect();
        let [own, option, name] = words[..] else {
            return None;
        };
        let is_on = match option {
            WITHOUT => true,
            WITH => false,
            _ => return None,
        };
        (own == OWN[0] && !name.contains(',')).then(|| Feature {
            name: name.to_owned(),
            is_on,
        })
    }

    /// The name of the scheduler that differs by this feature.
    pub fn scheduler(&self) -> String {
        let option = if self.is_on { WITHOUT } else { WITH };
        format!("{} {option} {}", OWN[0], self.name)
    }
}

/// The scheduler as it is, without each of these features (with it, if it is off by default), and as it is again: in the order in
/// which they are measured.
///
/// # Errors
/// When the program cannot be asked, or does not know one of them.
pub fn contenders(named: &[&str]) -> Result<Vec<Contender>, String> {
    // By both of its names: what these two differ by is chance.
    let [own, again] = OWN.map(str::parse::<Contender>);
    let own = own?;
    let program = own.program().ok_or("no program")??;
    let told = Command::new(&program)
        .arg("--help")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{} cannot be asked: {error}", program.display()))?;
    let known = parse(&String::from_utf8_lossy(&told.stdout));
    let differing = choose(&known, named)?;
    let differing = differing.iter().map(|feature| feature.scheduler().parse());
    std::iter::once(Ok(own))
        .chain(differing)
        .chain([again])
        .collect()
}

/// The values of the option in the program's long help: `- name: what it is`, beneath it and above the next one.
fn parse(help: &str) -> Vec<Feature> {
    let lines = help.lines().map(str::trim);
    let own = lines.skip_while(|line| !is_option(line) || !line.contains(WITHOUT));
    let mut features: Vec<Feature> = Vec::new();
    for line in own.skip(1).take_while(|line| !is_option(line)) {
        let named = line
            .strip_prefix("- ")
            .and_then(|line| line.split_once(':'));
        if let Some((name, _)) = named {
            features.push(Feature {
                name: name.to_owned(),
                is_on: true,
            });
        }
        if let Some(feature) = features.last_mut() {
            feature.is_on &= !line.contains("unless --with");
        }
    }
    features
}

fn is_option(line: &str) -> bool {
    line.starts_with('-') && !line.starts_with("- ")
}

fn choose(known: &[Feature], named: &[&str]) -> Result<Vec<Feature>, String> {
    let find = |name: &&str| {
        let found = known.iter().find(|feature| feature.name == *name);
        found.cloned().ok_or_else(|| {
            let names: Vec<&str> = known.iter().map(|feature| feature.name.as_str()).collect();
            format!(
                "--ablation {name}: the scheduler has no such feature; it has {}",
                names.join(", ")
            )
        })
    };
    named.iter().map(find).collect()
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
          - deficit: One has
            its turn. Off unless --with says so
          - boost:   Some names

          [alias: --off]

      --mode <MODE>
          Possible values:
          - enforce: x
";

    fn names(features: &[Feature]) -> Vec<String> {
        features.iter().map(Feature::scheduler).collect()
    }

    #[test]
    fn the_list_is_the_programs() {
        assert_eq!(
            names(&parse(HELP)),
            [
                "morpheus --without request",
                "morpheus --without tiers",
                "morpheus --with deficit",
                "morpheus --without boost"
            ]
        );
        assert!(parse("nothing").is_empty());
    }

    #[test]
    fn those_that_are_named_have_to_be_known() {
        let known = parse(HELP);
        assert_eq!(choose(&known, &["request"]).unwrap(), known[..1]);
        let error = choose(&known, &["speed"]).unwrap_err();
        assert!(error.contains("it has request, tiers"), "{error}");
    }

    #[test]
    fn what_a_name_differs_by() {
        for name in ["morpheus --without tiers", "morpheus --with deficit"] {
            assert_eq!(Feature::of(name).unwrap().scheduler(), name);
        }
        for other in [
            "morpheus",
            "morpheus --without",
            "morpheus --without a,b",
            "morpheus --without a --without b",
            "morpheus --slice-us 5",
            "default",
        ] {
            assert_eq!(Feature::of(other), None, "{other}");
        }
    }
}
