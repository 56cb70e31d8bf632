use super::*;

fn request(algorithm: Algorithm, collective: Collective, ranks: usize, count: u64) -> Request {
    Request {
        collective,
        algorithm,
        ranks,
        counts: Counts::Even(count),
        root: 0,
        chunk: 64,
        channels: 1,
        hosts: None,
        in_place: false,
        remote: false,
    }
}

#[test]
fn smoke() {
    for algorithm in Algorithm::ALL {
        for collective in Collective::ALL {
            for n in 1..=17 {
                for count in [0, 1, 7, 100, 1000] {
                    for in_place in [false, true] {
                        for remote in [false, true] {
                            for channels in [1, 2] {
                                for root in [0, n / 2] {
                                    let request = Request {
                                        in_place,
                                        channels,
                                        remote,
                                        root,
                                        ..request(algorithm, collective, n, count)
                                    };
                                    match verify(&request) {
                                        Ok(_) | Err(Fault::Unsuited(_)) => {}
                                        Err(fault) => panic!("{request:?}: {fault}"),
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
