//! Lines over an axis: percentile curves, and what changes with time or size.

use super::drawing::{Anchor, Drawing, Ink, Place, SMALL, TEXT, WIDTH};
use super::font::{self, Weight};
use super::scale::{Kind, Scale, extremes, percentile_place, percentile_ticks};
use crate::unit::Unit;

/// Lines over one axis.
#[derive(Clone, Debug)]
pub struct Lines {
    /// The axis below.
    pub across: Across,
    /// The unit of the axis at the side.
    pub unit: Unit,
    /// The lines.
    pub lines: Vec<Line>,
}

/// The axis below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Across {
    /// Shares of the samples: each nine takes as much room. The points with a name have a mark.
    Percentiles,
    /// Nanoseconds since it began.
    Time,
}

/// One line.
#[derive(Clone, Debug)]
pub struct Line {
    /// Its name.
    pub label: String,
    /// Its place in the palette.
    pub slot: usize,
    /// Its points, two or more: on the axis below, and on the axis at the side.
    pub points: Vec<(f64, f64)>,
}

impl Across {
    /// The place on the scale of a point's number.
    fn number(self, x: f64) -> f64 {
        match self {
            Self::Percentiles => percentile_place(x),
            Self::Time => x,
        }
    }
}

/// Names up to here stand beside the ends of their lines, longer ones below.
const NAMES: f64 = 124.0;
const HEIGHT: f64 = 264.0;
const BELOW: f64 = 38.0;
/// From one name to the next.
const APART: f64 = 16.0;

/// The plot, and the places of its parts.
struct Frame<'a> {
    plot: &'a Lines,
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    across: Scale,
    up: Scale,
}

impl Frame<'_> {
    fn x(&self, x: f64) -> f64 {
        let share = self.across.at(self.plot.across.number(x));
        self.left + share * (self.right - self.left)
    }

    fn y(&self, y: f64) -> f64 {
        self.bottom - self.up.at(y) * (self.bottom - self.top)
    }

    fn places(&self, line: &Line) -> Vec<Place> {
        let points = line.points.iter();
        points.map(|(x, y)| (self.x(*x), self.y(*y))).collect()
    }
}

/// Draws them.
pub fn draw(plot: &Lines) -> Drawing {
    let points = || plot.lines.iter().flat_map(|line| &line.points);
    let up = Scale::of(&points().map(|(_, y)| *y).collect::<Vec<_>>());
    let up_ticks: Vec<(f64, String)> = up
        .ticks(6)
        .into_iter()
        .map(|tick| (tick, up.name(plot.unit, tick)))
        .collect();
    let widest = font::widest(up_ticks.iter().map(|(_, text)| text), SMALL);
    let names: Vec<String> = plot
        .lines
        .iter()
        .map(|line| font::fit(&line.label, TEXT, Weight::Regular, WIDTH - 24.0))
        .collect();
    let name_width = font::widest(&names, TEXT);
    let named = plot.lines.len() > 1;
    let beside = named && name_width <= NAMES;
    let legend = if named && !beside {
        legend_places(&names)
    } else {
        Vec::new()
    };
    let legend_height = legend.last().map_or(0.0, |(_, y)| y + 0.5 * APART);
    let height = HEIGHT.max(APART * names.len() as f64 + BELOW + 16.0);
    let frame = Frame {
        plot,
        left: widest + 8.0,
        right: if beside {
            WIDTH - name_width - 32.0
        } else {
            WIDTH - 10.0
        },
        top: 10.0,
        bottom: height - BELOW,
        across: below(plot),
        up,
    };
    let mut drawing = Drawing::new(height + legend_height);
    for (tick, text) in &up_ticks {
        let y = frame.y(*tick);
        drawing.line(vec![(frame.left, y), (frame.right, y)], Ink::Grid, 1.0);
        let place = (frame.left - 8.0, y + 0.36 * SMALL);
        drawing.text(place, text, SMALL, Anchor::End, Ink::Muted);
    }
    axis_below(&mut drawing, &frame);
    for line in &plot.lines {
        draw_line(&mut drawing, line, &frame);
    }
    if beside {
        draw_names(&mut drawing, &names, &frame);
    }
    for ((line, name), (x, y)) in plot.lines.iter().zip(&names).zip(legend) {
        name_at(&mut drawing, line, name, (x, height + y));
    }
    drawing
}

