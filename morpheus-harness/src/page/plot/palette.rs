//! Colours, the same for the same thing in every plot.
//!
//! They differ for people who see fewer colours, too (after Okabe and Ito), and each goes with a mark of its own form: no
//! plot has to be read by colour.

use std::collections::HashMap;

use super::drawing::{Ink, SLOTS};

/// On white, and on a dark page.
const SERIES: [(&str, &str); SLOTS] = [
    ("#0072b2", "#5ab4ee"),
    ("#d55e00", "#ff8f4a"),
    ("#00875f", "#35c79a"),
    ("#b0508f", "#e79ccb"),
    ("#c08000", "#f2b740"),
    ("#3b97cf", "#9adcff"),
    ("#66707a", "#b4bdc6"),
    ("#7d2a55", "#d77aa8"),
];
const TEXT: (&str, &str) = ("#1b1f24", "#e8eaed");
const MUTED: (&str, &str) = ("#59626b", "#a9b1ba");
const GRID: (&str, &str) = ("#dfe3e7", "#363c43");
const REFERENCE: (&str, &str) = ("#3c444c", "#c9d0d6");

/// The class of an ink, and its colours.
fn look(ink: Ink) -> (String, (&'static str, &'static str)) {
    match ink {
        Ink::Text => ("ink".into(), TEXT),
        Ink::Muted => ("muted".into(), MUTED),
        Ink::Grid => ("grid".into(), GRID),
        Ink::Reference => ("ref".into(), REFERENCE),
        Ink::Series(slot) => (format!("s{}", slot % SLOTS), SERIES[slot % SLOTS]),
    }
}

/// The class of an ink in the page.
pub fn class(ink: Ink) -> String {
    look(ink).0
}

/// The classes, as rules of a style sheet; for the dark page or the other.
pub fn rules(dark: bool) -> String {
    let inks = [Ink::Text, Ink::Muted, Ink::Grid, Ink::Reference];
    let inks = inks.into_iter().chain((0..SLOTS).map(Ink::Series));
    inks.map(|ink| {
        let (class, (light, on_dark)) = look(ink);
        let colour = if dark { on_dark } else { light };
        format!(".{class}{{color:{colour}}}")
    })
    .collect()
}

/// The place that a name has wherever it is shown.
fn fixed(name: &str) -> Option<usize> {
    let name = name.to_lowercase();
    let tokio = |rest: &str| match rest {
        "" => 1,
        "-rewritten" => 5,
        "-bounded" => 6,
        rest if rest.ends_with("+slice") || rest == "-tuned" => 7,
        _ => 4,
    };
    match name.as_str() {
        "morpheus" | "scx_morpheus" => Some(0),
        "smol" | "scx_bpfland" => Some(2),
        "go" => Some(3),
        "default/lazy" | "liar" => Some(1),
        "default/full" | "hog" => Some(4),
        "nobody" => Some(6),
        _ => name.strip_prefix("tokio").map(tokio),
    }
}

/// Places for names of one plot: those that have one wherever they are, and the others in order.
pub fn places(names: &[String]) -> Vec<usize> {
    let mut taken: Vec<usize> = names.iter().filter_map(|name| fixed(name)).collect();
    let mut free = || {
        let order = [0, 1, 2, 3, 4, 5, 7, 6];
        let slot = order.into_iter().find(|slot| !taken.contains(slot));
        let slot = slot.unwrap_or(taken.len() % SLOTS);
        taken.push(slot);
        slot
    };
    let mut slots: HashMap<&String, usize> = HashMap::new();
    let slot = |name| {
        let slot = slots.entry(name);
        *slot.or_insert_with(|| fixed(name).unwrap_or_else(&mut free))
    };
    names.iter().map(slot).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(names: &[&str]) -> Vec<usize> {
        places(
            &names
                .iter()
                .map(|name| (*name).to_owned())
                .collect::<Vec<_>>(),
        )
    }

    #[test]
    fn executors_have_their_colour_in_whatever_order() {
        assert_eq!(named(&["morpheus", "tokio", "go"]), [0, 1, 3]);
        assert_eq!(
            named(&["go", "tokio+64", "tokio+32+slice", "tokio"]),
            [3, 4, 7, 1]
        );
    }

    #[test]
    fn others_take_what_is_left_and_keep_it() {
        assert_eq!(named(&["a", "morpheus", "b", "a"]), [1, 0, 2, 1]);
        let many: Vec<String> = (0..30).map(|i| format!("x{i}")).collect();
        assert!(places(&many).iter().all(|slot| *slot < SLOTS));
    }

    /// By the formula of WCAG 2: 3 for marks and lines, 4.5 for text.
    #[test]
    fn colours_stand_out_from_their_page() {
        let luminance = |hex: &str| {
            let channel = |at: usize| {
                let c = f64::from(u8::from_str_radix(&hex[at..at + 2], 16).unwrap()) / 255.0;
                if c <= 0.03928 {
                    c / 12.92
                } else {
                    ((c + 0.055) / 1.055).powf(2.4)
                }
            };
            0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5)
        };
        let contrast = |a: &str, b: &str| {
            let (a, b) = (luminance(a), luminance(b));
            (a.max(b) + 0.05) / (a.min(b) + 0.05)
        };
        for (light, dark) in SERIES {
            assert!(contrast(light, "#ffffff") >= 3.0, "{light}");
            assert!(contrast(dark, "#15181c") >= 3.0, "{dark}");
        }
        for (light, dark) in [TEXT, MUTED, REFERENCE] {
            assert!(contrast(light, "#ffffff") >= 4.5, "{light}");
            assert!(contrast(dark, "#15181c") >= 4.5, "{dark}");
        }
        assert!(rules(false).contains(".s0{color:#0072b2}"));
    }
}
