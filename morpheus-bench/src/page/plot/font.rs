//! Text without the machine's fonts: how wide it is, and its outlines.
//!
//! DejaVu Sans is wider than what most systems show text in. What fits by its measure fits on a page that a browser shows
//! in another font.

use std::sync::OnceLock;

use tiny_skia::{Path, PathBuilder, Transform};
use ttf_parser::{Face, GlyphId, OutlineBuilder};

/// How heavy text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// As text is.
    Regular,
    /// As headings are.
    Bold,
}

fn face(weight: Weight) -> Option<&'static Face<'static>> {
    static REGULAR: OnceLock<Option<Face<'static>>> = OnceLock::new();
    static BOLD: OnceLock<Option<Face<'static>>> = OnceLock::new();
    let (once, bytes) = match weight {
        Weight::Regular => (&REGULAR, dejavu::sans::regular()),
        Weight::Bold => (&BOLD, dejavu::sans::bold()),
    };
    once.get_or_init(|| Face::parse(bytes, 0).ok()).as_ref()
}

/// A character that the font does not have is shown as one that it has.
fn glyph(face: &Face, c: char) -> GlyphId {
    face.glyph_index(c)
        .or_else(|| face.glyph_index('\u{FFFD}'))
        .unwrap_or(GlyphId(0))
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

/// The outlines of a line of text whose baseline begins at (`x`, `y`).
pub fn outlines(text: &str, x: f64, y: f64, size: f64, weight: Weight) -> Option<Path> {
    let face = face(weight)?;
    let scale = size / f64::from(face.units_per_em());
    let mut pen = Pen(PathBuilder::new());
    let mut at = 0.0;
    for c in text.chars() {
        let id = glyph(face, c);
        let mut own = Pen(PathBuilder::new());
        face.outline_glyph(id, &mut own);
        if let Some(path) = own.0.finish() {
            let placed = Transform::from_translate(at as f32, 0.0);
            if let Some(path) = path.transform(placed) {
                pen.0.push_path(&path);
            }
        }
        at += f64::from(face.glyph_hor_advance(id).unwrap_or(0));
    }
    // Fonts count upwards, pictures downwards.
    let (x, y, scale) = (x as f32, y as f32, scale as f32);
    let to_picture = Transform::from_row(scale, 0.0, 0.0, -scale, x, y);
    pen.0.finish()?.transform(to_picture)
}

struct Pen(PathBuilder);

impl OutlineBuilder for Pen {
    fn move_to(&mut self, x: f32, y: f32) {
        self.0.move_to(x, y);
    }

    fn line_to(&mut self, x: f32, y: f32) {
        self.0.line_to(x, y);
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        self.0.quad_to(x1, y1, x, y);
    }

    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        self.0.cubic_to(x1, y1, x2, y2, x, y);
    }

    fn close(&mut self) {
        self.0.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_has_a_width_and_outlines() {
        let width = |text| width(text, 12.0, Weight::Regular);
        assert_eq!(width(""), 0.0);
        assert!(width("mm") > width("ii"));
        assert!((width("abab") / width("ab") - 2.0).abs() < 1e-9);
        assert!(super::width("ab", 12.0, Weight::Bold) > width("ab"));
        let path = outlines("µs 99.9", 10.0, 50.0, 12.0, Weight::Regular).unwrap();
        let bounds = path.bounds();
        assert!(bounds.left() >= 9.0 && bounds.right() <= 10.0 + width("µs 99.9") as f32 + 1.0);
        assert!(bounds.top() > 38.0 && bounds.bottom() < 55.0, "{bounds:?}");
        assert!(outlines("   ", 0.0, 0.0, 12.0, Weight::Bold).is_none());
    }

    #[test]
    fn what_is_too_wide_is_cut_and_says_so() {
        assert_eq!(fit("short", 12.0, Weight::Regular, 100.0), "short");
        let cut = fit(&"long ".repeat(10_000), 12.0, Weight::Regular, 100.0);
        assert!(cut.ends_with('…') && width(&cut, 12.0, Weight::Regular) <= 100.0);
        assert_eq!(fit("x", 12.0, Weight::Regular, 0.0), "…");
    }

    /// What plots are labelled with.
    #[test]
    fn the_font_has_what_is_needed() {
        let face = face(Weight::Regular).unwrap();
        for c in "µ–−×…±·≤ 0aZ%".chars() {
            assert!(face.glyph_index(c).is_some(), "{c}");
        }
    }
}
