//! How many processors this process may really use: the smaller of its affinity mask and the quota of its control groups, as
//! [`hcomm_topology::read_limits`] tells them.

use hcomm_topology::{Root, read_limits};

/// The processors that this process may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cpus {
    /// Numbers of the processors in the affinity mask, ascending; never empty.
    pub allowed: Vec<usize>,
    /// Processors' worth of time that the control groups grant, rounded up; `None` without a limit.
    pub quota: Option<usize>,
}

impl Cpus {
    /// Of this process, now.
    pub fn of_this_process() -> Cpus {
        let limits = read_limits(&Root::this_machine());
        let allowed = limits.cpus.map(|cpus| cpus.iter().map(|cpu| cpu as usize).collect());
        // A system that does not tell.
        let counted = || (0..std::thread::available_parallelism().map_or(1, |n| n.get())).collect();
        Cpus { allowed: allowed.unwrap_or_else(counted), quota: limits.quota.map(|quota| quota as usize) }
    }

    /// How many may run at the same time, at least 1.
    pub fn usable(&self) -> usize {
        self.allowed.len().min(self.quota.unwrap_or(usize::MAX)).max(1)
    }

    /// The one processor that this process is bound to, if it is bound to one.
    pub fn bound_to(&self) -> Option<usize> {
        match self.allowed[..] {
            [one] => Some(one),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usable_is_the_smaller_and_bound_is_one() {
        let cpus = |allowed: &[usize], quota| Cpus { allowed: allowed.to_vec(), quota };
        assert_eq!(cpus(&[0, 1, 2, 3], Some(2)).usable(), 2);
        assert_eq!(cpus(&[0, 1], Some(64)).usable(), 2);
        assert_eq!(cpus(&[0, 1], None).usable(), 2);
        assert_eq!((cpus(&[5], None).bound_to(), cpus(&[5, 6], Some(1)).bound_to()), (Some(5), None));
        assert!(Cpus::of_this_process().usable() >= 1);
    }
}
