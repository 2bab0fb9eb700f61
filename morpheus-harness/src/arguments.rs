//! Numbers and names on the command line, and what is said when one is wrong.

use clap::ValueEnum;

/// A parser for whole numbers within bounds.
pub fn counted(
    least: usize,
    most: usize,
) -> impl Fn(&str) -> Result<usize, String> + Clone + Send + Sync + 'static {
    move |text: &str| match text.parse::<usize>() {
        Ok(n) if (least..=most).contains(&n) => Ok(n),
        _ => Err(format!("a whole number from {least} to {most} is needed")),
    }
}

/// A parser for numbers within bounds.
pub fn measured(
    least: f64,
    most: f64,
) -> impl Fn(&str) -> Result<f64, String> + Clone + Send + Sync + 'static {
    move |text: &str| match text.parse::<f64>() {
        Ok(x) if (least..=most).contains(&x) => Ok(x),
        _ => Err(format!("a number from {least} to {most} is needed")),
    }
}

/// The name of a value on the command line.
pub fn name_of(value: &impl ValueEnum) -> String {
    let known = value.to_possible_value();
    known.map_or_else(String::new, |known| known.get_name().to_owned())
}

/// One of some names; `what` they are of is said where it is none of them.
pub fn one_of<'a>(
    name: &str,
    what: &str,
    names: impl IntoIterator<Item = &'a str>,
) -> Result<String, String> {
    let names: Vec<&str> = names.into_iter().collect();
    if names.contains(&name) {
        return Ok(name.to_owned());
    }
    Err(format!(
        "there is no such {what}: there are {}",
        names.join(", ")
    ))
}

/// Whether something of this name was asked for: by its name, or by none at all, which is all.
pub fn asked(asked: &[String], name: &str) -> bool {
    asked.is_empty() || asked.iter().any(|other| other == name)
}

/// For the tests of command lines: each line is bad usage, and what is said has the words beside it.
///
/// # Panics
/// When one is taken, or refused with other words or another exit code.
pub fn refuses<O: clap::Parser + std::fmt::Debug>(lines: &[(&str, &str)]) {
    for (line, expected) in lines {
        let words = std::iter::once("program").chain(line.split_whitespace());
        let error = O::try_parse_from(words).unwrap_err();
        assert!(error.to_string().contains(expected), "{line}: {error}");
        assert_eq!(error.exit_code(), 2, "{line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_kept_and_said() {
        assert_eq!(counted(1, 9)("9"), Ok(9));
        assert!(counted(1, 9)("0").unwrap_err().contains("from 1 to 9"));
        assert_eq!(measured(0.5, 2.0)("0.5"), Ok(0.5));
        assert!(measured(0.5, 2.0)("nan").is_err() && measured(0.5, 2.0)("x").is_err());
    }

    #[test]
    fn names_are_known_or_all_are_said() {
        let one = |name: &str| one_of(name, "loop", ["fnv", "crc"]);
        assert_eq!(one("crc"), Ok("crc".into()));
        let said = "there is no such loop: there are fnv, crc";
        assert_eq!(one("fn"), Err(said.into()));
        assert!(asked(&[], "fnv") && asked(&["fnv".into()], "fnv"));
        assert!(!asked(&["crc".into()], "fnv"));
    }
}
