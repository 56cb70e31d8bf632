use hcomm_core::{DataType, ReduceOp};

use super::*;
use crate::group::Group;
use crate::testing::{Fault, run_threads};
use crate::workload::Workload;

/// Runs one checked call on `ranks` threads with a fault on rank 0, and returns the wrong elements over all ranks.
fn wrong_elements(shape: &Shape, in_place: bool, fault: Option<Fault>, seed: u64) -> u64 {
    let size = shape.call.dtype.size();
    let verdicts = run_threads(shape.ranks, fault, |group| {
        let rank = group.rank();
        let check = Check::new(shape, rank, seed).expect("these inputs can tell");
        if in_place {
            let mut buffer = vec![0; shape.in_place(rank).count as usize * size];
            check.prepare_in_place(&mut buffer);
            group.run_in_place(&shape.call, &mut buffer).unwrap();
            check.verify_in_place(&buffer)
        } else {
            let mut input = vec![0; shape.input_count(rank) as usize * size];
            let mut output = vec![0; shape.output_count(rank) as usize * size];
            check.prepare(&mut input, &mut output);
            group.run(&shape.call, &input, &mut output).unwrap();
            check.verify(&input, &output)
        }
    });
    verdicts.iter().map(|verdict| verdict.wrong).sum()
}

fn shapes(ranks: usize, bytes: u64) -> Vec<(Workload, Shape)> {
    let mut shapes = Vec::new();
    for workload in Workload::all().into_iter().filter(|w| w.collective != Collective::Barrier) {
        let ops = if workload.collective.reduces() { &ReduceOp::ALL[..] } else { &ReduceOp::ALL[..1] };
        for dtype in DataType::ALL {
            for op in ops {
                for root in [0, ranks - 1] {
                    shapes.push((workload, Shape::new(workload, dtype, *op, root, ranks, bytes)));
                }
            }
        }
    }
    shapes
}

#[test]
fn right_results_pass() {
    for ranks in [1, 2, 3, 5] {
        for (workload, shape) in shapes(ranks, 200) {
            assert_eq!(wrong_elements(&shape, false, None, 1), 0, "{} {:?}", workload.name(), shape.call);
            if workload.moves_data() {
                assert_eq!(wrong_elements(&shape, true, None, 1), 0, "{} in place {:?}", workload.name(), shape.call);
            }
        }
    }
}

#[test]
fn a_wrong_element_is_counted() {
    for (workload, shape) in shapes(3, 240) {
        // Rank 0 has no output of a reduction or gathering to another root.
        let expected = u64::from(shape.output_count(0) > 0);
        let wrong = wrong_elements(&shape, false, Some(Fault::WrongElement), 2);
        assert_eq!(wrong, expected, "{} {:?}", workload.name(), shape.call);
    }
}

#[test]
fn an_output_left_alone_is_wrong_everywhere() {
    for (workload, shape) in shapes(3, 240) {
        let wrong = wrong_elements(&shape, false, Some(Fault::Untouched), 3);
        assert_eq!(wrong, shape.output_count(0), "{} {:?}", workload.name(), shape.call);
    }
}

#[test]
fn a_lost_contribution_is_found() {
    for (workload, shape) in shapes(3, 2400) {
        if workload.collective.reduces() {
            let reaches = shape.output_count(0) > 0;
            for in_place in [false, true] {
                let wrong = wrong_elements(&shape, in_place, Some(Fault::LostContribution), 4);
                assert_eq!(wrong > 0, reaches, "{} in place {in_place} {:?}", workload.name(), shape.call);
            }
        }
    }
}

#[test]
fn a_changed_input_is_counted() {
    let shape = &shapes(2, 64)[0].1;
    let check = Check::new(shape, 0, 1).unwrap();
    let (mut input, mut output) = (vec![0; 64], vec![0; 64]);
    check.prepare(&mut input, &mut output);
    for byte in &mut output {
        *byte = !*byte; // what poison leaves out is the result
    }
    assert_eq!(check.verify(&input, &output), Verdict::default());
    input[3] ^= 1;
    let verdict = check.verify(&input, &output);
    assert_eq!(verdict.wrong, 1);
    assert!(verdict.first.unwrap().contains("element 3 of the input"));
}

#[test]
fn canaries_show_every_byte_out_of_bounds() {
    let mut memory = vec![0; 2 * GUARD + 100];
    let inside = GUARD..GUARD + 60;
    set_canaries(&mut memory, &inside);
    assert_eq!(lost_canaries(&memory, &inside), 0);
    memory[inside.start - 1] = 0;
    memory[inside.end] = 0;
    assert_eq!(lost_canaries(&memory, &inside), 2);
}

#[test]
fn elements_are_shown_as_numbers_are_written() {
    assert_eq!(hex(&1.0f32.to_ne_bytes()), "0x3f800000");
}
