//! Picks algorithm, chunk size and channels of a call when the caller does not.
//!
//! The choice depends only on what all ranks know alike (the call, the number of ranks, who shares a host), so that no
//! message is needed to agree on it. The rules are those of a latency-bandwidth model (Thakur, Rabenseifner, Gropp:
//! "Optimization of Collective Communication Operations in MPICH", 2005): few steps while a message is small, few bytes when it
//! is large; the sizes where they meet were measured on shared memory and on 1 Gbit/s and faster Ethernet.

use crate::plan::{Algorithm, Collective};

/// What a choice depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// What is called.
    pub collective: Collective,
    /// Bytes of the larger of input and output on the rank where it is largest.
    pub bytes: u64,
    /// Ranks of the communicator.
    pub ranks: usize,
    /// Hosts they are on, at least 1.
    pub hosts: usize,
    /// NUMA nodes they are on where they are on one host, at least 1.
    pub numa_nodes: usize,
    /// Network interfaces that the sockets to another host are spread over, at least 1.
    pub nics: usize,
    /// All ranks can map each other's registered memory.
    pub shared_memory: bool,
    /// All ranks may read all memory of each other's processes (`process_vm_readv`).
    pub readable: bool,
    /// Input and output are one buffer.
    pub in_place: bool,
    /// Only left-to-right reductions by rank are allowed (`HCOMM_DETERMINISTIC`).
    pub deterministic: bool,
}

/// How a call is to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// Algorithm over messages.
    pub algorithm: Algorithm,
    /// Largest message in bytes.
    pub chunk_bytes: u64,
    /// Parallel parts.
    pub channels: usize,
    /// Try mapped memory first: all ranks exchange the addresses of their buffers, and `Direct` runs on them when all
    /// are registered.
    pub mapped: bool,
    /// The same with buffers that are not, which are read where they lie.
    pub read: bool,
    /// The reason, in words.
    pub because: &'static str,
}

/// Up to here one message each way, copied inline, beats an exchange of addresses.
const INLINE_LIMIT: u64 = 8 << 10;
/// Pieces of a pipelined copy through shared memory: two fit into a core's own cache beside the data.
const SHM_CHUNK: u64 = 32 << 10;
/// Pieces on a network: large enough that a header and a system call vanish, small enough to overlap.
const NET_CHUNK: u64 = 256 << 10;
/// With several interfaces, what would be cut into a few pieces goes as one message that has a part for each: two rails of 1 Gbit/s
/// between three hosts take 7.3 ms for 1 MiB so, and 8.8 ms in pieces. Where there are many pieces anyway, these overlap better: 8 MiB take
/// 48 ms, and 53 ms in pieces of 512 KiB. Longer messages overlap too little with the reduction of what came before.
const NET_CHUNK_MOST: u64 = 1 << 20;
/// With so many ranks on each NUMA node, and for so many bytes, what crosses between nodes decides: each rank that reads from all others moves
/// a vector across for each rank, one after the other node by node moves one for each node (model; not measured on such a machine yet).
const NUMA_RANKS: usize = 4;
const NUMA_BYTES: u64 = 1 << 20;
/// Up to here an all-pairs exchange among a handful of hosts beats the steps of a ring.
const NET_SMALL: u64 = 16 << 10;
/// Two ranks send no more bytes in one exchange than round a ring, so they do it longer.
const NET_SMALL_PAIR: u64 = 64 << 10;

