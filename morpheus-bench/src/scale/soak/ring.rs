//! The contents of a CPU's buffer of the kernel's tracing, as its file `trace_pipe_raw` gives them: pages of events.
//!
//! The layout is the kernel's promise (`include/linux/ring_buffer.h`, and `events/header_page`), the places of an event's
//! fields are in its file `format`. Text (`trace_pipe`) would cost ten times as much, of a machine that is overloaded.

/// Of a page, before its events: a time, and the length of what follows.
const HEAD_BYTES: usize = 16;
/// In the length: events before this page are lost.
const MISSED: u64 = 1 << 31;
/// The length itself.
const LENGTH: u64 = (1 << 27) - 1;
/// Kinds of events beside those that are data.
const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;
/// Bits of a time in the event's first word; 27 more are in the second.
const DELTA_BITS: u32 = 27;
/// An absolute time has this many bits; the bits above are those of the page's time.
const STAMP_BITS: u32 = 59;

/// Calls `each` with every event's time, in nanoseconds, and data; returns the time before which events are lost, if any are.
pub fn page(bytes: &[u8], mut each: impl FnMut(u64, &[u8])) -> Option<u64> {
    let (begun, commit) = (u64_at(bytes, 0)?, u64_at(bytes, 8)?);
    let mut now = begun;
    let end = bytes.len().min(HEAD_BYTES + (commit & LENGTH) as usize);
    let mut at = HEAD_BYTES;
    while let Some(word) = u32_at(&bytes[..end], at) {
        let (kind, delta) = (word & 31, u64::from(word >> 5));
        at += 4;
        let second = u32_at(&bytes[..end], at);
        let long = |second: u32| delta | u64::from(second) << DELTA_BITS;
        match (kind, second) {
            (PADDING, Some(skip)) if delta != 0 => {
                now = now.wrapping_add(delta);
                at += skip as usize;
            }
            (TIME_EXTEND, Some(second)) => {
                now = now.wrapping_add(long(second));
                at += 4;
            }
            (TIME_STAMP, Some(second)) => {
                now = long(second) | (now >> STAMP_BITS << STAMP_BITS);
                at += 4;
            }
            // The rest of the page is empty.
            (PADDING | TIME_EXTEND | TIME_STAMP, _) | (0, None) => break,
            (short, second) => {
                now = now.wrapping_add(delta);
                // The length of a long one is in its second word, which it counts.
                let (from, length) = match (short, second) {
                    (0, Some(length)) => (at + 4, (length as usize).saturating_sub(4)),
                    _ => (at, 4 * short as usize),
                };
                let Some(data) = bytes[..end].get(from..from + length) else {
                    break;
                };
                each(now, data);
                at = from + length.next_multiple_of(4);
            }
        }
    }
    (commit & MISSED != 0).then_some(begun)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// The place of a field in an event's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    offset: usize,
    size: usize,
}

impl Field {
    /// A number of up to eight bytes, the lowest first; 0 beyond the end of the data.
    pub fn number(self, data: &[u8]) -> u64 {
        let from_the_highest = self.bytes(data).iter().rev();
        from_the_highest.fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    /// The bytes of the field.
    pub fn bytes(self, data: &[u8]) -> &[u8] {
        data.get(self.offset..self.offset + self.size)
            .unwrap_or_default()
    }
}

/// The contents of an event's file `format`: its number, and where its fields are.
#[derive(Clone, Debug)]
pub struct Format {
    /// The first two bytes of its data.
    pub id: u64,
    text: String,
}

impl Format {
    /// From the text of the file.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(text: &str) -> Result<Self, String> {
        let id = text.lines().find_map(|line| line.strip_prefix("ID: "));
        let id = id.and_then(|id| id.trim().parse().ok());
        Ok(Self {
            id: id.ok_or("an event's format has no number")?,
            text: text.to_owned(),
        })
    }

