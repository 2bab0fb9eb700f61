//! The forms that one loop is written in, and the macro that writes them.

use std::fmt;
use std::pin::Pin;

use super::data::Data;

/// How a loop passes checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// It passes none.
    Plain,
    /// `checkpoint().await` after each block of a given number of turns.
    Checkpoint,
    /// `strips`: each strip is a range of indices, and the loop over it is an ordinary one.
    Strips,
    /// `.strip()` in the chain of iterators.
    Strip,
    /// `strip!` around the `for` loop.
    Macro,
    /// `checkpoint().await` at the end of each turn: what not to do where a turn is short.
    EveryTurn,
}

impl Form {
    /// All that are compared with [`Form::Plain`].
    pub const COMPARED: [Form; 5] = [
        Form::Checkpoint,
        Form::Strips,
        Form::Strip,
        Form::Macro,
        Form::EveryTurn,
    ];

    /// How much longer than plain a loop may take in this form, as a share; `None` for what is only a control.
    pub fn worst(self) -> Option<f64> {
        match self {
            Form::Plain | Form::EveryTurn => None,
            // 99.5 % of the throughput.
            Form::Checkpoint => Some(1.0 / 0.995 - 1.0),
            Form::Strips | Form::Strip | Form::Macro => Some(0.05),
        }
    }

    /// The same for the mean of all loops.
    pub fn mean(self) -> Option<f64> {
        match self {
            Form::Checkpoint => self.worst(),
            _ => self.worst().map(|_| 0.01),
        }
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Form::Plain => "plain",
            Form::Checkpoint => "checkpoint",
            Form::Strips => "strips",
            Form::Strip => ".strip()",
            Form::Macro => "strip!",
            Form::EveryTurn => "every turn",
        })
    }
}

/// A loop that runs on the data and says what came out.
pub type Now = fn(&mut Data, usize) -> u64;
/// The same where it may yield.
pub type Later = for<'a> fn(&'a mut Data, usize) -> Pin<Box<dyn Future<Output = u64> + Send + 'a>>;
/// The same with the length of its blocks.
pub type Blocks =
    for<'a> fn(&'a mut Data, usize, usize) -> Pin<Box<dyn Future<Output = u64> + Send + 'a>>;

/// A loop.
pub struct Case {
    /// The name for `--case`.
    pub name: &'static str,
    /// A description of the loop.
    pub about: &'static str,
    /// Whether the compiler vectorises it where nothing is in the way.
    pub vectorised: bool,
    /// Turns of one run.
    pub turns: usize,
    /// Without checkpoints.
    pub plain: Now,
    /// With `.strip()`.
    pub strip: Now,
    /// Cut by `strips`.
    pub strips: Later,
    /// With `strip!`.
    pub by_macro: Later,
    /// With a checkpoint after each block.
    pub checkpoint: Blocks,
    /// With a checkpoint after each turn.
    pub every_turn: Later,
}

impl Case {
    /// Runs `turns` turns of it. `block` is for [`Form::Checkpoint`] alone.
    pub async fn run(&self, form: Form, data: &mut Data, turns: usize, block: usize) -> u64 {
        match form {
            Form::Plain => (self.plain)(data, turns),
            Form::Strip => (self.strip)(data, turns),
            Form::Strips => (self.strips)(data, turns).await,
            Form::Macro => (self.by_macro)(data, turns).await,
            Form::EveryTurn => (self.every_turn)(data, turns).await,
            Form::Checkpoint => (self.checkpoint)(data, turns, block).await,
        }
    }
}

