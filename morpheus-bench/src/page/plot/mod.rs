//! Plots: what they show, where everything goes, and the two ways to show them.
//!
//! A plot is data ([`rows`], [`lines`]); its layout makes a [`drawing`] of it, which [`svg`] puts on the page and [`png`]
//! into a file. So both look alike, and neither needs a browser or a font of the machine.

pub mod drawing;
pub mod font;
pub mod lines;
pub mod palette;
pub mod png;
pub mod rows;
pub mod scale;
pub mod svg;

use drawing::Drawing;

/// A plot.
#[derive(Clone, Debug)]
pub enum Plot {
    /// Bars or marks, a line each.
    Rows(rows::Rows),
    /// Lines over an axis.
    Lines(lines::Lines),
}

impl Plot {
    /// Its layout.
    pub fn draw(&self) -> Drawing {
        match self {
            Self::Rows(plot) => rows::draw(plot),
            Self::Lines(plot) => lines::draw(plot),
        }
    }
}
