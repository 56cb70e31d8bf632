//! The loop of all outputs but the screen.

use std::thread;
use std::time::{Duration, Instant};

use hcomm_cli::{Readers, Result};

use crate::model::Model;
use crate::source::Source;

/// Looks each `interval` until `duration` is over, the source is at its end, or nobody reads any more. `write` is called after
/// each look.
///
/// # Errors
/// Those of the source and of `write`.
pub fn run(
    source: &mut dyn Source,
    interval: Duration,
    duration: Option<Duration>,
    mut write: impl FnMut(&Model) -> Result<Readers>,
) -> Result<()> {
    let mut model = Model::new(source.places());
    let start = Instant::now();
    let mut next = start;
    while let Some(tick) = source.poll()? {
        model.update(tick);
        if write(&model)? == Readers::Gone {
            break;
        }
        let now = Instant::now();
        let left = duration.map(|duration| duration.saturating_sub(now - start));
        if left == Some(Duration::ZERO) {
            break;
        }
        // From one moment to the next, so that the time of the work does not add up; what was slept over is not made up for.
        next = (next + interval).max(now);
        let wait = next - now;
        thread::sleep(left.map_or(wait, |left| wait.min(left)));
    }
    Ok(())
}
