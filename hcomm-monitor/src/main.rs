//! `hcomm-monitor`: see the library.

fn main() -> std::process::ExitCode {
    hcomm_monitor::main()
}