/// Chooses.
pub fn choose(facts: &Facts) -> Choice {
    let Facts { collective, bytes, ranks, hosts, .. } = *facts;
    let net_small = if ranks == 2 { NET_SMALL_PAIR } else { NET_SMALL };
    let choice = |algorithm, chunk_bytes, because| Choice {
        algorithm,
        chunk_bytes,
        channels: 1,
        mapped: false,
        read: false,
        because,
    };
    if crosses_nodes(facts) {
        return choice(
            Algorithm::Hierarchical,
            SHM_CHUNK,
            "several NUMA nodes: each byte crosses between them once a node",
        );
    }
    if facts.shared_memory {
        let small = bytes <= INLINE_LIMIT;
        let chunk = if small { INLINE_LIMIT } else { SHM_CHUNK };
        let mut choice = choice(Algorithm::Direct, chunk, "one host: all pairs, fewest waits");
        choice.mapped = !small && collective != Collective::Barrier;
        choice.read = choice.mapped && facts.readable && reading_pays(facts);
        return choice;
    }
    let whole = NET_CHUNK.saturating_mul(facts.nics.max(1) as u64).min(NET_CHUNK_MOST);
    let net_chunk = if bytes / ranks.max(1) as u64 <= whole { whole } else { NET_CHUNK };
    if facts.deterministic && collective.reduces() {
        return choice(Algorithm::Direct, net_chunk, "deterministic: reduced in rank order");
    }
    let small = bytes <= net_small;
    let few = ranks <= 4;
    let nested = hosts > 1 && hosts < ranks;
    match collective {
        Collective::AllReduce if small && few => choice(Algorithm::Direct, net_small, "small, few ranks: one exchange"),
        Collective::AllReduce if nested => choice(
            Algorithm::Hierarchical,
            net_chunk,
            "several ranks a host: each byte crosses the network once a host",
        ),
        Collective::AllReduce if small => {
            choice(Algorithm::RecursiveDoubling, net_small, "small, many ranks: logarithmic steps")
        }
        Collective::AllReduce | Collective::ReduceScatter | Collective::AllGather if !small => {
            choice(Algorithm::Ring, net_chunk, "large: every link carries the least bytes, all at once")
        }
        Collective::Broadcast | Collective::Reduce if !small && ranks > 2 => {
            choice(Algorithm::Chain, net_chunk, "large: pipelined along a chain")
        }
        Collective::Broadcast | Collective::Reduce if ranks > 4 => {
            choice(Algorithm::Binomial, net_chunk, "small, many ranks: logarithmic steps")
        }
        Collective::AllGather if !few => choice(Algorithm::Bruck, net_chunk, "small, many ranks: logarithmic steps"),
        Collective::Barrier if !few => choice(Algorithm::RecursiveDoubling, net_chunk, "logarithmic steps"),
        Collective::AllToAll if !few => choice(Algorithm::Pairwise, net_chunk, "one partner at a time"),
        _ => choice(Algorithm::Direct, net_chunk, "each byte goes straight to where it belongs"),
    }
}

/// Whether ordinary buffers are better read where they lie than copied through shared memory: one copy in place of two, but
/// by the kernel, which takes about a microsecond to begin and copies more slowly. Measured with 2 ranks on 2 processors and with 4.
fn reading_pays(facts: &Facts) -> bool {
    let Facts { collective, bytes, ranks, in_place, .. } = *facts;
    let pair = ranks == 2;
    let least = if pair { 32 << 10 } else { 64 << 10 };
    let sizes = match collective {
        Collective::AllGather => (64 << 10) * ranks as u64..=u64::MAX,
        // In place each would overwrite what others are to read.
        Collective::AllToAll if !in_place => (16 << 10) * ranks as u64..=u64::MAX,
        Collective::SendRecv if !in_place => least..=u64::MAX,
        // Where the root has nothing of its own to copy, readers do all the work, of which it does half through shared memory.
        Collective::Broadcast => least..=if in_place { 256 << 10 } else { u64::MAX },
        Collective::Scatter if pair => least..=if in_place { 1 << 20 } else { u64::MAX },
        // The root reads all by itself.
        Collective::Gather if pair => least..=512 << 10,
        _ => return false,
    };
    sizes.contains(&bytes)
}