    /// A field, by its name.
    ///
    /// # Errors
    /// When there is none.
    pub fn field(&self, name: &str) -> Result<Field, String> {
        let find = |line: &str| {
            let parts: Vec<&str> = line.trim().split(';').map(str::trim).collect();
            let declared = parts.first()?.strip_prefix("field:")?;
            let own = declared.split('[').next()?.split_whitespace().last()?;
            let of = |key: &str| {
                let value = parts.iter().find_map(|part| part.strip_prefix(key))?;
                value.parse::<usize>().ok()
            };
            (own == name).then_some(Field {
                offset: of("offset:")?,
                size: of("size:")?,
            })
        };
        self.text
            .lines()
            .find_map(find)
            .ok_or_else(|| format!("the kernel's event has no field {name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page of events: nanoseconds since the one before, and data.
    fn paged(start_ns: u64, flags: u64, events: &[(u32, &[u8])]) -> Vec<u8> {
        let mut body = Vec::new();
        for (delta, data) in events {
            let words = (data.len() / 4) as u32;
            if words <= 28 {
                body.extend((delta << 5 | words).to_ne_bytes());
            } else {
                body.extend((delta << 5).to_ne_bytes());
                body.extend((data.len() as u32 + 4).to_ne_bytes());
            }
            body.extend(*data);
        }
        head(start_ns, flags, &body)
    }

    fn head(start_ns: u64, flags: u64, body: &[u8]) -> Vec<u8> {
        let mut bytes = start_ns.to_ne_bytes().to_vec();
        bytes.extend((body.len() as u64 | flags).to_ne_bytes());
        bytes.extend(body);
        // The bytes of a page behind its length have no meaning.
        bytes.resize(4_096, 0xaa);
        bytes
    }

    fn events(bytes: &[u8]) -> (Vec<(u64, Vec<u8>)>, Option<u64>) {
        let mut all = Vec::new();
        let missed = page(bytes, |ns, data| all.push((ns, data.to_vec())));
        (all, missed)
    }

    #[test]
    fn events_have_times_and_data() {
        let long = [7; 200];
        let bytes = paged(1_000, 0, &[(5, &[1, 2, 3, 4]), (0, &long), (9, &[0; 8])]);
        let expected = vec![
            (1_005, vec![1, 2, 3, 4]),
            (1_005, long.to_vec()),
            (1_014, vec![0; 8]),
        ];
        assert_eq!(events(&bytes), (expected, None));
        assert_eq!(events(&paged(9, MISSED, &[(1, &[0; 4])])).1, Some(9));
    }

    #[test]
    fn times_beyond_the_first_word_and_gaps() {
        let mut body = Vec::new();
        let mut word = |value: u32| body.extend(value.to_ne_bytes());
        word(3 << 5 | TIME_EXTEND);
        word(2);
        word(1 << 5 | 1);
        word(11);
        word(1 << 5 | PADDING);
        word(8);
        word(0);
        word(5 << 5 | TIME_STAMP);
        word(1);
        word(2 << 5 | 1);
        word(12);
        word(PADDING);
        word(99);
        let top = 1 << STAMP_BITS;
        let (all, _) = events(&head(top + 100, 0, &body));
        let first = top + 100 + 3 + (2 << DELTA_BITS) + 1;
        let second = top + 5 + (1 << DELTA_BITS) + 2;
        let times: Vec<u64> = all.iter().map(|(ns, _)| *ns).collect();
        assert_eq!(times, [first, second]);
    }

    #[test]
    fn whatever_the_bytes_are_it_comes_to_an_end() {
        assert_eq!(events(&[]), (Vec::new(), None));
        assert_eq!(events(&[1; 15]), (Vec::new(), None));
        for byte in 0..=u8::MAX {
            events(&head(1, 0, &[byte; 999]));
        }
        // A length beyond the page: what fits is read, one event of 40 bytes.
        assert_eq!(events(&head(1, LENGTH, &[])[..100]).0.len(), 1);
    }

    #[test]
    fn fields_are_found_by_name() {
        let text = "name: sched_wakeup\nID: 77\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
                    \n\tfield:char comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\tfield:pid_t pid;\toffset:24;\tsize:4;\tsigned:1;\n";
        let format = Format::parse(text).unwrap();
        assert_eq!(format.id, 77);
        let pid = format.field("pid").unwrap();
        let mut data = [0; 28];
        data[24..].copy_from_slice(&1_234_u32.to_le_bytes());
        data[8] = b'x';
        assert_eq!(pid.number(&data), 1_234);
        assert_eq!(pid.number(&data[..20]), 0);
        assert_eq!(format.field("comm").unwrap().bytes(&data)[..2], *b"x\0");
        assert!(format.field("prio").unwrap_err().contains("prio"));
        assert!(Format::parse("nothing").is_err());
    }
}
