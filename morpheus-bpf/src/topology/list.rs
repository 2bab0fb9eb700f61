// SPDX-License-Identifier: GPL-2.0-only
//! The kernel's lists of CPUs, such as "0-3,8".

/// No kernel is built for more CPUs. A list that names a higher one is not one.
pub const MOST_CPUS: u32 = 8192;

/// The numbers of a list, in order and each once. An empty text is an empty list. None where the text is no list.
#[must_use]
pub fn parse_cpu_list(text: &str) -> Option<Vec<u32>> {
    let text = text.trim();
    if text.is_empty() {
        return Some(Vec::new());
    }
    // Not a set that grows: ranges may overlap as often as they like.
    let mut named = vec![false; MOST_CPUS as usize];
    for part in text.split(',') {
        let (first, last) = match part.split_once('-') {
            Some((first, last)) => (number(first)?, number(last)?),
            None => (number(part)?, number(part)?),
        };
        named.get_mut(first..=last)?.fill(true);
    }
    let numbers = (0..MOST_CPUS).zip(named);
    Some(
        numbers
            .filter_map(|(cpu, named)| named.then_some(cpu))
            .collect(),
    )
}

/// A number of a CPU: digits alone, where `parse` would take a sign too.
fn number(text: &str) -> Option<usize> {
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u32 = text.parse().ok()?;
    (number < MOST_CPUS).then_some(number as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lists() {
        for (text, cpus) in [
            ("", &[][..]),
            ("\n", &[]),
            ("0\n", &[0]),
            ("0-3,8\n", &[0, 1, 2, 3, 8]),
            ("7,0-1,1,0", &[0, 1, 7]),
            ("8190-8191", &[8190, 8191]),
        ] {
            assert_eq!(parse_cpu_list(text).as_deref(), Some(cpus), "{text:?}");
        }
    }

    #[test]
    fn no_lists() {
        for text in [
            "x",
            ",",
            "0,",
            "-",
            "-1",
            "1-",
            "3-1",
            "+1",
            "0 1",
            "0-1-2",
            "8192",
            "0-8192",
            "0-4294967295",
            "0-18446744073709551615",
            "0x1",
            "١",
        ] {
            assert_eq!(parse_cpu_list(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_list_or_none(text in "[0-9,\\- x\n]{0,40}|.{0,40}") {
            if let Some(cpus) = parse_cpu_list(&text) {
                prop_assert!(cpus.is_sorted_by(|one, next| one < next));
            }
        }

        #[test]
        fn ranges_come_back(ranges in proptest::collection::vec((0..500u32, 0..20u32), 0..20)) {
            let text: Vec<_> =
                ranges.iter().map(|(first, more)| format!("{first}-{}", first + more)).collect();
            let mut expected: Vec<_> =
                ranges.iter().flat_map(|(first, more)| *first..=first + more).collect();
            expected.sort_unstable();
            expected.dedup();
            prop_assert_eq!(parse_cpu_list(&text.join(",")), Some(expected));
        }
    }
}
