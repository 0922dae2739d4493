//! Properties of the distribution, and the figures of hand-made series.