/// One after another, in as many rows as it takes.
fn legend_places(names: &[String]) -> Vec<Place> {
    let (mut x, mut y) = (8.0, 0.5 * APART);
    let mut places = Vec::new();
    for name in names {
        let width = 10.0 + font::width(name, TEXT, Weight::Regular);
        if x + width > WIDTH && x > 8.0 {
            (x, y) = (8.0, y + 1.2 * APART);
        }
        places.push((x, y));
        x += width + 18.0;
    }
    places
}

fn name_at(drawing: &mut Drawing, line: &Line, name: &str, (x, y): Place) {
    drawing.mark((x, y), line.slot, String::new());
    let place = (x + 10.0, y + 0.36 * TEXT);
    drawing.text(place, name, TEXT, Anchor::Start, Ink::Text);
}

fn below(plot: &Lines) -> Scale {
    let points = plot.lines.iter().flat_map(|line| &line.points);
    let values: Vec<f64> = points.map(|(x, _)| plot.across.number(*x)).collect();
    let (low, high) = extremes(&values).unwrap_or_default();
    let (low, high) = match plot.across {
        Across::Percentiles => (0.0, high.max(1.0)),
        // Where the numbers end, the axis does: time that was not measured takes no room.
        Across::Time => (low, high),
    };
    Scale {
        kind: Kind::Linear,
        low,
        high,
    }
}

fn axis_below(drawing: &mut Drawing, frame: &Frame) {
    let scale = &frame.across;
    let (ticks, name) = match frame.plot.across {
        Across::Percentiles => (percentile_ticks(scale.high), "percentile"),
        Across::Time => {
            let wanted = ((frame.right - frame.left) / 56.0).floor().max(2.0) as usize;
            let named = |tick| (tick, scale.name(Unit::Time, tick));
            (scale.ticks(wanted).into_iter().map(named).collect(), "time")
        }
    };
    let bottom = frame.bottom;
    let axis = vec![(frame.left, bottom), (frame.right, bottom)];
    drawing.line(axis, Ink::Muted, 1.0);
    for (tick, _) in &ticks {
        let x = frame.x(*tick);
        drawing.line(vec![(x, frame.top), (x, bottom)], Ink::Grid, 1.0);
    }
    // Backwards: where there is no room for all names, the first has to go, which is the least of the percentiles.
    let backwards = ticks.into_iter().rev();
    drawing.ticks(
        backwards.map(|(tick, text)| (frame.x(tick), text)),
        bottom + 16.0,
    );
    let middle = (frame.left + frame.right) / 2.0;
    let place = (middle, bottom + 32.0);
    drawing.text(place, name, SMALL, Anchor::Middle, Ink::Muted);
}

fn draw_line(drawing: &mut Drawing, line: &Line, frame: &Frame) {
    let places = frame.places(line);
    let is_curve = frame.plot.across == Across::Percentiles;
    let thick = if is_curve { 2.0 } else { 1.5 };
    drawing.line(places.clone(), Ink::Series(line.slot), thick);
    let named = percentile_ticks(9.0);
    let is_named = |x: f64| named.iter().any(|(share, _)| (share - x).abs() < 1e-9);
    for ((x, y), place) in line.points.iter().zip(places) {
        if is_curve && is_named(*x) {
            let (percent, y) = ((x * 1e8).round() / 1e6, frame.plot.unit.show(*y));
            let tip = format!("{}, p{percent}: {y}", line.label);
            drawing.mark(place, line.slot, tip);
        }
    }
}

/// Names beside the ends of their lines, moved apart where they would stand on each other.
fn draw_names(drawing: &mut Drawing, names: &[String], frame: &Frame) {
    let lines = &frame.plot.lines;
    let end = |line: &Line| frame.places(line).pop();
    let ends: Vec<Place> = lines
        .iter()
        .map(|line| end(line).unwrap_or((frame.right, frame.bottom)))
        .collect();
    let wanted: Vec<f64> = ends.iter().map(|(_, y)| *y).collect();
    let places = spread(&wanted, APART, frame.top, frame.bottom);
    let x = frame.right + 19.0;
    for ((line, name), (end, y)) in lines.iter().zip(names).zip(ends.iter().zip(places)) {
        let ink = Ink::Series(line.slot);
        if (end.1 - y).abs() > 3.0 || frame.right - end.0 > 8.0 {
            drawing.dashed(vec![*end, (x - 7.0, y)], ink, 0.9);
        }
        name_at(drawing, line, name, (x, y));
    }
}

