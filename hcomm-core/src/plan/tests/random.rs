//! Random shapes.

use proptest::prelude::*;

use super::*;

/// A request that makes sense, for any algorithm, collective and shape.
fn requests() -> impl Strategy<Value = Request> {
    let kind = (0..10usize, 0..10usize, 1..20usize, any::<bool>(), 0..3usize);
    let size = (0u64..300, prop::collection::vec(0u64..40, 400), 1u64..200, 1..5usize, 0..20usize);
    let hosts = prop::option::of(prop::collection::vec(0..5usize, 20));
    (kind, size, hosts, any::<bool>()).prop_map(|(kind, (count, list, chunk, channels, root), hosts, uneven)| {
        let (algorithm, collective, ranks, in_place, reach) = kind;
        let reach = [Reach::Messages, Reach::Read, Reach::ReadWrite][reach];
        let (algorithm, collective) = (Algorithm::ALL[algorithm], Collective::ALL[collective]);
        use Collective as C;
        let counts = match collective {
            C::ReduceScatter | C::AllGather | C::Scatter | C::Gather if uneven => {
                Counts::PerRank(list[..ranks].iter().copied().collect())
            }
            C::AllToAll if uneven => Counts::Matrix(list[..ranks * ranks].iter().copied().collect()),
            _ => Counts::Even(count),
        };
        let root = if collective.rooted() { root % ranks } else { 0 };
        let hosts = hosts.map(|hosts| hosts[..ranks].iter().copied().collect());
        Request { collective, algorithm, ranks, counts, root, chunk, channels, hosts, in_place, reach }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn any_shape_that_is_not_refused_is_right(request in requests().prop_filter("large", |request| request.ranks <= 19)) {
        if request.supports().is_ok() {
            must_verify(&request);
        }
    }
}
