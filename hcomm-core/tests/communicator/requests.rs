pub const ACTS: &[(&str, fn())] = &[];
pub const TESTS: &[(&str, fn())] = &[];
