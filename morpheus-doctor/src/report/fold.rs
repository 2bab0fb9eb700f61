//! A stack, shortened to what matters: the culprit, what it called, the application's own functions; runs of others are one line.

use std::collections::BTreeMap;

use crate::model::{Frame, Owner, Stack};
use crate::report::names::crate_of;
use crate::report::units::count;

/// Crates that a folded run names.
const MOST_CRATES: usize = 3;

/// A line of a shortened stack.
#[derive(Debug, PartialEq)]
pub enum Line<'a> {
    /// A function.
    Frame {
        /// Its frame.
        frame: &'a Frame,
        /// It is the culprit.
        culprit: bool,
    },
    /// Functions that are left out: `… 7 frames of tokio, core`.
    Folded(String),
}

/// The lines of a stack, innermost function first, at most about `most`. The culprit is always among them.
///
/// Shown are the application's functions, the innermost function, and the one that the culprit called.
#[must_use]
pub fn fold(stack: &Stack, most: usize) -> Vec<Line<'_>> {
    let frames = &stack.frames;
    let culprit = stack.culprit.filter(|index| *index < frames.len());
    let named = culprit.unwrap_or(0);
    let mut shown: Vec<bool> = frames
        .iter()
        .enumerate()
        .map(|(index, frame)| {
            index == 0 || index == named || index + 1 == named || frame.owner != Owner::Plumbing
        })
        .collect();
    thin(frames, &mut shown, named, most);
    // A run of a single frame takes as much room as its line would.
    for index in 0..frames.len() {
        let beside = |other: Option<usize>| {
            other
                .and_then(|other| shown.get(other))
                .is_none_or(|shown| *shown)
        };
        if !shown[index]
            && frames.len() <= most
            && beside(index.checked_sub(1))
            && beside(index.checked_add(1))
        {
            shown[index] = true;
        }
    }
    let mut lines = Vec::new();
    let mut run = 0..0;
    for (index, frame) in frames.iter().enumerate() {
        if !shown[index] {
            run.end = index + 1;
            continue;
        }
        push_run(&mut lines, &frames[run.clone()]);
        run = index + 1..index + 1;
        lines.push(Line::Frame {
            frame,
            culprit: culprit == Some(index),
        });
    }
    push_run(&mut lines, &frames[run]);
    lines
}

/// Hides the frames that matter least until few enough are left: the farther from the culprit, the less; other crates' sooner than the
/// application's.
fn thin(frames: &[Frame], shown: &mut [bool], named: usize, most: usize) {
    let mut rest = shown.iter().filter(|shown| **shown).count();
    if rest <= most {
        return;
    }
    let mut order: Vec<usize> = (0..frames.len()).filter(|index| shown[*index]).collect();
    order.sort_by_key(|index| {
        let is_fixed = *index == 0 || *index == named || *index + 1 == named;
        let is_own = frames[*index].owner == Owner::Application;
        (is_fixed, is_own, std::cmp::Reverse(index.abs_diff(named)))
    });
    for index in order {
        if rest <= most.max(3) {
            break;
        }
        shown[index] = false;
        rest -= 1;
    }
}

fn push_run(lines: &mut Vec<Line<'_>>, frames: &[Frame]) {
    if !frames.is_empty() {
        lines.push(Line::Folded(folded(frames)));
    }
}

/// `… 7 frames of tokio, core`: the crates with the most frames first; without crates, the modules.
#[must_use]
pub fn folded(frames: &[Frame]) -> String {
    let mut crates: BTreeMap<String, usize> = BTreeMap::new();
    for frame in frames {
        let name = crate_of(&frame.function).unwrap_or_else(|| frame.module.clone());
        *crates.entry(name).or_default() += 1;
    }
    let mut crates: Vec<(String, usize)> = crates.into_iter().collect();
    crates.sort_by_key(|(_, frames)| std::cmp::Reverse(*frames));
    let more = match crates.len() > MOST_CRATES {
        true => ", …",
        false => "",
    };
    let names: Vec<String> = crates
        .into_iter()
        .take(MOST_CRATES)
        .map(|(name, _)| name)
        .collect();
    format!(
        "… {} of {}{more}",
        count(frames.len() as u64, "frame", "frames"),
        names.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(of: &[(&str, Owner)], culprit: Option<usize>) -> Stack {
        let frame = |(function, owner): &(&str, Owner)| Frame {
            function: (*function).into(),
            file: None,
            line: None,
            module: "app".into(),
            address: 1,
            inlined: false,
            owner: *owner,
        };
        Stack {
            frames: of.iter().map(frame).collect(),
            culprit,
        }
    }

    fn texts(lines: &[Line]) -> Vec<String> {
        let text = |line: &Line| match line {
            Line::Frame {
                frame,
                culprit: true,
            } => format!("> {}", frame.function),
            Line::Frame { frame, .. } => frame.function.clone(),
            Line::Folded(text) => text.clone(),
        };
        lines.iter().map(text).collect()
    }

    #[test]
    fn what_matters_is_left() {
        use Owner::{Application, C, Library, Plumbing};
        let stack = stack(
            &[
                ("clock_nanosleep", C),
                ("std::sys::sleep", Plumbing),
                ("std::thread::inner", Plumbing),
                ("std::thread::sleep", Plumbing),
                ("app::load", Application),
                ("app::handler", Application),
                ("axum::call", Plumbing),
                ("tokio::poll", Plumbing),
                ("tokio::run", Plumbing),
                ("lib::f", Library),
                ("core::g", Plumbing),
            ],
            Some(4),
        );
        assert_eq!(
            texts(&fold(&stack, 10)),
            [
                "clock_nanosleep",
                "… 2 frames of std",
                "std::thread::sleep",
                "> app::load",
                "app::handler",
                "… 3 frames of tokio, axum",
                "lib::f",
                "… 1 frame of core",
            ]
        );
    }

    #[test]
    fn deep_stacks_are_thinned_around_the_culprit() {
        let mut of = vec![("lib::recursion", Owner::Library); 500];
        of[250] = ("app::deep", Owner::Application);
        of[251] = ("app::caller", Owner::Application);
        let stack = stack(&of, Some(250));
        let texts = texts(&fold(&stack, 8));
        assert!(texts.len() <= 14, "{texts:?}");
        assert!(
            texts.contains(&"> app::deep".to_owned()) && texts.contains(&"app::caller".to_owned())
        );
    }

    #[test]
    fn any_culprit_and_any_room() {
        for frames in 0..6 {
            let of = vec![("a::b", Owner::Plumbing); frames];
            for culprit in [None, Some(0), Some(frames), Some(usize::MAX)] {
                for most in 0..5 {
                    let stack = stack(&of, culprit);
                    assert!(fold(&stack, most).len() <= frames);
                }
            }
        }
    }
}
