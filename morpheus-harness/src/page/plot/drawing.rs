//! The shapes that a plot is made of. Layouts put them together; [`super::svg`] shows them.

use super::font::{self, Weight};
use crate::report;

/// Width of every plot. A phone shows it nearly as it is, so that text is as large as it says here.
pub const WIDTH: f64 = 400.0;
/// Text in plots.
pub const TEXT: f64 = 12.5;
/// Text at axes.
pub const SMALL: f64 = 11.5;
/// How many colours for series there are.
pub const SLOTS: usize = 8;

/// The role of a shape, by which the page and the picture choose its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ink {
    /// Names and numbers.
    Text,
    /// Axes, captions.
    Muted,
    /// Lines behind everything.
    Grid,
    /// The reference that others are compared with.
    Reference,
    /// A series, by its place in the palette.
    Series(usize),
}

/// A point, to the right and downwards from the upper left corner.
pub type Place = (f64, f64);

/// Which end of a text is where it is placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// Its beginning.
    Start,
    /// Its middle.
    Middle,
    /// Its end.
    End,
}

/// A part of a drawing.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// Straight lines from each point to the next.
    Line {
        /// From where to where.
        points: Vec<Place>,
        /// Of what.
        ink: Ink,
        /// How thick.
        thick: f64,
        /// Whether it is interrupted.
        dashed: bool,
    },
    /// A filled rectangle.
    Bar {
        /// Its upper left corner.
        at: Place,
        /// Its width and height.
        size: Place,
        /// Of what.
        ink: Ink,
    },
    /// A place that was measured.
    Mark {
        /// Its middle.
        at: Place,
        /// The series, whose colour and form it has.
        slot: usize,
        /// The text that a pointer on it shows.
        tip: String,
    },
    /// A line of text.
    Text {
        /// Where its baseline is.
        at: Place,
        /// The text.
        text: String,
        /// How large.
        size: f64,
        /// How heavy.
        weight: Weight,
        /// Which end of it is there.
        anchor: Anchor,
        /// Of what.
        ink: Ink,
    },
}

/// Shapes, from back to front.
#[derive(Clone, Debug, PartialEq)]
pub struct Drawing {
    /// Its width.
    pub width: f64,
    /// Its height.
    pub height: f64,
    /// The shapes in it.
    pub shapes: Vec<Shape>,
}

impl Drawing {
    /// An empty one.
    pub fn new(height: f64) -> Self {
        Self {
            width: WIDTH,
            height,
            shapes: Vec::new(),
        }
    }

    /// Adds a line.
    pub fn line(&mut self, points: Vec<Place>, ink: Ink, thick: f64) {
        self.stroke(points, ink, thick, false);
    }

    /// Adds an interrupted line.
    pub fn dashed(&mut self, points: Vec<Place>, ink: Ink, thick: f64) {
        self.stroke(points, ink, thick, true);
    }

    fn stroke(&mut self, points: Vec<Place>, ink: Ink, thick: f64, dashed: bool) {
        self.shapes.push(Shape::Line {
            points,
            ink,
            thick,
            dashed,
        });
    }

    /// Adds a mark.
    pub fn mark(&mut self, at: Place, slot: usize, tip: String) {
        self.shapes.push(Shape::Mark { at, slot, tip });
    }

    /// Adds text.
    pub fn text(&mut self, at: Place, text: &str, size: f64, anchor: Anchor, ink: Ink) {
        self.write(at, text, size, (Weight::Regular, anchor, ink));
    }

    fn write(&mut self, at: Place, text: &str, size: f64, look: (Weight, Anchor, Ink)) {
        let (text, (weight, anchor, ink)) = (text.into(), look);
        self.shapes.push(Shape::Text {
            at,
            text,
            size,
            weight,
            anchor,
            ink,
        });
    }

    /// Adds the names of ticks below an axis, each in the middle of its place. Where there is no room beside the name before it, a
    /// name is left out.
    pub fn ticks(&mut self, names: impl Iterator<Item = (f64, String)>, baseline: f64) {
        let mut last = (f64::INFINITY, 0.0);
        for (x, name) in names {
            let half = font::width(&name, SMALL, Weight::Regular) / 2.0;
            let middle = x.clamp(half, WIDTH - half);
            if (middle - last.0).abs() > half + last.1 + 6.0 {
                self.text((middle, baseline), &name, SMALL, Anchor::Middle, Ink::Muted);
                last = (middle, half);
            }
        }
    }

    /// Adds a heading.
    pub fn heading(&mut self, at: Place, text: &str, size: f64) {
        self.write(at, text, size, (Weight::Bold, Anchor::Start, Ink::Text));
    }

