//! Which network devices are next to an accelerator.

use super::{Graph, Relation};

/// The network devices nearest to a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nearest {
    /// Their relation to it.
    pub relation: Relation,
    /// Their indices: all that tie, ascending.
    pub nics: Vec<usize>,
}

impl Graph {
    /// The network devices nearest to `device`, all that tie. `None` if there are none. Where nothing is known of any, the relation is
    /// unknown and all tie; one that is known is nearer than one that is not.
    pub fn nearest_nics(&self, device: usize) -> Option<Nearest> {
        let nics: Vec<usize> = self.nics().into_iter().filter(|nic| *nic != device).collect();
        let distance = |nic: &usize| self.relation(device, *nic).distance();
        let least = nics.iter().map(distance).min()?;
        let nics: Vec<usize> = nics.into_iter().filter(|nic| distance(nic) == least).collect();
        Some(Nearest { relation: self.relation(device, *nics.first()?), nics })
    }

    /// A network device for each of `devices`: one of its nearest, those that tie shared out so that the most used serves as few as
    /// can be. Of those that tie the fastest are taken, where all their speeds are known. `None` for a device where there are none.
    pub fn assign_nics(&self, devices: &[usize]) -> Vec<Option<usize>> {
        let choices: Vec<Vec<usize>> = devices.iter().map(|device| self.fastest_nearest(*device)).collect();
        let mut assignment = Assignment { choices: &choices, taken: vec![None; devices.len()], most: 1 };
        while assignment.most <= devices.len() {
            for device in 0..devices.len() {
                if assignment.taken.get(device) == Some(&None) {
                    assignment.place(device, &mut vec![false; self.devices().len()]);
                }
            }
            assignment.most += 1;
        }
        assignment.taken
    }

    fn fastest_nearest(&self, device: usize) -> Vec<usize> {
        let ties = self.nearest_nics(device).map(|nearest| nearest.nics).unwrap_or_default();
        let rate = |nic: &usize| self.devices().get(*nic).and_then(|nic| nic.network_gb_per_s);
        let rates: Option<Vec<f64>> = ties.iter().map(rate).collect();
        let Some(best) = rates.and_then(|rates| rates.into_iter().reduce(f64::max)) else { return ties };
        ties.into_iter().filter(|nic| rate(nic) == Some(best)).collect()
    }
}

/// Matching of devices and network devices by augmenting paths (Kuhn), each network device for at most `most`.
struct Assignment<'a> {
    choices: &'a [Vec<usize>],
    taken: Vec<Option<usize>>,
    most: usize,
}

impl Assignment<'_> {
    /// Finds a place for `device`, moving others to another of their choices if it must. Each network device is looked at once, so
    /// that it nests no deeper than there are of them.
    fn place(&mut self, device: usize, seen: &mut Vec<bool>) -> bool {
        let choices = self.choices.get(device).map(Vec::as_slice).unwrap_or_default();
        let users = |taken: &[Option<usize>], nic| -> Vec<usize> {
            taken.iter().enumerate().filter(|(_, taken)| **taken == Some(nic)).map(|(user, _)| user).collect()
        };
        let mut by_load: Vec<usize> = choices.to_vec();
        by_load.sort_by_key(|nic| (users(&self.taken, *nic).len(), *nic));
        for nic in by_load {
            match seen.get_mut(nic) {
                Some(seen) if !*seen => *seen = true,
                _ => continue,
            }
            let current = users(&self.taken, nic);
            if current.len() < self.most || current.into_iter().any(|other| self.place(other, seen)) {
                if let Some(place) = self.taken.get_mut(device) {
                    *place = Some(nic);
                }
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_are_shared_out() {
        // GPU0 could take either NIC, GPU1 only the first: GPU0 has to give way.
        let labels: Vec<String> = ["GPU0", "GPU1", "GPU2", "GPU3", "NIC0", "NIC1"].map(str::to_owned).to_vec();
        let near = |gpu: usize, nic: usize| nic == 4 || gpu == 0 || gpu == 2;
        let word = |a: usize, b: usize| match (a.min(b), a.max(b)) {
            (a, b) if a == b => "X",
            (gpu @ 0..=3, nic @ 4..=5) if near(gpu, nic) => "PIX",
            _ => "SYS",
        };
        let words: Vec<Vec<String>> = (0..6).map(|a| (0..6).map(|b| word(a, b).to_owned()).collect()).collect();
        let graph = Graph::from_words(&labels, &words).unwrap();
        assert_eq!(graph.assign_nics(&[0, 1, 2, 3]), [Some(5), Some(4), Some(5), Some(4)]);
        assert_eq!(graph.nearest_nics(0).unwrap().nics, [4, 5]);
        assert_eq!(graph.assign_nics(&[1, 1, 1]), [Some(4); 3]);
        let alone = Graph::from_words(&labels[..1], &[vec!["X".to_owned()]]).unwrap();
        assert_eq!((alone.nearest_nics(0), alone.assign_nics(&[0])), (None, vec![None]));
    }
}
