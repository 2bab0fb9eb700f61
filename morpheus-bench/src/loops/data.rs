//! The input of the loops: the same numbers in every run.

use std::collections::HashMap;

use crate::random::Random;

/// Words of 32 bits, and turns of loops over them: more than the caches next to a core hold, and long enough for some
/// strips even where the loop is vectorised.
pub const WIDE: usize = 1 << 20;
/// Bytes, likewise.
pub const BYTES: usize = 1 << 22;
/// Turns of loops that take a nanosecond or more for each.
pub const SOME: usize = 1 << 18;
/// Turns of loops that take a hundred or more.
pub const FEW: usize = 1 << 13;
/// The width of the matrices, and the length of loops inside loops.
pub const ROW: usize = 64;
/// How far the sieve goes.
pub const SIEVED: usize = 1 << 20;

/// Inputs, which no loop writes to, and what loops write.
pub struct Data {
    /// That.
    pub out: Written,
    /// Lower-case words with blanks between them, and behind [`BYTES`] of them a byte that is in none.
    pub text: Vec<u8>,
    /// [`WIDE`] and one more, for loops that look at neighbours.
    pub words: Vec<u32>,
    /// In ascending order, and as many.
    pub sorted: Vec<u32>,
    /// As many, of either sign.
    pub signed: Vec<i32>,
    /// [`WIDE`] halves of them.
    pub longs: Vec<u64>,
    /// [`WIDE`], between 0 and 1.
    pub floats: Vec<f32>,
    /// As many as `longs`.
    pub doubles: Vec<f64>,
    /// [`SOME`] numbers below [`WIDE`], in no order.
    pub indices: Vec<u32>,
    /// A permutation of [`SOME`] in one cycle.
    pub next: Vec<u32>,
    /// [`SOME`] numbers as people write them.
    pub decimals: Vec<String>,
    /// A word for each of the first numbers of `indices`.
    pub map: HashMap<u32, u32>,
    /// The table of the cyclic redundancy check.
    pub crc: [u32; 256],
    /// [`ROW`] × [`ROW`].
    pub matrix: Vec<f32>,
}

/// The output of the loops.
#[derive(Debug, PartialEq)]
pub struct Written {
    /// As long as the text.
    pub text: Vec<u8>,
    /// As many as there are words.
    pub words: Vec<u32>,
    /// As many as there are longs.
    pub longs: Vec<u64>,
    /// As many as there are floats.
    pub floats: Vec<f32>,
    /// How often a byte comes.
    pub bins: Vec<u32>,
    /// Text.
    pub line: String,
    /// Whether a number is composed.
    pub sieve: Vec<bool>,
}

impl Written {
    fn new() -> Self {
        Self {
            text: vec![0; BYTES + 1],
            words: vec![0; WIDE + 1],
            longs: vec![0; WIDE / 2],
            floats: vec![0.0; WIDE],
            bins: vec![0; 256],
            line: String::new(),
            sieve: vec![false; SIEVED],
        }
    }
}

impl Data {
    /// Makes it.
    pub fn new() -> Self {
        let mut random = Random::new(0x9E37_79B9_7F4A_7C15);
        let next = random.cycle(SOME).into_iter().map(|place| place as u32);
        let next = next.collect();
        let mut numbers = std::iter::repeat_with(|| random.bits());
        let letter = |n: u64| match n % 6 {
            0 => b' ',
            _ => b'a' + (n >> 8) as u8 % 26,
        };
        let mut text: Vec<u8> = numbers.by_ref().take(BYTES).map(letter).collect();
        text.push(0xff);
        let words = numbers.by_ref().take(WIDE + 1).map(|n| n as u32);
        let words: Vec<u32> = words.collect();
        let unit = |n: u64| (n >> 40) as f32 / (1 << 24) as f32;
        let floats: Vec<f32> = numbers.by_ref().take(WIDE).map(unit).collect();
        let longs: Vec<u64> = numbers.by_ref().take(WIDE / 2).collect();
        let indices = numbers.take(SOME).map(|n| n as u32 % WIDE as u32);
        let indices: Vec<u32> = indices.collect();
        let crc = std::array::from_fn(|i| {
            (0..8).fold(i as u32, |c, _| {
                (c >> 1) ^ (0xEDB8_8320 & (c & 1).wrapping_neg())
            })
        });
        Self {
            out: Written::new(),
            text,
            sorted: (0..words.len() as u32).collect(),
            signed: words.iter().map(|n| *n as i32).collect(),
            doubles: longs.iter().map(|n| *n as f64).collect(),
            longs,
            map: indices.iter().take(FEW).map(|n| (*n, n ^ 1)).collect(),
            decimals: words.iter().take(SOME).map(u32::to_string).collect(),
            indices,
            next,
            crc,
            matrix: floats[..ROW * ROW].to_vec(),
            words,
            floats,
        }
    }

    /// Takes the output that loops have written since the last call.
    pub fn take(&mut self) -> Written {
        std::mem::replace(&mut self.out, Written::new())
    }
}
