//! Which processor each rank of a host is bound to.

use std::collections::BTreeMap;

use crate::{CpuSet, Cpus};

/// A processor for each of `ranks` ranks of this host: spread evenly over the NUMA nodes, neighbouring ranks on the same node, and a
/// core of its own for each while there are cores. `None` where ranks are better not bound: there is but one (the kernel may have
/// better use for a place), or there are more than processors that may be used (two would share one while another is idle).
///
/// `before` is the number of ranks of the job on the hosts before this one. Where these are namespaces of the same machine, their
/// ranks get other cores; where they are other machines, it does no harm.
pub fn place_ranks(cpus: &Cpus, ranks: usize, before: usize) -> Option<Vec<u32>> {
    let usable = cpus.allowed.as_ref().map_or(cpus.online.clone(), |allowed| allowed.and(&cpus.online));
    let most = usable.len().min(cpus.quota.map_or(usize::MAX, |quota| quota as usize));
    if ranks < 2 || ranks > most {
        return None;
    }
    let mut nodes = nodes(cpus, &usable);
    let shares = shares(&nodes, ranks);
    let mut places = Vec::with_capacity(ranks);
    for (cores, share) in nodes.iter_mut().zip(shares) {
        let shift = before.saturating_mul(share) / ranks;
        let cores_here = cores.len();
        cores.rotate_left(shift % cores_here);
        places.extend(in_turn(cores).take(share));
    }
    // Fewer where the source knows of processors only by number.
    Some(places).filter(|places| places.len() == ranks)
}

/// The cores of each NUMA node, ascending, each with its processors that may be used; nodes of one package are neighbours. Processors
/// of which the node is not known are together; one of which the core is not known is a core by itself.
fn nodes(cpus: &Cpus, usable: &CpuSet) -> Vec<Vec<Vec<u32>>> {
    #[derive(Default)]
    struct Node {
        package: Option<usize>,
        cores: BTreeMap<(Option<usize>, u32), Vec<u32>>,
    }
    let mut nodes: BTreeMap<Option<u32>, Node> = BTreeMap::new();
    for thread in cpus.threads.iter().filter(|thread| usable.contains(thread.id)) {
        let node = nodes.entry(thread.numa_node).or_default();
        let package = thread.core.and_then(|core| cpus.cores.get(core)?.package);
        node.package = node.package.into_iter().chain(package).min();
        let alone = if thread.core.is_some() { 0 } else { thread.id };
        node.cores.entry((thread.core, alone)).or_default().push(thread.id);
    }
    let mut nodes: Vec<Node> = nodes.into_values().collect();
    nodes.sort_by_key(|node| node.package);
    nodes.into_iter().map(|node| node.cores.into_values().collect()).collect()
}

/// How many ranks each node gets: one to each in turn while it has a core left; when no node has, a second processor of its cores,
/// and so on.
fn shares(nodes: &[Vec<Vec<u32>>], ranks: usize) -> Vec<usize> {
    // In round `n`, a node can take as many as it has cores with more than `n` processors.
    let capacity = |node: &[Vec<u32>], round: usize| node.iter().filter(|core| core.len() > round).count();
    let mut shares = vec![0; nodes.len()];
    let mut left = ranks;
    for round in 0.. {
        let mut free: Vec<usize> = nodes.iter().map(|node| capacity(node, round)).collect();
        if free.iter().all(|free| *free == 0) {
            break;
        }
        while left > 0 && free.iter().any(|free| *free > 0) {
            for (share, free) in shares.iter_mut().zip(&mut free).filter(|(_, free)| **free > 0) {
                if left > 0 {
                    (*share, *free, left) = (*share + 1, *free - 1, left - 1);
                }
            }
        }
    }
    shares
}

