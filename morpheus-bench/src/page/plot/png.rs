//! A drawing as a PNG: black on white, with text by the font that this program has with it.

use tiny_skia::{
    Color, FillRule, LineCap, LineJoin, Paint, Path, PathBuilder, Pixmap, Rect, Stroke, StrokeDash,
    Transform,
};

use super::drawing::{Anchor, Drawing, Ink, MARK, Place, Shape, corners};
use super::font;
use super::palette::on_white;

/// Dots of the picture for each of the drawing: sharp on a phone, and 11 cm wide at 300 dots an inch.
const ZOOM: f32 = 3.0;

/// The file.
///
/// # Errors
/// When there is no memory for so large a picture.
pub fn render(drawing: &Drawing) -> Result<Vec<u8>, String> {
    let size = |length: f64| (length as f32 * ZOOM).ceil() as u32;
    let (width, height) = (size(drawing.width), size(drawing.height));
    let mut picture = Pixmap::new(width, height)
        .ok_or_else(|| format!("no picture of {width} by {height} dots can be made"))?;
    picture.fill(Color::WHITE);
    for shape in &drawing.shapes {
        add(&mut picture, shape);
    }
    picture
        .encode_png()
        .map_err(|error| format!("the picture cannot be written as PNG: {error}"))
}

fn add(picture: &mut Pixmap, shape: &Shape) {
    match shape {
        Shape::Line {
            points,
            ink,
            thick,
            dashed,
        } => {
            let stroke = Stroke {
                width: *thick as f32,
                line_cap: LineCap::Round,
                line_join: LineJoin::Round,
                dash: dashed
                    .then(|| StrokeDash::new(vec![4.0, 4.0], 0.0))
                    .flatten(),
                ..Stroke::default()
            };
            outline(picture, lines(points, false), *ink, &stroke);
        }
        Shape::Bar { at, size, ink } => {
            let rect = Rect::from_xywh(at.0 as f32, at.1 as f32, size.0 as f32, size.1 as f32);
            fill(picture, rect.map(PathBuilder::from_rect), *ink);
        }
        Shape::Mark {
            at, ink, hollow, ..
        } => {
            let path = mark(*at, *ink);
            if *hollow {
                let mut white = Paint::default();
                white.set_color(Color::WHITE);
                if let Some(path) = &path {
                    picture.fill_path(path, &white, FillRule::Winding, zoom(), None);
                }
                let stroke = Stroke {
                    width: 1.8,
                    ..Stroke::default()
                };
                outline(picture, path, *ink, &stroke);
            } else {
                fill(picture, path, *ink);
            }
        }
        Shape::Text {
            at,
            text,
            size,
            weight,
            anchor,
            ink,
        } => {
            let width = font::width(text, *size, *weight);
            let x = match anchor {
                Anchor::Start => at.0,
                Anchor::Middle => at.0 - width / 2.0,
                Anchor::End => at.0 - width,
            };
            fill(picture, font::outlines(text, x, at.1, *size, *weight), *ink);
        }
    }
}

fn zoom() -> Transform {
    Transform::from_scale(ZOOM, ZOOM)
}

fn paint(ink: Ink) -> Paint<'static> {
    let [red, green, blue] = on_white(ink);
    let mut paint = Paint::default();
    paint.set_color_rgba8(red, green, blue, 255);
    paint
}

fn fill(picture: &mut Pixmap, path: Option<Path>, ink: Ink) {
    if let Some(path) = path {
        picture.fill_path(&path, &paint(ink), FillRule::Winding, zoom(), None);
    }
}

fn outline(picture: &mut Pixmap, path: Option<Path>, ink: Ink, stroke: &Stroke) {
    if let Some(path) = path {
        picture.stroke_path(&path, &paint(ink), stroke, zoom(), None);
    }
}

fn mark(at: Place, ink: Ink) -> Option<Path> {
    let slot = match ink {
        Ink::Series(slot) => slot,
        _ => 0,
    };
    let corners = corners(slot);
    if corners.is_empty() {
        return PathBuilder::from_circle(at.0 as f32, at.1 as f32, MARK as f32);
    }
    let points: Vec<Place> = corners.iter().map(|(x, y)| (at.0 + x, at.1 + y)).collect();
    lines(&points, true)
}

fn lines(points: &[Place], closed: bool) -> Option<Path> {
    let mut path = PathBuilder::new();
    for (i, (x, y)) in points.iter().enumerate() {
        if i == 0 {
            path.move_to(*x as f32, *y as f32);
        } else {
            path.line_to(*x as f32, *y as f32);
        }
    }
    if closed {
        path.close();
    }
    path.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Dots that are not white in a part of the picture.
    fn inked(png: &[u8], within: std::ops::Range<u32>) -> usize {
        let picture = Pixmap::decode_png(png).unwrap();
        let width = picture.width();
        let rows = within.start * width..within.end * width;
        let dots = &picture.pixels()[rows.start as usize..rows.end as usize];
        let white = |dot: &&tiny_skia::PremultipliedColorU8| dot.red() < 250 || dot.blue() < 250;
        dots.iter().filter(white).count()
    }

    #[test]
    fn everything_leaves_ink_and_text_needs_no_font_of_the_machine() {
        let mut drawing = Drawing::new(100.0);
        assert_eq!(inked(&render(&drawing).unwrap(), 0..300), 0);
        drawing.text((10.0, 15.0), "p99 µs", 12.0, Anchor::Start, Ink::Text);
        drawing.line(vec![(10.0, 35.0), (90.0, 35.0)], Ink::Grid, 1.0);
        for slot in 0..8 {
            let at = (20.0 * (slot + 1) as f64, 60.0);
            drawing.mark(at, slot, slot % 2 == 0, String::new());
        }
        drawing.shapes.push(Shape::Bar {
            at: (10.0, 80.0),
            size: (50.0, 10.0),
            ink: Ink::Series(1),
        });
        let png = render(&drawing).unwrap();
        for part in [0..60, 60..150, 150..210, 220..300] {
            assert!(inked(&png, part.clone()) > 100, "{part:?}");
        }
    }

    #[test]
    fn nonsense_is_no_picture_and_no_panic() {
        let mut drawing = Drawing::new(f64::NAN);
        assert!(render(&drawing).is_err());
        drawing.height = 10.0;
        drawing.line(vec![(f64::NAN, 1.0), (f64::INFINITY, 2.0)], Ink::Text, 1.0);
        drawing.line(vec![], Ink::Text, 1.0);
        drawing.text((f64::NAN, 0.0), "x", 12.0, Anchor::Middle, Ink::Text);
        assert!(render(&drawing).is_ok());
    }
}
