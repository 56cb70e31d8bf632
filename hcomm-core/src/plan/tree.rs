//! Double binary tree (Sanders, Speck and Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan",
//! 2009), built as NCCL builds it: a rank inside one tree is a leaf of the other, so two halves of the data, one through
//! each tree, use both directions of every rank's links, at the latency of a tree.

use super::group::Group;
use super::pipeline::Place;

/// Places in a binary tree over 0..n with 0 at the root: (parent, children), as NCCL's `ncclGetBtree`. Odd numbers are leaves.
fn binary(n: usize, number: usize) -> (Option<usize>, Vec<usize>) {
    if number == 0 {
        let child = n.next_power_of_two() / 2;
        return (None, if n > 1 { vec![child] } else { vec![] });
    }
    let bit = number & number.wrapping_neg();
    let above = (number ^ bit) | (bit << 1);
    let parent = if above < n { above } else { number ^ bit };
    let mut children = Vec::new();
    if bit > 1 {
        children.push(number - bit / 2);
        // The right child, or where the tree is cut off, the highest one of its left descendants that exists.
        let mut low = bit / 2;
        while low > 0 && number + low >= n {
            low /= 2;
        }
        if low > 0 {
            children.push(number + low);
        }
    }
    (Some(parent), children)
}

/// The member's place in the first or the second tree, both with member `root` at the top.
///
/// Without the root, members of the second tree are numbered the other way round (or one further) so that leaves and
/// inner ones change places: NCCL mirrors or shifts the ranks likewise, but lets the root differ.
pub(super) fn place(g: &Group, root: usize, second: bool) -> Place {
    let n = g.len();
    let number_of = |member: usize| match (second, (member + n - root) % n) {
        (_, 0) => 0,
        (false, position) => position,
        (true, position) if n % 2 == 1 => n - position,
        (true, position) => position % (n - 1) + 1,
    };
    let rank_of = |number: usize| {
        let position = match (second, number) {
            (_, 0) | (false, _) => number,
            (true, _) if n % 2 == 1 => n - number,
            (true, 1) => n - 1,
            (true, _) => number - 1,
        };
        g.rank((position + root) % n)
    };
    let number = number_of(g.index);
    let (parent, children) = binary(n, number);
    let mut depth = 0;
    let mut above = parent;
    while let Some(number) = above {
        depth += 1;
        above = binary(n, number).0;
    }
    Place { parent: parent.map(rank_of), children: children.into_iter().map(rank_of).collect(), depth }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_trees_span_all_members_and_no_member_is_inside_both() {
        for n in 1..=64 {
            for root in [0, n / 2, n - 1] {
                let mut inside = vec![0; n];
                for second in [false, true] {
                    let places: Vec<Place> =
                        (0..n).map(|rank| place(&Group::new((0..n).collect(), rank).unwrap(), root, second)).collect();
                    for (rank, place) in places.iter().enumerate() {
                        assert_eq!(place.parent.is_none(), rank == root);
                        assert!(place.children.len() <= 2);
                        for &child in &place.children {
                            assert_eq!(places[child].parent, Some(rank), "n {n}, rank {rank}, child {child}");
                            assert_eq!(places[child].depth, place.depth + 1);
                        }
                        assert!(place.depth <= u64::from(n.next_power_of_two().ilog2()), "n {n}");
                        inside[rank] += usize::from(rank != root && !place.children.is_empty());
                    }
                    assert_eq!(places.iter().map(|place| place.children.len()).sum::<usize>(), n - 1);
                }
                // One may be: with n even, 1..n has an odd member left over.
                assert!(inside.iter().all(|&trees| trees <= 1), "n {n} root {root}: {inside:?}");
            }
        }
    }
}
