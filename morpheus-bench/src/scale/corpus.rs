//! A job that computers really do: compressing text. The text is made up, and the same in every run.

use std::io::Write;

use flate2::Compression;
use flate2::write::DeflateEncoder;
use morpheus_harness::clock;

use crate::random::Random;

/// Bytes that are compressed at a time.
pub const BLOCK: usize = 128 << 10;
/// Bytes between two pauses.
const PIECE: usize = 1 << 10;
/// Blocks of different text; they are compressed in turns.
const BLOCKS: usize = 8;
/// How many different words there are.
const WORDS: usize = 4_096;

/// Text to compress.
#[derive(Debug)]
pub struct Corpus {
    text: Vec<u8>,
    next: usize,
}

impl Corpus {
    /// Text with words of two to nine letters, of which few are frequent and most are rare, as in a language.
    pub fn new() -> Self {
        let mut random = Random::new(0x2545_F491_4F6C_DD1D);
        let words: Vec<Vec<u8>> = (0..WORDS)
            .map(|_| {
                let length = 2 + random.below(8);
                (0..length).map(|_| b'a' + random.below(26) as u8).collect()
            })
            .collect();
        let mut text = Vec::with_capacity(BLOCK * BLOCKS + 16);
        while text.len() < BLOCK * BLOCKS {
            // The smallest of three, each up to the last: the first words come often, the last ones hardly ever.
            let rank = (0..3).fold(WORDS, |most, _| random.below(most));
            text.extend_from_slice(&words[rank]);
            text.push(if random.below(12) == 0 { b'\n' } else { b' ' });
        }
        text.truncate(BLOCK * BLOCKS);
        Self { text, next: 0 }
    }

    /// Compresses the next block, and says how long it is then.
    pub fn compress(&mut self) -> usize {
        let from = self.next * BLOCK;
        self.next = (self.next + 1) % BLOCKS;
        compress(&self.text[from..from + BLOCK]).len()
    }
}

fn compress(text: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::with_capacity(BLOCK), Compression::default());
    for piece in text.chunks(PIECE) {
        encoder
            .write_all(piece)
            .expect("memory takes all that is written");
        // As in `work::compute_in_turn`.
        std::hint::spin_loop();
    }
    encoder.finish().expect("likewise")
}

/// Blocks that a CPU compresses in a second.
pub fn blocks_per_s() -> f64 {
    let mut corpus = Corpus::new();
    let fastest = clock::fastest(BLOCKS, || corpus.compress());
    1.0 / fastest.as_secs_f64().max(1e-6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::DeflateDecoder;
    use std::io::Read;

    #[test]
    fn text_compresses_as_text_does_and_comes_back() {
        let corpus = Corpus::new();
        let compressed = compress(&corpus.text[..BLOCK]);
        let ratio = compressed.len() as f64 / BLOCK as f64;
        assert!((0.25..0.6).contains(&ratio), "{ratio}");
        let mut again = Vec::new();
        DeflateDecoder::new(&compressed[..])
            .read_to_end(&mut again)
            .unwrap();
        assert_eq!(again, corpus.text[..BLOCK]);
    }

    #[test]
    fn it_is_the_same_every_time_and_blocks_differ() {
        let (mut a, mut b) = (Corpus::new(), Corpus::new());
        let sizes: Vec<usize> = (0..BLOCKS).map(|_| a.compress()).collect();
        assert_eq!(sizes, (0..BLOCKS).map(|_| b.compress()).collect::<Vec<_>>());
        assert!(sizes.iter().any(|size| *size != sizes[0]), "{sizes:?}");
        assert_eq!(a.compress(), sizes[0], "after the last comes the first");
    }
}
