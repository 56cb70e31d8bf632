//! Chain: each rank receives from one neighbour and passes on to the other, chunk by chunk. With many chunks a link is
//! busy all the time and every byte passes every link once; with few, the last rank waits for all the others.

use super::group::Group;
use super::pipeline::Place;

/// The member's place in the chain that begins at member `root`.
pub(super) fn place(g: &Group, root: usize) -> Place {
    let depth = (g.index + g.len() - root) % g.len();
    Place {
        parent: (depth > 0).then(|| g.rank(g.before(1))),
        children: if depth + 1 < g.len() { vec![g.rank(g.after(1))] } else { vec![] },
        depth: depth as u64,
    }
}
