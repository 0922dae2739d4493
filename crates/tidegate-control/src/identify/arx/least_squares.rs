//! Least squares for a handful of unknowns.

/// A column counts as one of the others' making when less than this part of its length is its own. What is
/// left of a number's sixteen digits then still gives a few of a parameter's.
const DEPENDENT: f64 = 1e-9;

/// The x with the least ‖A·x − b‖, A given by its columns, all as long as b. `None` when they do not
/// determine it: fewer rows than columns, or columns that depend on each other.
///
/// By Householder's reflections, not by the normal equations, which would square the condition: rates in the
/// hundreds stand beside a column of ones and response times that hardly vary.
pub(super) fn solve(mut columns: Vec<Vec<f64>>, mut b: Vec<f64>) -> Option<Vec<f64>> {
    if columns.iter().any(|column| column.len() != b.len()) || b.len() < columns.len() {
        return None;
    }
    // All of length one, so that the units in which they are told do not decide what depends on what.
    let scales: Vec<f64> = columns.iter().map(|column| norm(column)).collect();
    if scales.iter().any(|scale| *scale <= 0.0 || !scale.is_finite()) {
        return None;
    }
    for (column, scale) in columns.iter_mut().zip(&scales) {
        column.iter_mut().for_each(|value| *value /= scale);
    }
    let mut diagonal = Vec::with_capacity(columns.len());
    for at in 0..columns.len() {
        let (done, rest) = columns.split_at_mut(at + 1);
        let mirror = &mut done[at][at..];
        let length = norm(mirror);
        if length < DEPENDENT {
            return None;
        }
        // Away from zero, so that nothing cancels.
        let to = if mirror[0] > 0.0 { -length } else { length };
        diagonal.push(to);
        mirror[0] -= to;
        for other in rest.iter_mut().chain([&mut b]) {
            reflect(mirror, &mut other[at..]);
        }
    }
    let mut x = vec![0.0; columns.len()];
    for at in (0..columns.len()).rev() {
        let known: f64 = (at + 1..columns.len()).map(|later| columns[later][at] * x[later]).sum();
        x[at] = (b[at] - known) / diagonal[at];
    }
    for (value, scale) in x.iter_mut().zip(scales) {
        *value /= scale;
    }
    x.iter().all(|value| value.is_finite()).then_some(x)
}

/// Reflects a vector in the plane that `normal` stands on.
fn reflect(normal: &[f64], vector: &mut [f64]) {
    let along = 2.0 * dot(normal, vector) / dot(normal, normal);
    for (value, part) in vector.iter_mut().zip(normal) {
        *value -= along * part;
    }
}

fn dot(one: &[f64], other: &[f64]) -> f64 {
    one.iter().zip(other).map(|(one, other)| one * other).sum()
}

fn norm(vector: &[f64]) -> f64 {
    dot(vector, vector).sqrt()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn columns_that_say_the_same_are_refused() {
        let same = vec![vec![1.0, 2.0, 3.0], vec![200.0, 400.0, 600.0]];
        assert_eq!(solve(same, vec![1.0, 2.0, 3.0]), None);
        assert_eq!(solve(vec![vec![0.0; 3]], vec![1.0; 3]), None);
        assert_eq!(solve(vec![vec![1.0], vec![2.0]], vec![1.0]), None, "fewer rows than columns");
        assert_eq!(solve(vec![vec![f64::NAN, 1.0]], vec![1.0, 2.0]), None);
        assert_eq!(solve(vec![vec![2.0, 0.0], vec![0.0, -4.0]], vec![2.0, 8.0]), Some(vec![1.0, -2.0]));
    }

    proptest! {
        /// The residual stands at right angles to every column, whatever the units: no column can explain any
        /// of it.
        #[test]
        fn what_is_left_cannot_be_explained(
            rows in prop::collection::vec([-1.0..1.0f64, -1.0..1.0, -1.0..1.0, -1.0..1.0], 5..40),
            units in [-6i32..6, -6..6, -6..6]
        ) {
            let column = |at: usize, unit: i32| rows.iter().map(|row| row[at] * 10f64.powi(unit))
                .collect::<Vec<_>>();
            let columns: Vec<_> = (0..3).map(|at| column(at, units[at])).collect();
            let b = column(3, 0);
            let Some(x) = solve(columns.clone(), b.clone()) else { return Ok(()) };
            let left: Vec<f64> = (0..b.len())
                .map(|row| b[row] - columns.iter().zip(&x).map(|(column, x)| column[row] * x).sum::<f64>())
                .collect();
            for column in &columns {
                let cosine = dot(column, &left) / (norm(column) * norm(&b)).max(f64::MIN_POSITIVE);
                prop_assert!(cosine.abs() < 1e-6, "{cosine}");
            }
        }
    }
}
