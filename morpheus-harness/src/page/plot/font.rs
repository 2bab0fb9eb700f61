//! How wide text is, without the machine's fonts.
//!
//! DejaVu Sans is wider than what most systems show text in. A text that fits by its measure fits on a page that a
//! browser shows in another font.

use std::sync::LazyLock;

use ttf_parser::{Face, GlyphId};

/// How heavy text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// As text is.
    Regular,
    /// As headings are.
    Bold,
}

fn face(weight: Weight) -> Option<&'static Face<'static>> {
    static FACES: LazyLock<[Option<Face<'static>>; 2]> = LazyLock::new(|| {
        [dejavu::sans::regular(), dejavu::sans::bold()].map(|font| Face::parse(font, 0).ok())
    });
    FACES[weight as usize].as_ref()
}

/// A character that the font does not have is shown as one that it has.
fn glyph(face: &Face, c: char) -> GlyphId {
    face.glyph_index(c)
        .or_else(|| face.glyph_index('\u{FFFD}'))
        .unwrap_or(GlyphId(0))
}

/// Width of the widest of these lines, of ordinary weight.
pub fn widest<'a>(lines: impl IntoIterator<Item = &'a String>, size: f64) -> f64 {
    let widths = lines.into_iter();
    let widths = widths.map(|line| width(line, size, Weight::Regular));
    widths.fold(0.0, f64::max)
}

/// Width of a line of text.
pub fn width(text: &str, size: f64, weight: Weight) -> f64 {
    let Some(face) = face(weight) else {
        // As wide as a line of digits is.
        return 0.64 * size * text.chars().count() as f64;
    };
    let units: f64 = text
        .chars()
        .filter_map(|c| face.glyph_hor_advance(glyph(face, c)))
        .map(f64::from)
        .sum();
    units * size / f64::from(face.units_per_em())
}

/// The beginning of a text, with an ellipsis where it is wider than that.
pub fn fit(text: &str, size: f64, weight: Weight, most: f64) -> String {
    if width(text, size, weight) <= most {
        return text.to_owned();
    }
    let mut kept: Vec<char> = text.chars().take(400).collect();
    loop {
        let shorter = kept.iter().collect::<String>().trim_end().to_owned() + "…";
        if kept.is_empty() || width(&shorter, size, weight) <= most {
            return shorter;
        }
        kept.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_has_a_width() {
        let width = |text| width(text, 12.0, Weight::Regular);
        assert_eq!(width(""), 0.0);
        assert!(width("mm") > width("ii"));
        assert!((width("abab") / width("ab") - 2.0).abs() < 1e-9);
        assert!(super::width("ab", 12.0, Weight::Bold) > width("ab"));
    }

    #[test]
    fn what_is_too_wide_is_cut_and_says_so() {
        assert_eq!(fit("short", 12.0, Weight::Regular, 100.0), "short");
        let cut = fit(&"long ".repeat(10_000), 12.0, Weight::Regular, 100.0);
        assert!(cut.ends_with('…') && width(&cut, 12.0, Weight::Regular) <= 100.0);
        assert_eq!(fit("x", 12.0, Weight::Regular, 0.0), "…");
    }

    /// The characters of the labels of plots.
    #[test]
    fn the_font_has_what_is_needed() {
        let face = face(Weight::Regular).unwrap();
        for c in "µ–−×…±·≤ 0aZ%".chars() {
            assert!(face.glyph_index(c).is_some(), "{c}");
        }
    }
}
