//! The loops.

use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hasher as _};
use std::ops::Range;

use morpheus_runtime::{StripMine as _, strip};

use super::data::{BYTES, Data, FEW, ROW, SIEVED, SOME, WIDE};
use super::form::{Case, case, loops, searches};

/// Whether the compiler vectorises a loop, as the table says it.
#[allow(non_camel_case_types, reason = "words of the table")]
enum Kind {
    vectorised,
    scalar,
}

/// All of them, in the order of the table.
pub fn all() -> impl Iterator<Item = &'static Case> {
    LOOPS.iter().chain(SEARCHES)
}

loops! {
    sum_u32 "u32 added up" [vectorised] WIDE;
    for x in |data, at| data.words[at].iter();
    with sum: u32 = 0 => u64::from(sum);
    { sum = sum.wrapping_add(*x); }

    sum_u64 "u64 added up" [vectorised] WIDE / 2;
    for x in |data, at| data.longs[at].iter();
    with sum: u64 = 0 => sum;
    { sum = sum.wrapping_add(*x); }

    sum_f64 "f64 added up, one after another" [scalar] WIDE / 2;
    for x in |data, at| data.doubles[at].iter();
    with sum: f64 = 0.0 => sum.to_bits();
    { sum += *x; }

    dot_f32 "dot product of f32" [scalar] WIDE;
    for (x, y) in |data, at| data.floats[at.clone()].iter().zip(&data.floats[at]);
    with sum: f32 = 0.0 => u64::from(sum.to_bits());
    { sum += x * y; }

    dot_i32 "dot product of i32 and u32" [vectorised] WIDE;
    for (x, y) in |data, at| data.signed[at.clone()].iter().zip(&data.words[at]);
    with sum: u32 = 0 => u64::from(sum);
    { sum = sum.wrapping_add((*x as u32).wrapping_mul(*y)); }

    saxpy "y = 0.5 y + 2.5 x, f32" [vectorised] WIDE;
    for (y, x) in |data, at| data.out.floats[at.clone()].iter_mut().zip(&data.floats[at]);
    with none: () = () => 0;
    { *y = 0.5 * *y + 2.5 * x; }

    map_in_place "u32 changed in place" [vectorised] WIDE;
    for x in |data, at| data.out.words[at].iter_mut();
    with none: () = () => 0;
    { *x = x.wrapping_mul(5).wrapping_add(1); }

    prefix_sum "running sums of u64" [scalar] WIDE / 2;
    for (to, x) in |data, at| data.out.longs[at.clone()].iter_mut().zip(&data.longs[at]);
    with sum: u64 = 0 => sum;
    { sum = sum.wrapping_add(*x); *to = sum; }

    min_max "least and greatest i32" [vectorised] WIDE;
    for x in |data, at| data.signed[at].iter();
    with ends: (i32, i32) = (i32::MAX, i32::MIN) => ends.0 as u64 ^ (ends.1 as u64) << 32;
    { ends = (ends.0.min(*x), ends.1.max(*x)); }

    count_if "blanks counted in text" [vectorised] BYTES;
    for x in |data, at| data.text[at].iter();
    with count: u64 = 0 => count;
    { count += u64::from(*x == b' '); }

    upper_case "text made upper case" [vectorised] BYTES;
    for (to, from) in |data, at| data.out.text[at.clone()].iter_mut().zip(&data.text[at]);
    with none: () = () => 0;
    { *to = from.to_ascii_uppercase(); }

    ascents "neighbours compared (windows)" [vectorised] WIDE;
    for pair in |data, at| data.words[at.start..at.end + 1].windows(2);
    with count: u32 = 0 => u64::from(count);
    { count += u32::from(pair[0] < pair[1]); }

    zip_rev "a slice beside itself backwards" [vectorised] WIDE;
    for (x, y) in |data, at| data.words[at.clone()].iter().zip(data.words[WIDE - at.end..WIDE - at.start].iter().rev());
    with sum: u32 = 0 => u64::from(sum);
    { sum = sum.wrapping_add(x ^ y); }

    filtered "sum of what a filter lets through" [vectorised] WIDE;
    for x in |data, at| data.words[at].iter().filter(|x| **x % 8 < 5).map(|x| x >> 1);
    with sum: u32 = 0 => u64::from(sum);
    { sum = sum.wrapping_add(x); }

    nested "a loop of 64 in each turn" [vectorised] FEW;
    for i in |data, at| at;
    with sum: u32 = 0 => u64::from(sum);
    {
        let start = i * ROW % WIDE;
        for x in &data.words[start..start + ROW] {
            sum = sum.wrapping_add(x.wrapping_mul(i as u32));
        }
    }

    matrix "rows times a matrix of 64 × 64" [vectorised] FEW / 16;
    for (to, from) in |data, at| {
        let words = at.start * ROW..at.end * ROW;
        data.out.floats[words.clone()].chunks_exact_mut(ROW).zip(data.floats[words].chunks_exact(ROW))
    };
    with none: () = () => 0;
    {
        to.fill(0.0);
        for (x, row) in from.iter().zip(data.matrix.chunks_exact(ROW)) {
            for (to, y) in to.iter_mut().zip(row) {
                *to += x * y;
            }
        }
    }

    copy "copied in pieces of 4 KiB" [vectorised] BYTES >> 12;
    for (to, from) in |data, at| {
        let bytes = at.start << 12..at.end << 12;
        data.out.text[bytes.clone()].chunks_exact_mut(1 << 12).zip(data.text[bytes].chunks_exact(1 << 12))
    };
    with none: () = () => 0;
    { to.copy_from_slice(from); }

    utf8 "UTF-8 checked in pieces of 256 bytes" [scalar] BYTES >> 8;
    for piece in |data, at| data.text[at.start << 8..at.end << 8].chunks_exact(1 << 8);
    with good: u64 = 0 => good;
    { good += u64::from(std::str::from_utf8(piece).is_ok()); }

    crc32 "CRC-32, a byte at a time" [scalar] SOME;
    for x in |data, at| data.text[at].iter();
    with crc: u32 = !0 => u64::from(!crc);
    { crc = crc >> 8 ^ data.crc[usize::from(crc as u8 ^ x)]; }

    fnv "FNV-1a" [scalar] SOME;
    for x in |data, at| data.text[at].iter();
    with hash: u64 = 0xCBF2_9CE4_8422_2325 => hash;
    { hash = (hash ^ u64::from(*x)).wrapping_mul(0x100_0000_01B3); }

    siphash "SipHash of pieces of 32 bytes" [scalar] SOME >> 4;
    for piece in |data, at| data.text[at.start << 5..at.end << 5].chunks_exact(32);
    with sum: u64 = 0 => sum;
    {
        let mut hasher = DefaultHasher::new();
        hasher.write(piece);
        sum ^= hasher.finish();
    }

    sort "pieces of 64 copied and sorted" [scalar] FEW / 16;
    for (to, from) in |data, at| {
        let words = at.start << 6..at.end << 6;
        data.out.words[words.clone()].chunks_exact_mut(64).zip(data.words[words].chunks_exact(64))
    };
    with none: () = () => 0;
    {
        to.copy_from_slice(from);
        to.sort_unstable();
    }

    histogram "bytes counted by value" [scalar] SOME;
    for x in |data, at| data.text[at].iter();
    with none: () = () => 0;
    { data.out.bins[usize::from(*x)] = data.out.bins[usize::from(*x)].wrapping_add(1); }

    write_text "numbers written into a string" [scalar] FEW;
    for x in |data, at| data.words[at].iter();
    with none: () = () => 0;
    {
        if data.out.line.len() > 4_000 {
            data.out.line.clear();
        }
        let _ = write!(data.out.line, "{x} ");
    }

    parse "numbers read from strings" [scalar] SOME / 4;
    for text in |data, at| data.decimals[at].iter();
    with sum: u64 = 0 => sum;
    { sum += text.parse::<u64>().unwrap_or(0); }

    collatz "steps to 1" [scalar] FEW / 2;
    for i in |data, at| at;
    with steps: u64 = 0 => steps;
    {
        let mut n = i as u64 + 1;
        while n > 1 {
            n = if n.is_multiple_of(2) { n / 2 } else { 3 * n + 1 };
            steps += 1;
        }
    }

    sieve "multiples crossed out: few turns, of any length" [scalar] 1 << 10;
    for i in |data, at| at;
    with primes: u64 = 0 => primes;
    {
        if i > 1 && (2..i).take_while(|d| d * d <= i).all(|d| i % d != 0) {
            primes += 1;
            for multiple in (i * i..SIEVED).step_by(i) {
                data.out.sieve[multiple] = true;
            }
        }
    }

    gather "u32 by indices in no order" [scalar] SOME;
    for i in |data, at| data.indices[at].iter();
    with sum: u32 = 0 => u64::from(sum);
    { sum = sum.wrapping_add(data.words[*i as usize]); }

    chase "a list followed" [scalar] SOME;
    for _ in |data, at| at;
    with place: u32 = 0 => u64::from(place);
    { place = data.next[place as usize]; }

    look_up "keys looked up in a hash map" [scalar] SOME / 4;
    for key in |data, at| data.indices[at].iter();
    with found: u64 = 0 => found;
    { found += data.map.get(key).copied().map_or(0, u64::from); }
}

searches! {
    byte_search "the place of a byte" [scalar] BYTES + 1;
    part |data, at| data.text[at.clone()].iter().position(is_it).map(|place| (at.start + place) as u64);
    strip data.text[at].iter().strip().position(is_it).map(|place| place as u64);
    for (place, byte) in data.text[at].iter().enumerate();
    until is_it(byte) => place as u64, else 0;

    is_sorted "whether u32 are in order, until two are not" [scalar] WIDE;
    part |data, at| (!data.sorted[at.start..at.end + 1].windows(2).all(in_order)).then_some(0);
    strip (!data.sorted[at.start..at.end + 1].windows(2).strip().all(in_order)).then_some(0);
    for pair in data.sorted[at.start..at.end + 1].windows(2);
    until !in_order(pair) => 0, else 1;
}

fn is_it(byte: &u8) -> bool {
    *byte == 0xff
}

fn in_order(pair: &[u32]) -> bool {
    pair[0] <= pair[1]
}
