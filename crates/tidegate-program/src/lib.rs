//! Parts of every program of Tidegate: its beginning and end, and the files that its commands read and write.

pub mod exit;
pub mod page;
pub mod rows;
pub mod scenario_file;
pub mod series;
mod wrap;

pub use wrap::wrap;