/// Whether the NUMA nodes of one host are better treated like hosts.
fn crosses_nodes(facts: &Facts) -> bool {
    let many = facts.numa_nodes > 1 && facts.ranks >= NUMA_RANKS * facts.numa_nodes;
    let ordered = facts.deterministic && facts.collective.reduces();
    facts.shared_memory && facts.collective == Collective::AllReduce && many && facts.bytes >= NUMA_BYTES && !ordered
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_depends_on_size_and_place() {
        let facts = |bytes, hosts, shared_memory| Facts {
            collective: Collective::AllReduce,
            bytes,
            ranks: 6,
            hosts,
            numa_nodes: 1,
            nics: 1,
            shared_memory,
            readable: true,
            in_place: false,
            deterministic: false,
        };
        assert!(!choose(&facts(8, 1, true)).mapped, "an exchange of addresses costs more than 8 bytes");
        assert!(choose(&facts(1 << 20, 1, true)).mapped);
        assert_eq!(choose(&facts(8, 6, false)).algorithm, Algorithm::RecursiveDoubling);
        assert_eq!(choose(&facts(1 << 20, 6, false)).algorithm, Algorithm::Ring);
        assert_eq!(choose(&facts(1 << 20, 2, false)).algorithm, Algorithm::Hierarchical);
    }

    #[test]
    fn reading_is_for_those_that_copy_enough() {
        let reads = |collective, bytes, ranks, in_place, readable| {
            let facts = Facts {
                collective,
                bytes,
                ranks,
                hosts: 1,
                numa_nodes: 1,
                nics: 1,
                shared_memory: true,
                readable,
                in_place,
                deterministic: false,
            };
            choose(&facts).read
        };
        let mib = 1 << 20;
        assert!(reads(Collective::AllGather, mib, 2, true, true));
        assert!(!reads(Collective::AllGather, mib, 2, true, false), "not allowed to");
        assert!(!reads(Collective::AllGather, 16 << 10, 2, true, true), "too little for a system call");
        assert!(!reads(Collective::AllReduce, mib, 2, false, true), "nothing to copy");
        assert!(!reads(Collective::SendRecv, mib, 2, true, true), "would be overwritten");
        assert!(reads(Collective::Broadcast, mib, 2, false, true) && !reads(Collective::Broadcast, mib, 2, true, true));
        assert!(reads(Collective::Gather, mib / 2, 2, false, true) && !reads(Collective::Gather, mib, 2, false, true));
    }

    /// All-reduce of a small, a middle and a large message by where its ranks are and what is between them.
    #[test]
    fn a_choice_sees_hosts_nodes_and_interfaces() {
        use Algorithm::{Direct, Hierarchical, RecursiveDoubling, Ring};
        const KIB: u64 = 1 << 10;
        // Ranks, hosts, NUMA nodes, interfaces; then algorithm and chunk for 8 B, 64 KiB and 16 MiB.
        let table = [
            ((2, 1, 1, 1), [(Direct, 8), (Direct, 32), (Direct, 32)]),
            ((8, 1, 1, 1), [(Direct, 8), (Direct, 32), (Direct, 32)]),
            ((8, 1, 2, 1), [(Direct, 8), (Direct, 32), (Hierarchical, 32)]),
            ((64, 1, 8, 1), [(Direct, 8), (Direct, 32), (Hierarchical, 32)]),
            ((4, 1, 2, 1), [(Direct, 8), (Direct, 32), (Direct, 32)]),
            ((2, 2, 1, 1), [(Direct, 64), (Direct, 64), (Ring, 256)]),
            ((2, 2, 1, 2), [(Direct, 64), (Direct, 64), (Ring, 256)]),
            ((3, 3, 1, 1), [(Direct, 16), (Ring, 256), (Ring, 256)]),
            ((3, 3, 1, 2), [(Direct, 16), (Ring, 512), (Ring, 256)]),
            ((8, 8, 1, 1), [(RecursiveDoubling, 16), (Ring, 256), (Ring, 256)]),
            ((8, 8, 1, 8), [(RecursiveDoubling, 16), (Ring, 1024), (Ring, 256)]),
            ((8, 2, 1, 1), [(Hierarchical, 256), (Hierarchical, 256), (Hierarchical, 256)]),
            ((8, 2, 1, 3), [(Hierarchical, 768), (Hierarchical, 768), (Hierarchical, 256)]),
        ];
        for ((ranks, hosts, numa_nodes, nics), expected) in table {
            for (bytes, (algorithm, kib)) in [8, 64 * KIB, 16 << 20].into_iter().zip(expected) {
                let facts = Facts {
                    collective: Collective::AllReduce,
                    bytes,
                    ranks,
                    hosts,
                    numa_nodes,
                    nics,
                    shared_memory: hosts == 1,
                    readable: true,
                    in_place: false,
                    deterministic: false,
                };
                let choice = choose(&facts);
                assert_eq!((choice.algorithm, choice.chunk_bytes), (algorithm, kib * KIB), "{facts:?}");
                assert!(!choice.mapped || algorithm == Direct, "{facts:?}");
                let ordered = choose(&Facts { deterministic: true, ..facts }).algorithm;
                assert!(ordered.rank_ordered(Collective::AllReduce), "{facts:?}: {ordered:?}");
            }
        }
    }
}