/// Writes `for` loops in all forms: `NAME "what it does" [kind] turns; for ITEM in |data, at| ITEMS; with SUM: TYPE = FIRST
/// => RESULT; BODY`. `at` is the range of indices that a part of the loop goes through, and `SUM` what it carries along.
///
/// Plain, in strips and in blocks the same function runs, for all or for a part of the range.
macro_rules! loops {
    ($(
        $name:ident $about:literal [$kind:ident] $turns:expr;
        for $item:pat in |$data:ident, $at:ident| $items:expr;
        with $sum:ident: $type:ty = $first:expr => $result:expr;
        $body:block
    )*) => {
        $(
            #[allow(unused_mut, unused_variables, unused_assignments, unused_parens, reason = "some loops carry nothing along")]
            mod $name {
                use super::*;

                #[inline(never)]
                fn part($data: &mut Data, $at: Range<usize>, mut $sum: $type) -> $type {
                    for $item in ($items) $body
                    $sum
                }

                pub fn plain($data: &mut Data, turns: usize) -> u64 {
                    let $sum = part($data, 0..turns, $first);
                    $result
                }

                #[inline(never)]
                pub fn strip($data: &mut Data, turns: usize) -> u64 {
                    let ($at, mut $sum): (Range<usize>, $type) = (0..turns, $first);
                    ($items).strip().for_each(|$item| $body);
                    $result
                }

                pub async fn strips($data: &mut Data, turns: usize) -> u64 {
                    let mut $sum: $type = $first;
                    let mut parts = morpheus_runtime::strips(0..turns);
                    while let Some(at) = parts.next_or_yield().await {
                        $sum = part($data, at, $sum);
                    }
                    $result
                }

                pub async fn by_macro($data: &mut Data, turns: usize) -> u64 {
                    let ($at, mut $sum): (Range<usize>, $type) = (0..turns, $first);
                    strip!(for $item in ($items) $body);
                    $result
                }

                pub async fn checkpoint($data: &mut Data, turns: usize, block: usize) -> u64 {
                    let mut $sum: $type = $first;
                    for start in (0..turns).step_by(block) {
                        $sum = part($data, start..turns.min(start + block), $sum);
                        morpheus_runtime::checkpoint().await;
                    }
                    $result
                }

                pub async fn every_turn($data: &mut Data, turns: usize) -> u64 {
                    let ($at, mut $sum): (Range<usize>, $type) = (0..turns, $first);
                    for $item in ($items) {
                        $body
                        morpheus_runtime::checkpoint().await;
                    }
                    $result
                }
            }
        )*
        /// Those of them, in this order.
        const LOOPS: &[Case] = &[$(case!($name $about $kind $turns)),*];
    };
}

/// Writes loops that end early in all forms: `NAME "what it does" [kind] turns; part |data, at| FOUND; strip FOUND; for ITEM in
/// ITEMS; until FOUND_IT => RESULT, else RESULT`. They go through everything here, since what ends them comes last, or not at all.
///
/// `part` is the loop as an iterator does it, for all or for a part of the range, and `strip` the same with `.strip()`: the
/// result, if something ends it.
macro_rules! searches {
    ($(
        $name:ident $about:literal [$kind:ident] $turns:expr;
        part |$data:ident, $at:ident| $part:expr;
        strip $strip:expr;
        for $item:pat in $items:expr;
        until $is_found:expr => $result:expr, else $without:expr;
    )*) => {
        $(
            mod $name {
                use super::*;

                #[inline(never)]
                fn part($data: &Data, $at: Range<usize>) -> Option<u64> {
                    $part
                }

                pub fn plain(data: &mut Data, turns: usize) -> u64 {
                    part(data, 0..turns).unwrap_or($without)
                }

                #[inline(never)]
                pub fn strip($data: &mut Data, turns: usize) -> u64 {
                    let $at = 0..turns;
                    $strip.unwrap_or($without)
                }

                pub async fn strips(data: &mut Data, turns: usize) -> u64 {
                    let mut parts = morpheus_runtime::strips(0..turns);
                    while let Some(at) = parts.next_or_yield().await {
                        if let Some(result) = part(data, at) {
                            return result;
                        }
                    }
                    $without
                }

                pub async fn by_macro($data: &mut Data, turns: usize) -> u64 {
                    let ($at, mut result) = (0..turns, $without);
                    strip!(for $item in $items {
                        if $is_found {
                            result = $result;
                            break;
                        }
                    });
                    result
                }

                pub async fn checkpoint(data: &mut Data, turns: usize, block: usize) -> u64 {
                    for start in (0..turns).step_by(block) {
                        if let Some(result) = part(data, start..turns.min(start + block)) {
                            return result;
                        }
                        morpheus_runtime::checkpoint().await;
                    }
                    $without
                }

                pub async fn every_turn($data: &mut Data, turns: usize) -> u64 {
                    let $at = 0..turns;
                    for $item in $items {
                        if $is_found {
                            return $result;
                        }
                        morpheus_runtime::checkpoint().await;
                    }
                    $without
                }
            }
        )*
        /// Those of them, in this order.
        const SEARCHES: &[Case] = &[$(case!($name $about $kind $turns)),*];
    };
}

/// A row of the table, of functions in the module of that name.
macro_rules! case {
    ($name:ident $about:literal $kind:ident $turns:expr) => {
        Case {
            name: stringify!($name),
            about: $about,
            vectorised: matches!(Kind::$kind, Kind::vectorised),
            turns: $turns,
            plain: $name::plain,
            strip: $name::strip,
            strips: |data, turns| Box::pin($name::strips(data, turns)),
            by_macro: |data, turns| Box::pin($name::by_macro(data, turns)),
            checkpoint: |data, turns, block| Box::pin($name::checkpoint(data, turns, block)),
            every_turn: |data, turns| Box::pin($name::every_turn(data, turns)),
        }
    };
}

pub(super) use {case, loops, searches};
