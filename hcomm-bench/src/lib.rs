//! wip

mod check;
mod failure;
mod group;
mod sizes;
#[cfg(test)]
mod testing;
mod workload;

/// wip
pub fn main() -> std::process::ExitCode {
    std::process::ExitCode::SUCCESS
}