    /// The same with a title, what it shows, and where it was measured: a picture that stands alone.
    pub fn framed(&self, title: &str, caption: &str, footer: &str) -> Self {
        const MARGIN: f64 = 16.0;
        let mut framed = Self::new(0.0);
        framed.width = self.width + 2.0 * MARGIN;
        let mut y = MARGIN;
        for line in wrap(title, 15.0, Weight::Bold, self.width) {
            y += 15.0;
            framed.heading((MARGIN, y), &line, 15.0);
            y += 4.0;
        }
        for line in wrap(caption, SMALL, Weight::Regular, self.width) {
            y += SMALL + 1.5;
            framed.text((MARGIN, y), &line, SMALL, Anchor::Start, Ink::Muted);
            y += 2.5;
        }
        y += 12.0;
        let moved = |(x, below): Place| (x + MARGIN, below + y);
        let shapes = self.shapes.iter().map(|shape| shape.moved(&moved));
        framed.shapes.extend(shapes);
        y += self.height + 6.0;
        for line in wrap(footer, 9.5, Weight::Regular, self.width) {
            y += 11.5;
            framed.text((MARGIN, y), &line, 9.5, Anchor::Start, Ink::Muted);
        }
        framed.height = (y + MARGIN).ceil();
        framed
    }
}

impl Shape {
    fn moved(&self, to: &dyn Fn(Place) -> Place) -> Self {
        let mut shape = self.clone();
        match &mut shape {
            Self::Line { points, .. } => points.iter_mut().for_each(|point| *point = to(*point)),
            Self::Bar { at, .. } | Self::Mark { at, .. } | Self::Text { at, .. } => *at = to(*at),
        }
        shape
    }
}

/// Lines that are no wider than that, broken between words.
pub fn wrap(text: &str, size: f64, weight: Weight, most: f64) -> Vec<String> {
    let lines = report::lines(text, |line| font::width(line, size, weight) <= most);
    let fitted = lines.iter().map(|line| font::fit(line, size, weight, most));
    fitted.collect()
}

/// How far a mark reaches from its middle.
pub const MARK: f64 = 4.3;

/// The corners of the mark of a series around its middle; none is a circle.
pub fn corners(slot: usize) -> Vec<Place> {
    let polygon = |n: usize, turned: f64, radius: f64| -> Vec<Place> {
        (0..n)
            .map(|i| {
                let angle = (turned + i as f64 / n as f64) * std::f64::consts::TAU;
                (radius * angle.sin(), -radius * angle.cos())
            })
            .collect()
    };
    match slot % SLOTS {
        0 => Vec::new(),
        1 => polygon(4, 0.125, 1.25 * MARK),
        2 => polygon(3, 0.0, 1.35 * MARK),
        3 => polygon(4, 0.0, 1.3 * MARK),
        4 => polygon(3, 0.5, 1.35 * MARK),
        5 => polygon(6, 0.0, 1.15 * MARK),
        6 => vec![
            (-0.55 * MARK, -1.2 * MARK),
            (0.55 * MARK, -1.2 * MARK),
            (0.55 * MARK, 1.2 * MARK),
            (-0.55 * MARK, 1.2 * MARK),
        ],
        _ => polygon(5, 0.0, 1.2 * MARK),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_holds_what_was_drawn() {
        let mut drawing = Drawing::new(100.0);
        drawing.mark((10.0, 20.0), 1, "tip".into());
        let framed = drawing.framed("title", &"many words ".repeat(30), "a machine");
        assert!(framed.width > drawing.width && framed.height > drawing.height + 60.0);
        let mark = framed.shapes.iter().find_map(|shape| match shape {
            Shape::Mark { at, .. } => Some(*at),
            _ => None,
        });
        let (x, y) = mark.unwrap();
        assert!(x > 10.0 && y > 60.0);
        let texts = framed.shapes.iter().filter_map(|shape| match shape {
            Shape::Text {
                at,
                text,
                size,
                weight,
                ..
            } => Some((at.0 + font::width(text, *size, *weight), at.1)),
            _ => None,
        });
        for (right, baseline) in texts {
            assert!(right <= framed.width && baseline < framed.height);
        }
    }

    #[test]
    fn words_wrap_by_their_width() {
        let lines = wrap("one two  three", 12.0, Weight::Regular, 50.0);
        assert_eq!(lines, ["one two", "three"]);
        assert!(wrap("", 12.0, Weight::Regular, 50.0).is_empty());
        let long = wrap(&"x".repeat(500), 12.0, Weight::Regular, 50.0);
        assert!(long.len() == 1 && long[0].ends_with('…'));
    }

    #[test]
    fn every_series_has_a_mark_of_its_own() {
        let forms: Vec<Vec<Place>> = (0..SLOTS).map(corners).collect();
        for (i, form) in forms.iter().enumerate() {
            assert!(!forms[..i].contains(form), "{i}");
            assert!(form.iter().all(|(x, y)| x.hypot(*y) < 2.0 * MARK));
        }
    }
}
