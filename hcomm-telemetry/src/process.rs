//! Other processes, by /proc (proc_pid_stat(5)).

use serde::{Deserialize, Serialize};

/// Whether a process still lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Liveness {
    /// It is there.
    Alive,
    /// It is gone, or only waits for its parent to see its end.
    Dead,
    /// It is of another pid namespace and cannot be looked up from here.
    Unknown,
}

/// What the kernel says of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ProcessState {
    /// One letter: R running, S sleeping, D in the kernel, T stopped, t traced, Z ended, ...
    pub letter: char,
    /// Start in clock ticks since boot.
    pub start_ticks: u64,
}

impl ProcessState {
    /// Of process `pid` of this pid namespace; `None` when there is none.
    pub fn of(pid: u32) -> Option<Self> {
        parse(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Whether it is stopped (SIGSTOP, a debugger) and so does nothing.
    pub fn is_stopped(&self) -> bool {
        matches!(self.letter, 'T' | 't')
    }

    fn is_over(&self) -> bool {
        matches!(self.letter, 'Z' | 'X' | 'x')
    }
}

fn parse(stat: &str) -> Option<ProcessState> {
    // The name in brackets may hold anything, brackets too: the last one ends it.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let letter = fields.next()?.chars().next()?;
    // Field 22; the state is field 3.
    Some(ProcessState { letter, start_ticks: fields.nth(18)?.parse().ok()? })
}

/// Inode of this process's pid namespace; `None` where /proc does not say.
pub(crate) fn pid_namespace() -> Option<u64> {
    let link = std::fs::read_link("/proc/self/ns/pid").ok()?;
    link.to_str()?.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok()
}

/// Identity of this boot of the host.
pub(crate) fn boot_id() -> Option<String> {
    Some(std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.trim().to_owned())
}

/// Whether the process is there that had this id and start time in that pid namespace.
pub(crate) fn liveness(pid: u32, start_ticks: u64, namespace: Option<u64>) -> Liveness {
    if namespace.is_none() || namespace != pid_namespace() {
        return Liveness::Unknown;
    }
    match ProcessState::of(pid) {
        Some(state) if state.start_ticks == start_ticks && !state.is_over() => Liveness::Alive,
        _ => Liveness::Dead,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_lives_and_one_of_another_start_does_not() {
        let me = std::process::id();
        let state = ProcessState::of(me).unwrap();
        assert!(!state.is_stopped());
        let namespace = pid_namespace();
        assert_eq!(liveness(me, state.start_ticks, namespace), Liveness::Alive);
        assert_eq!(liveness(me, state.start_ticks + 1, namespace), Liveness::Dead);
        assert_eq!(liveness(me, state.start_ticks, Some(1)), Liveness::Unknown);
        assert_eq!(liveness(me, state.start_ticks, None), Liveness::Unknown);
    }

    #[test]
    fn names_in_brackets_do_not_confuse() {
        let stat = "42 (a) b (c) T 1 42 42 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 98765 10 20";
        assert_eq!(parse(stat), Some(ProcessState { letter: 'T', start_ticks: 98765 }));
        assert_eq!(parse("42 (a"), None);
        assert_eq!(parse("42 (a) S 1 2"), None);
    }
}
