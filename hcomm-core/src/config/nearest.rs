//! "Did you mean": the known name with the fewest edits to a misspelt one.

/// The known name nearest to `name`, if it is near enough to be meant: at most a third of its letters wrong.
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let (distance, best) = known.map(|known| (edits(name, known), known)).min_by_key(|&(distance, _)| distance)?;
    (distance * 3 <= best.len()).then_some(best)
}

/// Levenshtein's distance: letters to insert, delete or replace, whatever their case.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.to_lowercase().chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.to_lowercase().chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_counted() {
        for (a, b, distance) in [("", "abc", 3), ("kitten", "sitting", 3), ("same", "SAME", 0), ("flaw", "lawn", 2)] {
            assert_eq!(edits(a, b), distance, "{a} {b}");
            assert_eq!(edits(b, a), distance, "{b} {a}");
        }
    }

    #[test]
    fn only_near_names_are_offered() {
        let known = ["HCOMM_CHUNK_SIZE", "HC_COMM_THREADS"];
        assert_eq!(nearest("HCOMM_CHUNKSIZE", known.into_iter()), Some("HCOMM_CHUNK_SIZE"));
        assert_eq!(nearest("HCOMM_THREADS", known.into_iter()), Some("HC_COMM_THREADS"));
        assert_eq!(nearest("HCOMM_ZZZZZZZZZZ", known.into_iter()), None);
    }
}