/// The first processor of each core, then the second of each, and so on.
fn in_turn(cores: &[Vec<u32>]) -> impl Iterator<Item = u32> + '_ {
    let most = cores.iter().map(Vec::len).max().unwrap_or(0);
    (0..most).flat_map(|round| cores.iter().filter_map(move |core| core.get(round).copied()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Core, Thread};

    /// Threads as (number, core, node).
    fn cpus(threads: &[(u32, usize, u32)]) -> Cpus {
        let thread = |(id, core, node): &(u32, usize, u32)| Thread {
            id: *id,
            online: true,
            core: Some(*core),
            numa_node: Some(*node),
        };
        let cores = threads.iter().map(|(_, core, _)| core + 1).max().unwrap_or(0);
        Cpus {
            online: threads.iter().map(|(id, ..)| *id).collect(),
            threads: threads.iter().map(thread).collect(),
            cores: (0..cores).map(|_| Core { cpus: CpuSet::default(), package: None }).collect(),
            ..Cpus::default()
        }
    }

    /// Two nodes of two cores of two threads, numbered as Linux does on x86: second threads last.
    fn two_nodes() -> Cpus {
        cpus(&[(0, 0, 0), (1, 1, 0), (2, 2, 1), (3, 3, 1), (4, 0, 0), (5, 1, 0), (6, 2, 1), (7, 3, 1)])
    }

    #[test]
    fn nodes_evenly_cores_before_threads() {
        let place = |ranks| place_ranks(&two_nodes(), ranks, 0);
        assert_eq!(place(1), None);
        assert_eq!(place(2).unwrap(), [0, 2]);
        assert_eq!(place(3).unwrap(), [0, 1, 2]);
        assert_eq!(place(4).unwrap(), [0, 1, 2, 3]);
        assert_eq!(place(5).unwrap(), [0, 1, 4, 2, 3]);
        assert_eq!(place(8).unwrap(), [0, 1, 4, 5, 2, 3, 6, 7]);
        assert_eq!(place(9), None);
    }

    #[test]
    fn a_small_node_gives_the_rest_to_the_others() {
        let uneven = cpus(&[(0, 0, 0), (8, 1, 8), (9, 2, 8), (10, 3, 8)]);
        assert_eq!(place_ranks(&uneven, 4, 0).unwrap(), [0, 8, 9, 10]);
        assert_eq!(place_ranks(&uneven, 3, 0).unwrap(), [0, 8, 9]);
    }

    #[test]
    fn quota_and_affinity_bound_it() {
        let mut cpus = two_nodes();
        cpus.quota = Some(3);
        assert_eq!((place_ranks(&cpus, 3, 0), place_ranks(&cpus, 4, 0)), (Some(vec![0, 1, 2]), None));
        cpus.quota = None;
        cpus.allowed = CpuSet::parse_list("3,6-7,90");
        assert_eq!(place_ranks(&cpus, 2, 0).unwrap(), [6, 3], "a core each");
        assert_eq!(place_ranks(&cpus, 4, 0), None);
        assert_eq!(place_ranks(&Cpus::default(), 2, 0), None);
    }

    #[test]
    fn hosts_that_are_one_machine_get_other_cores() {
        let place = |before| place_ranks(&two_nodes(), 2, before).unwrap();
        assert_eq!((place(0), place(2), place(4)), (vec![0, 2], vec![1, 3], vec![0, 2]));
    }

    proptest::proptest! {
        #[test]
        fn each_rank_has_its_own(threads in proptest::collection::btree_map(0_u32..64, (0_usize..16, 0_u32..4), 0..40),
                                 ranks in 0_usize..48, before in 0_usize..1000) {
            // A core is on one node.
            let threads: Vec<_> = threads.into_iter().map(|(id, (core, _))| (id, core, core as u32 % 4)).collect();
            let cpus = cpus(&threads);
            let places = place_ranks(&cpus, ranks, before);
            proptest::prop_assert_eq!(places.is_some(), (2..=threads.len()).contains(&ranks));
            let places = places.unwrap_or_default();
            let own: CpuSet = places.iter().copied().collect();
            proptest::prop_assert!(own.len() == places.len() && own.is_subset(&cpus.online));
            let core_of = |id: u32| threads.iter().find(|thread| thread.0 == id).map(|thread| thread.1);
            let used: std::collections::BTreeSet<_> = places.iter().map(|id| core_of(*id)).collect();
            let all: std::collections::BTreeSet<_> = threads.iter().map(|thread| thread.1).collect();
            proptest::prop_assert_eq!(used.len(), places.len().min(all.len()), "cores before second threads");
        }
    }
}
