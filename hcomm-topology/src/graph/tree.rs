//! Trees over a set of accelerators.

use serde::Serialize;

use super::Graph;

/// A rooted binary tree over devices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Tree {
    /// The devices, in the order of closeness in which the tree is balanced.
    pub order: Vec<usize>,
    /// Index of the root device; `None` of an empty tree.
    pub root: Option<usize>,
    /// Parent of each device of `order`, in the same order; `None` for the root.
    pub parents: Vec<Option<usize>>,
}

impl Tree {
    /// A balanced tree whose devices lie in order: the middle one is the root, the halves beside it are trees below it.
    fn balanced(order: Vec<usize>) -> Tree {
        let mut parents = vec![None; order.len()];
        let mut root = None;
        // Ranges still to be made, with the parent of their root.
        let mut ahead = vec![(0, order.len(), None)];
        while let Some((first, end, parent)) = ahead.pop() {
            if first >= end {
                continue;
            }
            let middle = first + (end - first) / 2;
            let device = order.get(middle).copied();
            if let Some(place) = parents.get_mut(middle) {
                *place = parent;
            }
            if parent.is_none() {
                root = device;
            }
            ahead.push((first, middle, device));
            ahead.push((middle + 1, end, device));
        }
        Tree { order, root, parents }
    }

    /// The children of a device.
    pub fn children(&self, device: usize) -> Vec<usize> {
        let below = self.order.iter().zip(&self.parents).filter(|(_, parent)| **parent == Some(device));
        below.map(|(child, _)| *child).collect()
    }
}

impl Graph {
    /// Two trees over `devices` in the order of the best ring, so that neighbours in a tree are near each other. The second is moved by
    /// one device, so that for the most part a leaf of one is within the other and both directions of its links are used (the idea of
    /// double binary trees: Sanders, Speck, Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", 2009).
    pub fn trees(&self, devices: &[usize]) -> Vec<Tree> {
        let Some(ring) = self.ring(devices) else {
            return devices.first().map(|_| Tree::balanced(devices.to_vec())).into_iter().collect();
        };
        let mut moved = ring.order.clone();
        moved.rotate_left(1.min(ring.order.len()));
        if ring.order.len() < 3 {
            return vec![Tree::balanced(ring.order)];
        }
        vec![Tree::balanced(ring.order), Tree::balanced(moved)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_are_balanced_and_binary() {
        for n in 1..40_usize {
            let tree = Tree::balanced((0..n).collect());
            assert_eq!(tree.parents.iter().filter(|parent| parent.is_none()).count(), 1);
            let deepest = (0..n)
                .map(|device| {
                    let mut depth = 0;
                    let mut at = device;
                    while let Some(parent) = tree.parents[at] {
                        (at, depth) = (parent, depth + 1);
                    }
                    assert_eq!(Some(at), tree.root);
                    depth
                })
                .max();
            assert_eq!(deepest, Some(n.ilog2()), "{n}");
            assert!((0..n).all(|device| tree.children(device).len() <= 2));
        }
    }
}