/// Places near those wanted, at least `apart` apart, within bounds where there is room for all.
fn spread(wanted: &[f64], apart: f64, low: f64, high: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|a, b| wanted[*a].total_cmp(&wanted[*b]));
    // Runs of neighbours that touch are moved as one, with their middle where they want to be.
    let mut runs: Vec<(f64, usize)> = Vec::new();
    for i in &order {
        runs.push((wanted[*i], 1));
        while let [.., (above, many), (below, more)] = runs[..] {
            let gap = apart * (many + more) as f64 / 2.0;
            if below - above >= gap {
                break;
            }
            let all = many + more;
            let middle = (above * many as f64 + below * more as f64) / all as f64;
            runs.truncate(runs.len() - 2);
            runs.push((middle, all));
        }
    }
    let mut places = vec![0.0; wanted.len()];
    let mut next = order.iter();
    for (middle, many) in runs {
        let first = middle - apart * (many - 1) as f64 / 2.0;
        for (i, index) in next.by_ref().take(many).enumerate() {
            places[*index] = first + apart * i as f64;
        }
    }
    // Into the bounds, from below and then from above.
    let mut least = high;
    for i in order.iter().rev() {
        places[*i] = places[*i].min(least);
        least = places[*i] - apart;
    }
    let mut most = low;
    for i in &order {
        places[*i] = places[*i].max(most);
        most = places[*i] + apart;
    }
    places
}

#[cfg(test)]
mod tests {
    use super::super::drawing::Shape;
    use super::*;

    #[test]
    fn names_are_moved_apart_and_stay_near() {
        let places = spread(&[50.0, 52.0, 51.0, 200.0], 16.0, 0.0, 300.0);
        assert_eq!(places, [35.0, 67.0, 51.0, 200.0]);
        let at_the_edge = spread(&[0.0, 1.0, 299.0, 300.0], 16.0, 0.0, 300.0);
        assert_eq!(at_the_edge, [0.0, 16.0, 284.0, 300.0]);
        assert!(spread(&[], 16.0, 0.0, 300.0).is_empty());
        // More than there is room for: still apart.
        let many = spread(&[10.0; 30], 16.0, 0.0, 100.0);
        assert!(many.windows(2).all(|pair| pair[1] - pair[0] >= 16.0));
    }

    fn plot(labels: &[&str]) -> Lines {
        let line = |label: &&str| Line {
            label: (*label).into(),
            slot: 0,
            points: vec![(0.5, 1_000.0), (0.99, 90_000.0)],
        };
        Lines {
            across: Across::Percentiles,
            unit: Unit::Time,
            lines: labels.iter().map(line).collect(),
        }
    }

    #[test]
    fn everything_is_inside_of_the_drawing() {
        let long = "a name that is far too long to stand beside a line".repeat(3);
        for labels in [
            &["one"][..],
            &["tokio", "morpheus"],
            &[&long, "b", "c"],
            &["x"; 8],
        ] {
            let drawing = draw(&plot(labels));
            for shape in &drawing.shapes {
                let inside = |(x, y): &Place| {
                    (0.0..=drawing.width).contains(x) && (0.0..=drawing.height).contains(y)
                };
                let fits = match shape {
                    Shape::Line { points, .. } => points.iter().all(inside),
                    Shape::Bar { at, .. } | Shape::Mark { at, .. } => inside(at),
                    Shape::Text {
                        at,
                        text,
                        size,
                        anchor,
                        weight,
                        ..
                    } => {
                        let width = font::width(text, *size, *weight);
                        let left = match anchor {
                            Anchor::Start => at.0,
                            Anchor::Middle => at.0 - width / 2.0,
                            Anchor::End => at.0 - width,
                        };
                        inside(&(left.max(-0.01) + 0.01, at.1))
                            && inside(&(left + width - 0.5, at.1))
                    }
                };
                assert!(fits, "{shape:?}");
            }
        }
    }
}
